"""The demo's conversation: recorded answers of ours, judged now and told about as a model's are; it asks no model."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from ptxbench.agent.extraction import extract
from ptxbench.agent.feedback import TurnContext, render_feedback
from ptxbench.cli.reference import reference_file
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.turn import Answer
from ptxbench.schema.verdict import State, Verdict

CONVERSATION = "demo/conversation.json"
"""Answers, first to last, in the form that `replay/FILE` reads."""

EXPECTED = ((State.FAILED, "hang"), (State.FAILED, "wrong_numbers"), (State.PASSED, ""))
"""The state and the reason's code of each turn."""

STATES = {State.PASSED: "bold green", State.INCONCLUSIVE: "bold yellow"}


@dataclass(frozen=True)
class Told:
    """One turn: what was said, what was found, what a model would be told.

    Attributes:
        index: Counted from 0.
        prose: The answer without its code.
        code: The kernel in it.
        before: The kernel of the answer before; empty for the first.
        verdict: Computed now.
        feedback: The text made of it.
        seconds: How long the evaluation took.
    """

    index: int
    prose: str
    code: str
    before: str
    verdict: Verdict
    feedback: str
    seconds: float

    @property
    def as_expected(self) -> bool:
        """Whether the verdict is what a right ptxbench gives."""
        status = self.verdict.status
        return (status.state, status.reason.code if status.reason else "") == EXPECTED[self.index]


def recorded_answers() -> tuple[Answer, ...]:
    """The answers.

    Raises:
        CandidateError: The installation lacks them.
    """
    return tuple(Answer.model_validate(each) for each in json.loads(reference_file(CONVERSATION).read_text("utf-8")))


def kernel_of(answer: Answer) -> Candidate:
    """The kernel in a recorded answer."""
    found = extract(answer, name="recorded answer").candidate
    if found is None:
        raise AssertionError("a recorded answer holds no kernel")
    return found


def told(answers: tuple[Answer, ...], judged: Iterable[tuple[Verdict, float]]) -> Iterator[Told]:
    """The turns in order.

    Args:
        answers: What was said.
        judged: The verdict of each answer's kernel, with the seconds that it took.
    """
    code, previous = "", None
    for index, (answer, (verdict, seconds)) in enumerate(zip(answers, judged, strict=True)):
        candidate = kernel_of(answer)
        context = TurnContext(candidate, index, len(answers), previous=previous)
        prose = answer.text.partition("```")[0].strip()
        feedback = render_feedback(verdict, context)
        yield Told(index, prose, candidate.entry_source, code, verdict, feedback, seconds)
        code, previous = candidate.entry_source, verdict


def paragraph(turn: Told) -> Iterator[RenderableType]:
    """What is shown of a turn: the answer, what it changes, and the text about it."""
    yield Text(f"Turn {turn.index + 1}, the recorded answer", "bold")
    yield _indented(Text(turn.prose))
    yield _indented(_code(turn))
    state = turn.verdict.status.state
    yield Text.assemble(
        (f"Turn {turn.index + 1}, computed now", "bold"),
        f" ({turn.seconds:.0f} s): ",
        (state.value, STATES.get(state, "bold red")),
        "; a model is told:",
    )
    yield _indented(Text(turn.feedback.rstrip(), "dim"))
    if not turn.as_expected:
        yield _indented(Text("this is a fault of ptxbench: another verdict was expected", "bold red"))


def _code(turn: Told) -> Text:
    """The lines that changed since the answer before; of the first answer its length."""
    lines = turn.code.splitlines()
    if not turn.before:
        return Text(f"[{len(lines)} lines of CUDA]", "cyan")
    changed = [line for line in unified_diff(turn.before.splitlines(), lines, n=0) if line[:3] not in ("---", "+++")]
    return Text("\n".join(line for line in changed if line[0] in "+-"), "cyan")


def _indented(text: Text) -> Padding:
    return Padding(text, (0, 0, 1, 3))
