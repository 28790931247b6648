"""`replay/FILE`: a recorded conversation in the place of a model; its answers are old, the verdicts are new."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ptxbench.agent.ask import Request
from ptxbench.errors import ProviderError
from ptxbench.records.layout import RUN
from ptxbench.records.read import read_document, read_run
from ptxbench.schema.turn import Answer, Trajectory

PREFIX = "replay/"


@dataclass(frozen=True)
class Replay:
    """Recorded answers, by turn.

    Attributes:
        source: Where they were read.
        answers: Those of every trajectory, where the source holds one conversation.
        by_sample: By `SampleKey.name`, where it holds a run.
    """

    source: Path
    answers: tuple[Answer, ...] = ()
    by_sample: dict[str, tuple[Answer, ...]] | None = None

    async def __call__(self, request: Request) -> Answer:
        """The recorded answer of a turn, as `Generate` asks for it.

        Raises:
            ProviderError: There is none.
        """
        return self.answer(request.key.name, request.turn)

    def answer(self, sample: str, turn: int) -> Answer:
        """The recorded answer of a turn.

        Raises:
            ProviderError: There is none.
        """
        answers = self.answers if self.by_sample is None else self.by_sample.get(sample)
        if answers is None:
            raise ProviderError(f"{self.source} has no conversation {sample}.", "Replay a run of the same plan.")
        if turn >= len(answers):
            what = f"{self.source} has {len(answers)} answers, and turn {turn} needs another."
            raise ProviderError(what, f"Give --turns {len(answers)}.")
        return answers[turn]


def is_replay(model: str) -> bool:
    """Whether a model's name asks for recorded answers."""
    return model.startswith(PREFIX)


def open_replay(model: str) -> Replay:
    """The recorded answers that a model's name `replay/FILE` names: a trajectory, a list of answers, or a run.

    Answers in a list are objects as in a trajectory, or texts.

    Raises:
        ProviderError: The file is missing or holds none of these.
        RecordError: It is a damaged run or trajectory.
    """
    source = Path(model.removeprefix(PREFIX))
    if (source / RUN).is_file():
        recorded = read_run(source).trajectories()
        return Replay(source, by_sample={each.key.name: _answers(each) for each in recorded})
    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProviderError(f"{source} cannot be replayed: {error.strerror}.", "Name a trajectory or a run.") from None
    except ValueError as error:
        raise ProviderError(f"{source} is no JSON document: {error}.", "Name a trajectory or a run.") from None
    if isinstance(document, list):
        return Replay(source, answers=tuple(_answer(each, source) for each in document))
    return Replay(source, answers=_answers(read_document(source, Trajectory)))


def _answers(trajectory: Trajectory) -> tuple[Answer, ...]:
    return tuple(turn.answer for turn in trajectory.turns)


def _answer(document: object, source: Path) -> Answer:
    if isinstance(document, str):
        return Answer(text=document)
    try:
        return Answer.model_validate(document)
    except ValidationError as fault:
        first = fault.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ProviderError(f"{source}: an answer is damaged ({place}: {first['msg']}).", "Repair the file.") from None
