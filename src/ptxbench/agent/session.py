"""Opens a run, new or begun, and carries its trajectories on side by side; how a turn goes is `loop`'s business."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ptxbench.agent.ask import Generate, Records
from ptxbench.agent.limits import Purse
from ptxbench.agent.loop import Means, run_trajectory
from ptxbench.agent.prompt import Asked, pack_for, prompt
from ptxbench.errors import RecordError
from ptxbench.records.layout import JOURNAL, TRAJECTORIES, RunFolder
from ptxbench.records.write import RunStore
from ptxbench.schema.evaluator import Evaluator
from ptxbench.schema.journal import Fault, JournalEntry
from ptxbench.schema.problem import Problem
from ptxbench.schema.turn import UNFINISHED, Run, RunPlan, SampleKey, Trajectory
from ptxbench.schema.values import ToolVersion
from ptxbench.suite import pick_workload, problem_hash

Watch = Callable[[Trajectory], None]
"""Told of a trajectory each time that it has another turn, or ends."""


class Unkept:
    """Records of a run that has no folder: they are gone with the process."""

    def save(self, trajectory: Trajectory) -> None:
        """Nothing is kept."""

    def answers(self, key: SampleKey) -> tuple[JournalEntry, ...]:
        """Nothing was paid before."""
        return ()

    def record_answer(self, key: SampleKey, entry: JournalEntry) -> None:
        """Nothing is kept."""

    def record_fault(self, fault: Fault) -> None:
        """Nothing is kept."""


@dataclass
class Session:
    """A run while it is carried on.

    Attributes:
        run: Its first document.
        problems: By name.
        store: Its folder; None where none was asked for.
        purse: What it has spent.
    """

    run: Run
    problems: Mapping[str, Problem]
    store: RunStore | None = None
    purse: Purse = field(default_factory=Purse)

    def __post_init__(self) -> None:
        """Make every prompt, so that a wrong pack or workload is found before anything is paid."""
        self._begun = {key: self._new(key) for key in self.run.plan.keys}
        for key in self.run.plan.keys:
            self._check(key)
            for turn in self.begun(key).turns:
                self.purse.pay(turn.answer.usage, self.run.plan)

    @classmethod
    def open(
        cls, plan: RunPlan, problems: Mapping[str, Problem], folder: Path | None, tools: tuple[ToolVersion, ...] = ()
    ) -> Self:
        """Begin a run, or go on with the one in `folder`.

        Raises:
            RecordError: The folder holds a run of another plan, something else, or is in use.
            ProblemError: A workload is unknown.
            PackError: A pack is unknown, or not for its problem.
        """
        new = Run.begun(plan, time.time(), tools)
        if folder is None:
            return cls(new, problems)
        _check_folder(folder)
        store = RunStore(RunFolder(folder))
        try:
            old = store.run()
            _check_plan(folder, old, plan)
            session = cls(old or new, problems, store)
            if old is None:
                store.save_run(new)
        except BaseException:
            store.close()
            raise
        return session

    def close(self) -> None:
        """Let go of the folder."""
        if self.store is not None:
            self.store.close()

    @property
    def records(self) -> Records:
        """Where turns and answers are kept."""
        return self.store or Unkept()

    def begun(self, key: SampleKey) -> Trajectory:
        """A trajectory as far as it went; a new one has its prompt alone.

        Raises:
            RecordError: Its document is damaged.
        """
        kept = self.store.trajectory(key) if self.store is not None else None
        return kept or self._begun[key]

    def open_keys(self) -> tuple[SampleKey, ...]:
        """The trajectories that have not ended."""
        return tuple(key for key in self.run.plan.keys if not _over(self.begun(key)))

    async def carry_on(self, key: SampleKey, means: Means) -> Trajectory:
        """Carry one trajectory to its end; one that has ended is given as it is.

        Raises:
            RecordError: It does not fit what it was begun with, or nothing more can be written.
        """
        begun = self.begun(key)
        if _over(begun):
            return begun
        problem = self.problems[key.problem]
        return await run_trajectory(self.run.plan, problem, pick_workload(problem, key.workload), begun, means)

    def _new(self, key: SampleKey) -> Trajectory:
        problem = self.problems[key.problem]
        pack = pack_for(key, problem)
        asked = Asked(key, problem, pick_workload(problem, key.workload), pack)
        plan = self.run.plan
        return Trajectory(
            key=key,
            model=plan.model,
            device=plan.device,
            problem_hash=problem_hash(problem),
            pack_hash=pack.hash if pack is not None else "",
            prompt=prompt(asked, plan, emulated=plan.device == "emulator"),
            created=time.time(),
        )

    def _check(self, key: SampleKey) -> None:
        begun, new = self.begun(key), self._begun[key]
        for name in ("problem_hash", "pack_hash", "prompt"):
            if not _over(begun) and getattr(begun, name) != getattr(new, name):
                what = f"{key.name} was begun with another {name.replace('_hash', '')} than ptxbench has now."
                raise RecordError(what, "Go on with the version that began the run, or begin a new one.")


async def carry_all_on(session: Session, generate: Generate, evaluator: Evaluator, parallel: int, watch: Watch) -> None:
    """Carry every trajectory to its end, so many at once.

    Raises:
        RecordError: One does not fit what it was begun with, or nothing more can be written.
    """
    waiting = iter(session.open_keys())
    means = Means(generate, evaluator, session.records, session.purse, watch=watch)

    async def work() -> None:
        for key in waiting:
            await session.carry_on(key, means)

    tasks = [asyncio.create_task(work()) for _ in range(parallel)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _over(trajectory: Trajectory) -> bool:
    return trajectory.stop is not None and trajectory.stop not in UNFINISHED


def _check_folder(folder: Path) -> None:
    ours = RunFolder(folder)
    names = {each.name for each in folder.iterdir()} if folder.is_dir() else set()
    strangers = {name for name in names - {TRAJECTORIES, JOURNAL} if not name.startswith(".")}
    if strangers and not ours.run.is_file():
        what = f"{folder} is neither empty nor a run."
        raise RecordError(what, "Name another folder with -o.")


def _check_plan(folder: Path, old: Run | None, plan: RunPlan) -> None:
    if old is None or old.plan == plan:
        return
    differing = [name for name in RunPlan.model_fields if getattr(old.plan, name) != getattr(plan, name)]
    what = f"{folder} holds a run of another plan; they differ in {', '.join(differing)}."
    raise RecordError(what, f"Go on with `ptxbench run --resume {folder}`, or name another folder with -o.")
