"""What a run writes down as it goes: paid answers and faults of the infrastructure; verdicts are not here."""

from __future__ import annotations

from typing import Literal

from ptxbench.schema.turn import Answer
from ptxbench.schema.values import Frozen


class JournalEntry(Frozen):
    """One paid request, written before anything is done with its answer."""

    sample: str
    """`SampleKey.name`."""
    turn: int
    """Counted from 0."""
    part: int = 0
    """Counted from 0; later parts continue an answer that was cut at its token limit."""
    prompt_hash: str
    """Content hash of all messages that the answer replies to."""
    answer: Answer
    """The answer of this request alone."""
    created: float
    """Unix time in seconds."""


class Fault(Frozen):
    """A fault of the infrastructure: never shown to a model, never scored."""

    sample: str
    turn: int
    boundary: Literal["provider", "evaluator"]
    error: str
    """The exception's type."""
    message: str
    remedy: str = ""
    attempt: int = 0
    """Counted from 0."""
    created: float
    """Unix time in seconds."""
