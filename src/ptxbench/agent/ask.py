"""Asks a model once for each answer: what was paid before comes from the journal; verdicts are not known here."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ptxbench.agent.context import prompt_hash
from ptxbench.agent.extraction import ends_inside
from ptxbench.errors import ProviderError, RecordError
from ptxbench.schema.journal import Fault, JournalEntry
from ptxbench.schema.turn import Answer, Message, SampleKey, Trajectory, Usage

CONTINUE = (
    "Your answer was cut at its token limit. Go on exactly where it ends, with the next line: repeat nothing, open no "
    "new code block if one is open, and close the block when the kernel is complete."
)


class ContextFullError(ProviderError):
    """The conversation no longer fits the model's context."""


@dataclass(frozen=True)
class Request:
    """One request to a model.

    Attributes:
        key: The trajectory.
        turn: Counted from 0.
        part: Counted from 0; later ones continue an answer that was cut.
        messages: All of them; the last is the user's.
    """

    key: SampleKey
    turn: int
    part: int
    messages: tuple[Message, ...]


Generate = Callable[[Request], Awaitable[Answer]]
"""A model. Raises `ContextFullError`, or another `ProviderError` when it finally does not answer."""


class Records(Protocol):
    """Where a trajectory and what was paid for it are kept."""

    def save(self, trajectory: Trajectory) -> None:
        """Keep a trajectory as far as it went, in place of what was kept before."""

    def answers(self, key: SampleKey) -> tuple[JournalEntry, ...]:
        """The answers that were paid for a trajectory."""

    def record_answer(self, key: SampleKey, entry: JournalEntry) -> None:
        """Keep a paid answer; it is safe when this returns."""

    def record_fault(self, fault: Fault) -> None:
        """Keep a fault of the infrastructure."""


class Asker:
    """Asks for the answers of one trajectory."""

    def __init__(self, generate: Generate, records: Records, key: SampleKey, continuations: int) -> None:
        """Read what was paid before.

        Raises:
            RecordError: The journal is damaged.
        """
        self._generate = generate
        self._records = records
        self._key = key
        self._continuations = continuations
        self._paid = {(entry.turn, entry.part): entry for entry in records.answers(key)}

    async def ask(self, turn: int, messages: tuple[Message, ...]) -> Answer:
        """The answer of a turn; one that is cut at its token limit is continued.

        Raises:
            ProviderError: The model does not answer.
            RecordError: The journal holds the answer to another prompt, or cannot be written.
        """
        text, parts = "", list[Answer]()
        for part in range(1 + self._continuations):
            wanted = messages if part == 0 else (*messages, *_go_on(text))
            answer = await self._once(Request(self._key, turn, part, wanted))
            text = joined(text, answer.text)
            parts.append(answer)
            if answer.stop != "length" or not text.strip():
                break
        return whole_answer(parts)

    async def _once(self, request: Request) -> Answer:
        asked = prompt_hash(request.messages)
        paid = self._paid.get((request.turn, request.part))
        if paid is not None:
            if paid.prompt_hash != asked:
                what = f"The journal of {self._key.name} has an answer for turn {request.turn}, but to another prompt."
                remedy = "Problem, pack or ptxbench changed since; resume with what began the run, or begin a new one."
                raise RecordError(what, remedy)
            return paid.answer
        answer = await self._generate(request)
        entry = JournalEntry(
            sample=self._key.name,
            turn=request.turn,
            part=request.part,
            prompt_hash=asked,
            answer=answer,
            created=time.time(),
        )
        self._records.record_answer(self._key, entry)
        return answer


def joined(text: str, more: str) -> str:
    """An answer with its continuation: from its last line end on, without a fence that opens an open block again."""
    if not text:
        return more
    kept = _whole_lines(text)
    first, _, rest = more.partition("\n")
    if ends_inside(kept) and first.lstrip().startswith(("```", "~~~")) and first.strip("`~ \t\r"):
        more = rest
    return kept + more


def _go_on(text: str) -> tuple[Message, Message]:
    return Message(role="assistant", content=_whole_lines(text)), Message(role="user", content=CONTINUE)


def _whole_lines(text: str) -> str:
    """The text without its last line where that has no end, if any is left: a model continues lines, not words."""
    end = text.rfind("\n") + 1
    return text[:end] if text[:end].strip() else text


def whole_answer(parts: Sequence[Answer]) -> Answer:
    """One answer of the parts that it was paid in, at least one."""
    text, usage = "", Usage()
    for part in parts:
        text, usage = joined(text, part.text), usage.plus(part.usage)
    return Answer(
        text=text,
        reasoning="\n\n".join(part.reasoning for part in parts if part.reasoning),
        stop=parts[-1].stop,
        parts=sum(part.parts for part in parts),
        usage=usage,
        model=parts[-1].model,
        seconds=sum(part.seconds for part in parts),
    )
