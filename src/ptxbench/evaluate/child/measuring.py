"""One measurement: start a fresh candidate process, prepare, check, time, check the neighbours; judges nothing.

Draws and oracles are made while the candidate's process starts. The neighbours come last: a kernel that faults on a
size it was not made for must not cost the measurement of the size it was made for.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from ptxbench.evaluate.checks import generalises, outcome_of, stage
from ptxbench.evaluate.child.arena import Slot
from ptxbench.evaluate.child.checking import (
    Checked,
    Prepared,
    check_all,
    fault_reason,
    proven,
)
from ptxbench.evaluate.child.desk import Candidate, Desk, make_slots, slot_count
from ptxbench.evaluate.child.draws import CHECKED, NEIGHBOUR
from ptxbench.evaluate.child.evidence import Context, time_stage
from ptxbench.evaluate.child.faults import CandidateFault
from ptxbench.evaluate.child.instrument import InstrumentError
from ptxbench.evaluate.child.preparing import Baselines, draw_workload, prepare
from ptxbench.evaluate.child.protocol import Measure, Measured
from ptxbench.evaluate.child.timing import Timer
from ptxbench.evaluate.statistics import median
from ptxbench.schema.problem import Workload
from ptxbench.schema.stages import CheckStage, GpuState, Outcome, Reason, TimeStage
from ptxbench.schema.values import Layer, Unavailable

PROBE_SECONDS = 20.0
"""A device that does not answer for so long after a fault is taken to be broken (E14)."""
CALIBRATIONS = 10
REPEATS = 3
"""How often all draws are checked again after a timed output was wrong, to tell an unstable kernel from a cheat."""
_REMEDY = "Call neither the profiler nor CUPTI from the candidate; otherwise run `ptxbench doctor`."


@dataclass
class Phases:
    """Seconds by phase during which the device is held."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Count what the block takes; a phase that comes twice is added up."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - start


@dataclass(frozen=True)
class Ready:
    """One workload's draws with what they are judged by.

    Attributes:
        baselines: The libraries that work on it.
        draws: In their secret order.
    """

    baselines: Baselines
    draws: list[Prepared]


def measure(desk: Desk, request: Measure) -> Measured:
    """Check a candidate and, where asked and right, time it.

    Raises:
        PtxbenchError: The machine is at fault.
    """
    job = _Job(desk, request)
    with desk.memory() as memory:
        with job.phases.phase("memory"):
            slots = make_slots(memory, request.problem, (request.workload, *request.neighbours), job.slot_count)
        with job.phases.phase("start"):
            candidate = desk.begin(request.candidate, memory, request.deadline)
        try:
            with job.phases.phase("prepare"):
                ready = job.prepare(request.workload)
            with job.phases.phase("start"):
                candidate.ready()
            return job.run(candidate, slots, ready)
        except CandidateFault as fault:
            return job.answer(failed(fault_reason(fault)), None, candidate)
        finally:
            candidate.end()


def failed(reason: Reason) -> CheckStage:
    """A check that found no result to compare."""
    answer = Layer.yes_or_no(False, reason.message)
    return CheckStage(outcome=outcome_of(reason), reason=reason, published=answer, contract=answer)


class _Job:
    """One request under way."""

    def __init__(self, desk: Desk, request: Measure) -> None:
        self.phases = Phases()
        self._desk = desk
        self._request = request
        self._source = desk.device.generator(request.seed)
        self._started = time.time()

    @property
    def slot_count(self) -> int:
        """Timing rotates over all slots that fit; a check alone needs two."""
        request = self._request
        fitting = slot_count(request.problem, (request.workload, *request.neighbours), self._desk.device.facts)
        return fitting if request.time else min(2, fitting)

    def prepare(self, workload: Workload) -> Ready:
        """Draws, oracles and baselines of the workload itself."""
        problem = self._request.problem
        draws = draw_workload(problem, workload, CHECKED, self._source)
        baselines = Baselines.find(problem).usable_on(draws[0])
        ready = Ready(baselines, prepare(baselines, draws))
        self._desk.device.synchronize()
        return ready

    def run(self, candidate: Candidate, slots: list[Slot], ready: Ready) -> Measured:
        """Everything that needs the candidate's process."""
        with self.phases.phase("load"):
            candidate.load()
            launch_cost = self._launch_cost_ms(candidate)
        with self.phases.phase("check"):
            results = check_all(candidate.call, slots, self._request.problem, ready.draws)
            check = stage(results, ready.baselines.reference_name)
        if check.outcome is Outcome.PASSED:
            ready = replace(ready, draws=proven(ready.draws, results))
        timed = None
        if check.outcome is Outcome.PASSED and self._request.time:
            with self.phases.phase("time"):
                check, timed = self._time(candidate, slots, ready, check, launch_cost)
        if check.outcome is Outcome.PASSED:
            with self.phases.phase("neighbours"):
                check = generalises(check, self._neighbours(candidate, slots, ready.baselines))
        return self.answer(check, timed, candidate)

    def _launch_cost_ms(self, candidate: Candidate) -> float:
        """An empty call's cost, median of `CALIBRATIONS`; each follows work of the judge, as every timed call does."""
        costs = []
        for _ in range(CALIBRATIONS):
            self._desk.device.flush_l2()
            self._desk.device.synchronize()
            costs.append(candidate.empty_call_ms())
        return median(costs)

    def _neighbours(self, candidate: Candidate, slots: list[Slot], baselines: Baselines) -> list[Checked]:
        results: list[Checked] = []
        for workload in self._request.neighbours:
            draws = draw_workload(self._request.problem, workload, NEIGHBOUR, self._source)
            prepared = prepare(baselines.usable_on(draws[0]), draws)
            results += check_all(candidate.call, slots, self._request.problem, prepared)
            if results[-1].record is None:
                break
        return results

    def _time(
        self, candidate: Candidate, slots: list[Slot], ready: Ready, check: CheckStage, launch_cost_ms: float
    ) -> tuple[CheckStage, TimeStage]:
        desk, problem = self._desk, self._request.problem
        if isinstance(desk.meter, Unavailable) or desk.instrument is None:
            return check, _unavailable(desk.meter)
        before = self._state()
        timer = Timer(desk.device, desk.meter, candidate.call_cold)
        try:
            series = timer.run(problem, ready.draws, slots, ready.baselines.libraries, self._request.seed)
            if series.wrong and not series.proven:
                again = check_all(candidate.call, slots, problem, ready.draws * REPEATS)
                unstable = next((result.reason for result in again if result.reason), None)
                if unstable:
                    return _unstable(check, unstable)
        except CandidateFault as fault:
            return _unstable(check, fault_reason(fault))
        except InstrumentError as error:
            reason = Reason(code="instrument_failed", message=f"CUPTI failed in a timed call: {error}.", hint=_REMEDY)
            return check, TimeStage(outcome=Outcome.INCONCLUSIVE, reason=reason, instrument=desk.instrument)
        context = Context(
            problem=problem,
            workload=self._request.workload,
            files=self._request.candidate,
            loaded=candidate.loaded_cubins,
            launch_cost_ms=launch_cost_ms,
            limits=desk.device.facts.limits,
            instrument=desk.instrument,
            states=before + self._state(),
        )
        return check, time_stage(series, ready.baselines, context)

    def _state(self) -> tuple[GpuState, ...]:
        reader = self._desk.reader
        state = None if isinstance(reader, Unavailable) else reader.read()
        return () if state is None else (state,)

    def answer(self, check: CheckStage, timed: TimeStage | None, candidate: Candidate) -> Measured:
        """The reply, after a fault with a look at whether the device survived it."""
        with self.phases.phase("end"):
            candidate.end()
        fatal = "" if check.outcome is Outcome.PASSED else probe(self._desk)
        held = self.phases.seconds
        spans = {"started": self._started, "seconds": held.get("check", 0.0)}
        if timed is not None:
            timed = timed.model_copy(update={"held": held, "started": self._started, "seconds": held.get("time", 0.0)})
        return Measured(
            check=check.model_copy(update=spans),
            time=timed,
            protections=candidate.protections,
            missing_protections=candidate.missing_protections,
            held=held,
            fatal=fatal,
        )


def probe(desk: Desk) -> str:
    """Why the judge must be replaced: its device no longer answers. Empty where it does."""
    if desk.device.answers(PROBE_SECONDS):
        return ""
    return f"the device did not answer within {PROBE_SECONDS:.0f} s after the candidate failed"


def _unstable(check: CheckStage, reason: Reason) -> tuple[CheckStage, TimeStage]:
    """A kernel that passed the check and then failed on the same inputs: the check's answer is withdrawn."""
    message = f"Right at first, then not, on the same inputs: {reason.message}"
    found = reason.model_copy(update={"message": message})
    answer = Layer.yes_or_no(False, message)
    update = {"outcome": outcome_of(found), "reason": found, "published": answer, "contract": answer}
    ended = Reason(code="check_withdrawn", message="The candidate failed while it was timed.")
    return check.model_copy(update=update), TimeStage(outcome=Outcome.NOT_RUN, reason=ended)


def _unavailable(meter: object) -> TimeStage:
    missing = meter if isinstance(meter, Unavailable) else Unavailable(name="cupti", reason="it has no version")
    reason = Reason(code="no_instrument", message=f"{missing.name}: {missing.reason}", hint=missing.remedy)
    return TimeStage(outcome=Outcome.UNAVAILABLE, reason=reason)
