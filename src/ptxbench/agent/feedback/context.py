"""What a feedback takes into account beside the verdict: the turn, its source, what came before; renders nothing."""

from __future__ import annotations

from dataclasses import dataclass

from ptxbench.schema.candidate import Candidate
from ptxbench.schema.verdict import Verdict

DEFAULT_BUDGET = 6_000
"""Tokens of one feedback text, as `tokens` counts them."""


@dataclass(frozen=True)
class Best:
    """The best turn before this one.

    Attributes:
        index: Its number, counted from 0.
        speedup: Baseline time divided by its own; None where no time was measured.
    """

    index: int
    speedup: float | None = None


@dataclass(frozen=True)
class TurnContext:
    """One turn of a trajectory, as the text about it needs to know it.

    Attributes:
        candidate: What was extracted from the answer; None when nothing was.
        extraction_note: What was missing in the answer, in words for the model.
        index: The turn's number, counted from 0.
        turns: Turns in total.
        target_speedup: What ends the trajectory; 0: nothing does.
        best: The best earlier turn that was correct; None before the first.
        previous: The verdict of the latest earlier turn that had one.
        budget: Tokens that the text may have, as `tokens` counts them.
    """

    candidate: Candidate | None
    index: int
    turns: int
    extraction_note: str = ""
    target_speedup: float = 0.0
    best: Best | None = None
    previous: Verdict | None = None
    budget: int = DEFAULT_BUDGET

    @property
    def left(self) -> int:
        """Turns that are still to come."""
        return max(0, self.turns - self.index - 1)


def tokens(text: str) -> int:
    """A high estimate of the tokens of a text: a third of its UTF-8 bytes, rounded up.

    Tokenizers of current models make 3 to 4.5 bytes of source code and English one token; three is on the safe side,
    needs no tokenizer, and is the same for every model.
    """
    return -(-len(text.encode()) // 3)
