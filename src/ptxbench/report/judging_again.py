"""Judges some of a run's kernels once more, here and now, and compares what does not depend on the clock."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ptxbench.report.verdict_audit import Difference
from ptxbench.schema.evaluator import Evaluator
from ptxbench.schema.problem import Problem
from ptxbench.schema.turn import SampleKey, Trajectory
from ptxbench.schema.verdict import State, Verdict
from ptxbench.suite import pick_workload


@dataclass(frozen=True)
class Judged:
    """A kernel of a run with its verdict, and what it is a sample of."""

    key: SampleKey
    turn: int
    verdict: Verdict


def choose(trajectories: Sequence[Trajectory], count: int, device: str, seed: int) -> tuple[Judged, ...]:
    """So many kernels that were judged on a device of this kind, by chance; the same kernel once."""
    found = {
        (trajectory.key.workload, turn.verdict.candidate): Judged(trajectory.key, turn.index, turn.verdict)
        for trajectory in trajectories
        for turn in trajectory.turns
        if turn.verdict is not None and _kind(turn.verdict.environment.device) == _kind(device)
    }
    picked = sorted(found.values(), key=lambda each: (each.key.name, each.turn))
    return tuple(random.Random(seed).sample(picked, min(count, len(picked))))  # noqa: S311  (no secret)


async def judge_again(
    trajectories: Sequence[Trajectory],
    chosen: Sequence[Judged],
    problems: Mapping[str, Problem],
    evaluator: Evaluator,
) -> tuple[Difference, ...]:
    """Evaluate the chosen kernels and compare state, stage, and whether the target's instructions executed.

    Raises:
        PtxbenchError: A tool, the device or the harness is at fault.
    """
    turns = {(each.key, turn.index): turn for each in trajectories for turn in each.turns}
    differences: list[Difference] = []
    for each in chosen:
        problem = problems[each.key.problem]
        workload = pick_workload(problem, each.key.workload)
        candidate = turns[each.key, each.turn].candidate
        assert candidate is not None, "a turn with a verdict has a candidate"
        again = await evaluator.evaluate(problem, workload, candidate)
        differences += _compare(each, again)
    return tuple(differences)


def _compare(judged: Judged, again: Verdict) -> Iterator[Difference]:
    where = f"{judged.key.name} turn {judged.turn}, judged again"
    stored, follows = judged.verdict.status, again.status
    if State.INCONCLUSIVE in (stored.state, follows.state):
        return
    if (stored.state, stored.stage) != (follows.state, follows.stage):
        yield Difference(where, "status", _words(judged.verdict), _words(again))
    elif judged.verdict.layers.target.executed.state != again.layers.target.executed.state:
        what = "target's instructions executed"
        yield Difference(where, what, judged.verdict.layers.target.executed.state, again.layers.target.executed.state)


def _words(verdict: Verdict) -> str:
    status = verdict.status
    return f"{status.state.value} at {status.stage.value}" if status.stage else status.state.value


def _kind(device: str) -> str:
    return device.partition(":")[0]
