"""A run as a task of Inspect AI: its solver carries a trajectory on, its scorer reads it; both decide nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import inspect_ai
from inspect_ai import Epochs, Task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.model import Model, ModelOutput, get_model
from inspect_ai.scorer import Score, Scorer, Target, mean, scorer
from inspect_ai.solver import Generate as InspectGenerate
from inspect_ai.solver import Solver, TaskState, solver
from inspect_ai.util import Store

from ptxbench.agent.ask import Records
from ptxbench.agent.context import messages_for
from ptxbench.agent.inspect_model import InspectModel, chat
from ptxbench.agent.loop import Means
from ptxbench.agent.session import Session, Watch
from ptxbench.errors import PtxbenchError, RecordError
from ptxbench.records.layout import METADATA_KEY, STORE_KEY
from ptxbench.schema.evaluator import Evaluator
from ptxbench.schema.journal import Fault, JournalEntry
from ptxbench.schema.turn import UNFINISHED, SampleKey, Trajectory

InspectTask = Task
task = inspect_ai.task
"""Inspect's value and decorator, for the entry point."""


def model_name() -> str:
    """The model that the running `inspect eval` was given; empty where there is none."""
    try:
        return str(get_model())
    except ValueError:
        return ""


class _SampleRecords:
    """Keeps a trajectory in its sample's store too, and so in Inspect's log."""

    def __init__(self, records: Records, store: Store) -> None:
        self._records = records
        self._store = store

    def save(self, trajectory: Trajectory) -> None:
        self._records.save(trajectory)
        self._store.set(STORE_KEY, trajectory.model_dump(mode="json"))

    def answers(self, key: SampleKey) -> tuple[JournalEntry, ...]:
        return self._records.answers(key)

    def record_answer(self, key: SampleKey, entry: JournalEntry) -> None:
        self._records.record_answer(key, entry)

    def record_fault(self, fault: Fault) -> None:
        self._records.record_fault(fault)


class TrajectoryStoppedError(Exception):
    """A trajectory stopped before its end; Inspect tries its sample again in `inspect eval-retry`."""


def make_task(session: Session, evaluator: Evaluator, watch: Watch, give_up: Callable[[PtxbenchError], None]) -> Task:
    """The task of a run.

    Args:
        session: The run.
        evaluator: Judges candidates.
        watch: Told of every turn.
        give_up: Told of a fault that ends the run, where Inspect would go on with the next sample.
    """
    plan = session.run.plan
    keys = {_sample_id(key): key for key in plan.keys}
    samples = [
        Sample(
            id=name,
            input=chat(session.begun(key).prompt),
            metadata={"key": key.model_dump(mode="json", exclude={"number"})},
        )
        for name, key in keys.items()
    ]
    trajectories = max(key.number for key in plan.keys) + 1
    return Task(
        dataset=MemoryDataset(samples, name="ptxbench"),
        solver=carry_on(session, evaluator, watch, give_up),
        scorer=verdicts(),
        epochs=Epochs(trajectories, "mean"),
        name="ptxbench",
        metadata={METADATA_KEY: session.run.model_dump(mode="json")},
    )


@solver
def carry_on(session: Session, evaluator: Evaluator, watch: Watch, give_up: Callable[[PtxbenchError], None]) -> Solver:
    """Carries the sample's trajectory to its end."""

    async def solve(state: TaskState, generate: InspectGenerate) -> TaskState:
        key = SampleKey(**state.metadata["key"], number=state.epoch - 1)
        records = _SampleRecords(session.records, state.store)
        means = Means(InspectModel(session.run.plan), evaluator, records, session.purse, watch=watch)
        try:
            trajectory = await session.carry_on(key, means)
        except RecordError as fault:
            give_up(fault)
            raise
        records.save(trajectory)
        state.messages = chat(messages_for(trajectory, "full"))
        if trajectory.turns:
            state.output = ModelOutput.from_content(trajectory.model, trajectory.turns[-1].answer.text)
        if trajectory.stop in UNFINISHED:
            raise TrajectoryStoppedError(f"{trajectory.stop}: {trajectory.stop_note}")
        return state

    return solve


@scorer(metrics={"correct": [mean()], "target_correct": [mean()], "speedup": [mean()], "turns": [mean()]})
def verdicts() -> Scorer:
    """The best turn of a trajectory: correct, correct by the target's instructions, speedup (0: none), turns taken."""

    async def score(state: TaskState, target: Target) -> Score:
        trajectory = Trajectory.model_validate(state.store.get(STORE_KEY))
        speedups = [turn.speedup or 0.0 for turn in trajectory.turns]
        value = {
            "correct": float(any(turn.correct for turn in trajectory.turns)),
            "target_correct": float(any(turn.target_correct for turn in trajectory.turns)),
            "speedup": max(speedups, default=0.0),
            "turns": float(len(trajectory.turns)),
        }
        return Score(value=value, explanation=str(trajectory.stop or ""))

    return score


def run_task(made: Task, model: Model, logs: Path, parallel: int) -> None:
    """Run a task to its end, so many trajectories at once, and write Inspect's log.

    Raises:
        KeyboardInterrupt: It was interrupted; the log says so.
    """
    options: dict[str, Any] = {"ctl_server": False, "log_realtime": False, "fail_on_error": False}
    written = inspect_ai.eval(
        made, model=model, log_dir=str(logs), display="none", log_level="error", max_samples=parallel, **options
    )
    if any(log.status == "cancelled" for log in written):
        raise KeyboardInterrupt


def _sample_id(key: SampleKey) -> str:
    return key.name.rpartition("-")[0]
