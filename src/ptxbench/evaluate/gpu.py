"""The stages that need a GPU: check and time in one process, then sanitize, then profile; compares nothing itself.

Time follows check in the same candidate process because a context costs 0.1-0.3 s of GPU; the verdict reports them in
the order of `StageName`. The judge process does the work; this module asks it and reads the tools' reports.
"""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

from ptxbench.emulator.host.device import HostDevice
from ptxbench.evaluate.child.protocol import CandidateFiles, Measure, Measured, Wrapped, WrappedRun
from ptxbench.evaluate.devices import Gpu
from ptxbench.evaluate.hosting import Host, choose_host
from ptxbench.evaluate.judge_client import Judge
from ptxbench.evaluate.profiler import ncu_command, profile_stage, profile_unavailable, read_report, same_launches
from ptxbench.evaluate.recording import HostMode, Subject
from ptxbench.evaluate.sanitizer import Tool, sanitize_stage, sanitizer_command, sanitizer_missing, sanitizer_run
from ptxbench.evaluate.statistics import WITNESS_SHARE, witness
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem, Role, Workload
from ptxbench.schema.stages import CheckStage, Outcome, ProfileStage, Reason, SanitizeStage, TimeStage
from ptxbench.schema.values import Layer, Target, Unavailable
from ptxbench.schema.verdict import Environment, StageName
from ptxbench.settings import Settings
from ptxbench.toolchain.elf import cubins
from ptxbench.toolchain.toolkit import find_ncu, find_sanitizer, find_toolkit

Progress = Callable[[StageName, str], None]
"""Told each stage's name as it begins, and a word about it."""

CALL_SECONDS = 5.0
"""A call that takes longer counts as hung: the slowest honest kernels of the suite take tenths of a second."""

MEASURE_SECONDS = 180.0
"""Bound of one whole measurement, as the judge bounds every call in it."""

GRACE_SECONDS = 30.0
"""What the judge may add to a tool's own deadline for preparing inputs and comparing outputs."""


@dataclass(frozen=True)
class Plan:
    """What is to be judged."""

    candidate: Candidate
    problem: Problem
    workload: Workload
    target: Target
    library: Path
    host: HostMode = "auto"
    """Whether its host code is replayed or runs in every call."""

    @property
    def neighbours(self) -> tuple[Workload, ...]:
        """The workloads that are checked besides."""
        return tuple(w for w in self.problem.workloads if w.role is Role.NEIGHBOUR and w != self.workload)


@dataclass(frozen=True)
class GpuStages:
    """What the GPU's stages found."""

    check: CheckStage
    sanitize: SanitizeStage
    profile: ProfileStage
    time: TimeStage
    environment: Environment


@dataclass(frozen=True)
class _Files:
    """The built candidate, as the judge needs to know it."""

    files: CandidateFiles
    kernels: frozenset[str]
    host: Host

    def live(self, reason: Reason | None) -> _Files:
        """The same candidate with its host code running, because its replay failed for this reason."""
        files = self.files.model_copy(update={"program": None})
        return replace(self, files=files, host=self.host.after_failure(reason.code if reason else ""))


@dataclass
class GpuEvaluator:
    """A warm evaluator: one judge process on one GPU, for any number of candidates, one at a time.

    A judge that broke with its device is replaced before the next candidate (E14).
    """

    gpu: Gpu
    settings: Settings
    judge: Judge

    @classmethod
    def start(cls, gpu: Gpu, settings: Settings) -> GpuEvaluator:
        """Start the judge.

        Raises:
            DeviceError: It did not come up.
        """
        return cls(gpu, settings, Judge.start(settings, gpu.ordinal))

    def run(
        self, plan: Plan, wanted: frozenset[StageName], sanitizers: tuple[Tool, ...], progress: Progress
    ) -> GpuStages:
        """Run the wanted stages; a stage whose candidate did not pass the check before it is not run.

        Raises:
            DeviceError: The judge or the device failed, not the candidate.
        """
        with tempfile.TemporaryDirectory(prefix="ptxbench-replay-") as name:
            progress(StageName.CHECK, "recording what the host code asks for")
            built = self._built(plan, Path(name))
            if built.host.refused:
                return self._refused(built.host)
            return self._stages(plan, built, wanted, sanitizers, progress)

    def _stages(
        self, plan: Plan, built: _Files, wanted: frozenset[StageName], sanitizers: tuple[Tool, ...], progress: Progress
    ) -> GpuStages:
        timed = StageName.TIME in wanted
        progress(StageName.CHECK, "comparing with the oracle and the library" + (", timing" if timed else ""))
        measured = self._measure(plan, built, timed)
        if measured.check.outcome is not Outcome.PASSED and built.host.doubtful:
            built = built.live(measured.check.reason)
            measured = self._measure(plan, built, timed)
        passed = measured.check.outcome is Outcome.PASSED
        sanitize, profile = SanitizeStage(outcome=Outcome.NOT_RUN), ProfileStage(outcome=Outcome.NOT_RUN)
        if passed and StageName.SANITIZE in wanted:
            progress(StageName.SANITIZE, ", ".join(sanitizers))
            sanitize = self._sanitize(plan, built, sanitizers)
        if passed and StageName.PROFILE in wanted:
            progress(StageName.PROFILE, "counting executed instructions")
            profile = self._profile(plan, built)
        clock = measured.time or TimeStage(outcome=Outcome.NOT_RUN)
        return GpuStages(
            check=measured.check,
            sanitize=sanitize,
            profile=same_launches(profile, clock),
            time=second_witness(clock, profile),
            environment=self._environment(built.host, measured),
        )

    def _built(self, plan: Plan, folder: Path) -> _Files:
        found = cubins(plan.library, find_toolkit(self.settings))
        symbol = plan.candidate.entry_symbol
        device = HostDevice(plan.target, self.judge.hello.sm_count)
        subject = Subject(plan.library, symbol, found, plan.problem, device)
        host = choose_host(plan.host, subject, (plan.workload, *plan.neighbours), self.settings, folder)
        names = tuple(name for cubin in found for name in cubin.kernels)
        files = CandidateFiles(
            library=plan.library,
            symbol=symbol,
            kernels=names,
            cubin_hashes=tuple(cubin.sha256 for cubin in found),
            program=host.program,
        )
        return _Files(files, frozenset(names), host)

    def _refused(self, host: Host) -> GpuStages:
        """The stages of a candidate that may only be replayed and cannot be."""
        hint = "Give `--host auto` to let its host code run."
        reason = Reason(code="not_replayable", message=f"It cannot be replayed: {host.reason}.", hint=hint)
        answer = Layer.unavailable(reason.message)
        return GpuStages(
            check=CheckStage(outcome=Outcome.UNAVAILABLE, reason=reason, published=answer, contract=answer),
            sanitize=SanitizeStage(outcome=Outcome.NOT_RUN),
            profile=ProfileStage(outcome=Outcome.NOT_RUN),
            time=TimeStage(outcome=Outcome.NOT_RUN),
            environment=self._environment(host, None),
        )

    def _measure(self, plan: Plan, built: _Files, timed: bool) -> Measured:
        if not self.judge.alive:
            self.judge = Judge.start(self.settings, self.gpu.ordinal)
        request = Measure(
            problem=plan.problem,
            workload=plan.workload,
            neighbours=plan.neighbours,
            seed=secrets.randbits(63),
            candidate=built.files,
            time=timed,
            deadline=CALL_SECONDS,
        )
        return self.judge.measure(request, MEASURE_SECONDS)

    def _wrapped(self, plan: Plan, built: _Files, wrapper: tuple[str, ...], *, staged: bool) -> WrappedRun:
        """Run under a tool: `staged` for memory checkers; a profiler keeps the rights to read counters instead."""
        seconds = self.settings.device_timeout
        request = Wrapped(
            problem=plan.problem,
            workload=plan.workload,
            seed=secrets.randbits(63),
            candidate=built.files,
            wrapper=wrapper,
            staged=staged,
            keep_root=not staged,
            deadline=seconds,
        )
        return self.judge.wrapped(request, seconds + GRACE_SECONDS)

    def _sanitize(self, plan: Plan, built: _Files, tools: tuple[Tool, ...]) -> SanitizeStage:
        started = time.time()
        found = find_sanitizer(self.settings)
        runs = []
        for tool in tools:
            if isinstance(found, Unavailable):
                runs.append(sanitizer_missing(tool, found))
                continue
            with tempfile.TemporaryDirectory(prefix="ptxbench-sanitize-") as name:
                report, log = Path(name) / "report.xml", Path(name) / "log.txt"
                run = self._wrapped(plan, built, sanitizer_command(Path(found.path), tool, report, log), staged=True)
                runs.append(sanitizer_run(tool, run, report))
        instrument = None if isinstance(found, Unavailable) else found
        stage = sanitize_stage(runs)
        return stage.model_copy(update={"started": started, "seconds": time.time() - started, "instrument": instrument})

    def _profile(self, plan: Plan, built: _Files) -> ProfileStage:
        started = time.time()
        found = find_ncu(self.settings)
        if isinstance(found, Unavailable):
            return profile_unavailable(found)
        tool = Path(found.path)
        with tempfile.TemporaryDirectory(prefix="ptxbench-profile-") as name:
            report, log = Path(name) / "report.ncu-rep", Path(name) / "log.txt"
            run = self._wrapped(plan, built, ncu_command(tool, report, log, plan.target), staged=False)
            launches = read_report(tool, report, log, self.settings.device_timeout)
        if isinstance(launches, Unavailable):
            stage = profile_unavailable(launches)
        else:
            parts = (launches, built.kernels, plan.problem, plan.workload, plan.target, run.outputs_right)
            stage = profile_stage(*parts)
        return stage.model_copy(update={"started": started, "seconds": time.time() - started, "instrument": found})

    def _environment(self, host: Host, measured: Measured | None) -> Environment:
        hello = self.judge.hello
        return Environment(
            device=f"cuda:{self.gpu.ordinal}",
            device_name=hello.device_name,
            gpu_uuid=hello.gpu_uuid,
            driver=hello.driver,
            tools=hello.tools,
            protections=measured.protections if measured else (),
            missing_protections=measured.missing_protections if measured else (),
            host_code=host.name,
            ptxbench=version("ptxbench"),
        )

    def close(self) -> None:
        """End the judge."""
        self.judge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def second_witness(clock: TimeStage, profile: ProfileStage) -> TimeStage:
    """The time stage with the profiler's own clock as a further witness (E22).

    The profiler adds up the durations of the call's kernels, so of several kernels it may read less than their span.
    """
    times = [kernel.gpu_time_ms for kernel in profile.kernels if kernel.own]
    if clock.candidate is None or clock.outcome is not Outcome.PASSED or not times or None in times:
        return clock
    instrument = clock.candidate.median
    allowance = max((w.allowance_ms for w in clock.witnesses), default=WITNESS_SHARE * instrument)
    reading = sum(value for value in times if value is not None)
    seen = witness("ncu_gpu_time", instrument, reading, allowance - WITNESS_SHARE * instrument)
    if len(times) > 1 and reading < instrument:
        seen = seen.model_copy(update={"agrees": True})  # the gaps between kernels belong to the span
    update: dict[str, object] = {"witnesses": (*clock.witnesses, seen)}
    if not seen.agrees:
        message = f"ncu reads {reading:.4f} ms where CUPTI read {clock.candidate.median:.4f} ms."
        update["outcome"] = Outcome.INCONCLUSIVE
        update["reason"] = Reason(code="timer_disputed", message=message, hint="Run `ptxbench doctor`.")
    return clock.model_copy(update=update)
