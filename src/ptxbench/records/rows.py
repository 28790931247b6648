"""One flat row per turn, the only thing that metrics are computed from; what a number means is `metrics`' work."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ptxbench.schema.turn import Run, Trajectory, Turn, TurnState
from ptxbench.schema.verdict import Verdict


class Rule(StrEnum):
    """By which rule a turn counts."""

    STRICT = "strict"
    """Ours: the verdict passed; the target's instructions executed and were not found to be decoration."""
    PUBLISHED = "published"
    """The paper's: outputs within its tolerance; an instruction of the target's families executed."""


@dataclass(frozen=True, slots=True)
class TurnRow:
    """What metrics need to know of one turn.

    Attributes:
        run: Id or name of the run.
        model: Name of the model.
        problem: Name of the problem.
        workload: The workload's uuid.
        target: `sm_90a` or `sm_100a`.
        device: What it was measured on: a GPU's name, or `emulator`. Rows of different devices are never pooled.
        pack: Knowledge pack that the model was given.
        trajectory: Identifies the trajectory within its run.
        turn: Index, counted from 0.
        state: How the turn ended.
        failure: Stage at which it ended (`build`, `check`, ...), `no_kernel`, or empty for a pass.
        code: The reason's identifier within the stage, or the published label.
        correct: By rule.
        target_correct: By rule.
        speedup: Baseline time divided by the candidate's; None where it is not correct or no time was measured.
        work_share: Share of the required arithmetic that target instructions did; None where it was not counted.
        input_tokens, output_tokens, reasoning_tokens, cost: What the answer cost (cost in US dollars).
        model_seconds, evaluation_seconds: Wall-clock time.
        candidate: Content hash of the kernel, or empty.
    """

    run: str
    model: str
    problem: str
    workload: str
    target: str
    device: str
    pack: str
    trajectory: str
    turn: int
    state: TurnState
    failure: str
    code: str
    correct: dict[Rule, bool]
    target_correct: dict[Rule, bool]
    speedup: float | None = None
    work_share: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cost: float | None = None
    model_seconds: float | None = None
    evaluation_seconds: float | None = None
    candidate: str = ""


def rows_of(run: Run, trajectory: Trajectory) -> tuple[TurnRow, ...]:
    """The rows of one trajectory's turns, in order."""
    return tuple(_row(run, trajectory, turn) for turn in trajectory.turns)


def _row(run: Run, trajectory: Trajectory, turn: Turn) -> TurnRow:
    key, verdict, usage = trajectory.key, turn.verdict, turn.answer.usage
    failure, code = _failure(turn)
    return TurnRow(
        run=run.id,
        model=trajectory.model,
        problem=key.problem,
        workload=key.workload,
        target=key.target.value,
        device=_device(trajectory, verdict),
        pack=key.pack,
        trajectory=key.name,
        turn=turn.index,
        state=turn.state,
        failure=failure,
        code=code,
        correct={Rule.STRICT: turn.correct, Rule.PUBLISHED: _published_correct(verdict)},
        target_correct={Rule.STRICT: turn.target_correct, Rule.PUBLISHED: _published_target(verdict)},
        speedup=turn.speedup,
        work_share=verdict.layers.target.work_share.value if verdict else None,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cost=usage.cost,
        model_seconds=turn.answer.seconds,
        evaluation_seconds=turn.evaluation_seconds,
        candidate=turn.candidate.id if turn.candidate else "",
    )


def _device(trajectory: Trajectory, verdict: Verdict | None) -> str:
    """`emulator`, else the GPU's name where there was one: figures of two GPUs are not comparable.

    A turn that was over before a device was asked has the device of its trajectory's other turns.
    """
    if trajectory.device == "emulator":
        return trajectory.device
    if verdict is not None and verdict.environment.device_name:
        return verdict.environment.device_name
    names = {turn.verdict.environment.device_name for turn in trajectory.turns if turn.verdict}
    return max(names, default="") or trajectory.device


def _failure(turn: Turn) -> tuple[str, str]:
    if turn.verdict is None:
        return "no_kernel", turn.extracted.value
    status = turn.verdict.status
    if turn.correct:
        return "", ""
    return status.stage.value if status.stage else "", status.reason.code if status.reason else ""


def _published_correct(verdict: Verdict | None) -> bool:
    """The paper's rule knows only outputs within its tolerance; a refused or crashed kernel has none."""
    return verdict is not None and verdict.layers.correct_published.state == "yes"


def _published_target(verdict: Verdict | None) -> bool:
    return _published_correct(verdict) and verdict is not None and verdict.layers.target.executed.state == "yes"
