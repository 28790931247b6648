"""Is a run what it says? Follows every turn from the prompt to the feedback again; judging kernels again is apart."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ptxbench.agent.ask import whole_answer
from ptxbench.agent.context import messages_for, prompt_hash
from ptxbench.agent.extraction import extract
from ptxbench.agent.feedback import render_feedback
from ptxbench.agent.limits import Purse, ended
from ptxbench.agent.loop import turn_context
from ptxbench.errors import ProblemError, RecordError
from ptxbench.records.layout import RunFolder
from ptxbench.records.read import StoredRun, read_document, read_journal
from ptxbench.report.verdict_audit import Difference, verdict_differences
from ptxbench.schema.journal import JournalEntry
from ptxbench.schema.problem import Problem
from ptxbench.schema.turn import UNFINISHED, Run, RunPlan, SampleKey, StopReason, Trajectory, Turn
from ptxbench.suite import load_problem, problem_hash

SPENT = (StopReason.COST_LIMIT, StopReason.TIME_LIMIT, StopReason.CONTEXT_FULL)
"""Ends that depend on more than the trajectory itself."""


@dataclass(frozen=True)
class Audited:
    """What was looked at, and what was found."""

    trajectories: int
    turns: int
    verdicts: int
    differences: tuple[Difference, ...]


def audit(stored: StoredRun) -> Audited:
    """Recompute everything in a run's folder that follows from something else in it."""
    folder = RunFolder(stored.source)
    problems = _problems(stored.run.plan)
    looks = [_Look(stored.run, folder, key, problems) for key in stored.run.plan.keys]
    differences = [*_run(stored.run), *(each for look in looks for each in look.differences())]
    known = [look.trajectory for look in looks if look.trajectory is not None]
    turns = [turn for trajectory in known for turn in trajectory.turns]
    verdicts = sum(turn.verdict is not None for turn in turns)
    return Audited(len(known), len(turns), verdicts, tuple(differences))


def _problems(plan: RunPlan) -> Mapping[str, Problem]:
    """The plan's problems that are still there, by name."""
    found: dict[str, Problem] = {}
    for task in plan.tasks:
        with suppress(ProblemError):
            problem = load_problem(task)
            found[problem.name] = problem
    return found


def _run(run: Run) -> Iterator[Difference]:
    if run.id != run.identity():
        yield Difference("run.json", "id", run.id[:12], f"{run.identity()[:12]}: the plan or its time was changed")
    if len(set(run.plan.keys)) != len(run.plan.keys):
        yield Difference("run.json", "plan", "a trajectory twice", "each once")


class _Look:
    """One trajectory under audit."""

    def __init__(self, run: Run, folder: RunFolder, key: SampleKey, problems: Mapping[str, Problem]) -> None:
        self.problems = problems
        self.plan: RunPlan = run.plan
        self.key = key
        self.name = key.name
        self.damage: list[Difference] = []
        self.trajectory: Trajectory | None = None
        self.journal: Mapping[int, tuple[JournalEntry, ...]] = {}
        path = folder.trajectory(key)
        try:
            self.journal = _by_turn(read_journal(folder.journal(key)))
        except RecordError as fault:
            self.damage.append(Difference(self.name, "journal", fault.what, "readable"))
        if not path.is_file():
            if self.journal:
                self.damage.append(Difference(self.name, "trajectory", "missing", f"{len(self.journal)} paid answers"))
            return
        try:
            self.trajectory = read_document(path, Trajectory)
        except RecordError as fault:
            self.damage.append(Difference(self.name, "trajectory", fault.what, "readable and consistent"))

    def differences(self) -> Iterator[Difference]:
        yield from self.damage
        trajectory = self.trajectory
        if trajectory is None:
            return
        problem = self.problems.get(self.key.problem)
        workload = problem.workload(self.key.workload) if problem is not None else None
        if problem is None or workload is None:
            yield self._differs("problem", self.key.problem, "a problem that is there")
            return
        yield from self._head(trajectory, problem)
        for index, turn in enumerate(trajectory.turns):
            yield from self._turn(trajectory, index, turn)
            if turn.verdict is not None:
                where = f"{self.name} turn {index}"
                yield from self._belongs(turn, trajectory, index)
                yield from verdict_differences(turn.verdict, problem, workload, where)
        yield from self._end(trajectory)

    def _differs(self, what: str, stored: object, follows: object, turn: int | None = None) -> Difference:
        where = self.name if turn is None else f"{self.name} turn {turn}"
        return Difference(where, what, str(stored), str(follows))

    def _head(self, trajectory: Trajectory, problem: Problem) -> Iterator[Difference]:
        if trajectory.key != self.key:
            yield self._differs("key", trajectory.key.name, self.name)
        if trajectory.model != self.plan.model:
            yield self._differs("model", trajectory.model, self.plan.model)
        if trajectory.problem_hash != problem_hash(problem):
            yield self._differs("problem", trajectory.problem_hash[:12], f"{problem_hash(problem)[:12]} is here")
        # A run that was cut off may have paid for an answer that it had not yet judged.
        spare = 0 if trajectory.stop is not None and trajectory.stop not in UNFINISHED else 1
        if not len(trajectory.turns) <= len(self.journal) <= len(trajectory.turns) + spare:
            yield self._differs("turns", len(trajectory.turns), f"{len(self.journal)} paid answers")

    def _turn(self, trajectory: Trajectory, index: int, turn: Turn) -> Iterator[Difference]:
        before = trajectory.model_copy(update={"turns": trajectory.turns[:index]})
        if turn.index != index:
            yield self._differs("index", turn.index, index, index)
        asked = prompt_hash(messages_for(before, self.plan.context))
        if turn.prompt_hash != asked:
            yield self._differs("prompt", turn.prompt_hash[:12], asked[:12], index)
        paid = self.journal.get(index, ())
        if paid and whole_answer([entry.answer for entry in paid]) != turn.answer:
            yield self._differs("answer", "not as in the journal", "the same", index)
        if paid and paid[0].prompt_hash != turn.prompt_hash:
            yield self._differs("prompt", "not as in the journal", "the same", index)
        found = extract(turn.answer)
        if found.found is not turn.extracted:
            yield self._differs("extraction", turn.extracted.value, found.found.value, index)
        stored = turn.candidate.id if turn.candidate else "none"
        follows = found.candidate.id if found.candidate else "none"
        if stored != follows:
            yield self._differs("kernel", stored[:12], follows[:12], index)
        if turn.feedback:
            told = render_feedback(turn.verdict, turn_context(self.plan, before, turn))
            if told != turn.feedback:
                yield self._differs("feedback", "not what follows from the verdict", "the same", index)

    def _belongs(self, turn: Turn, trajectory: Trajectory, index: int) -> Iterator[Difference]:
        verdict = turn.verdict
        assert verdict is not None
        facts = {
            "problem": (verdict.problem, self.key.problem),
            "problem's hash": (verdict.problem_hash, trajectory.problem_hash),
            "workload": (verdict.workload, self.key.workload),
            "target": (verdict.target.value, self.key.target.value),
        }
        for what, (stored, follows) in facts.items():
            if stored != follows:
                yield self._differs(f"{what} of the verdict", stored, follows, index)

    def _end(self, trajectory: Trajectory) -> Iterator[Difference]:
        for count in range(len(trajectory.turns)):
            begun = trajectory.model_copy(update={"turns": trajectory.turns[:count]})
            stop = ended(begun, self.plan.model_copy(update={"cost_limit": None}), Purse())
            if stop is not None:
                yield self._differs("turns", len(trajectory.turns), f"ended after {count}: {stop.value}")
                return
        follows = ended(trajectory, self.plan.model_copy(update={"cost_limit": None}), Purse())
        if trajectory.stop in (None, *UNFINISHED, *SPENT):
            return
        if follows is not trajectory.stop:
            yield self._differs("end", trajectory.stop, follows.value if follows else "not ended")


def _by_turn(entries: Sequence[JournalEntry]) -> Mapping[int, tuple[JournalEntry, ...]]:
    turns: dict[int, dict[int, JournalEntry]] = {}
    for entry in entries:
        turns.setdefault(entry.turn, {})[entry.part] = entry
    return {turn: tuple(parts[part] for part in sorted(parts)) for turn, parts in turns.items()}
