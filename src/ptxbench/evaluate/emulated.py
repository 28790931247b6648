"""The stages on the emulator: check, findings, profile, witness; the order of them on one page, and no clock.

The same rules as on a GPU decide (`checks`, `outputs`, `rules`); the oracle stands for the library.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.apart.process import Refused
from ptxbench.emulator.apart.rights import version as landlock
from ptxbench.emulator.launch import Policy
from ptxbench.evaluate.checks import HINTS, Untouched, generalises, stage, why_not_right
from ptxbench.evaluate.emulated_findings import findings_stage
from ptxbench.evaluate.emulated_profile import profile_stage
from ptxbench.evaluate.emulated_run import UNDECIDED, UNSUPPORTED, Arrays, Call, Emulation, Program, untouched
from ptxbench.evaluate.emulated_witness import Checked, witnessed
from ptxbench.evaluate.expectations import Recipe, expectations
from ptxbench.evaluate.gpu import GpuStages, Plan, Progress
from ptxbench.evaluate.outputs import Expectation, check_output
from ptxbench.evaluate.rules import NUMPY, Layout
from ptxbench.schema.problem import Problem, Role, Workload
from ptxbench.schema.stages import (
    CheckStage,
    DrawCheck,
    Outcome,
    ProfileStage,
    Reason,
    SanitizeStage,
    TimeStage,
)
from ptxbench.schema.values import Layer, ToolVersion, Unavailable
from ptxbench.schema.verdict import Environment, StageName
from ptxbench.settings import Settings
from ptxbench.suite import draw_inputs, oracle, required_flops

AnyStage = TypeVar("AnyStage", CheckStage, SanitizeStage, ProfileStage)
Thoroughness = Literal["quick", "thorough"]

DEVICE_NAME = "functional, no GPU"
RATE = 1e9
"""Floating-point operations of a tensor-core kernel that are emulated in a second, roughly; for estimates alone."""

_FURTHER = ("eager", "seed 1", "seed 2")
_DRAWS: dict[str, tuple[Recipe, ...]] = {"quick": ("normal",), "thorough": ("normal", "normal", "spiky")}
_PATIENCE = 5.0
"""Device timeouts that one launch of a small workload may take."""

NO_CLOCK = Reason(
    code="no_clock",
    message="the emulator measures no time",
    hint="Give the same command on a machine with a GPU of the target's generation.",
)
NO_LANDLOCK = Unavailable(
    name="landlock",
    reason="the kernel confines no files, so the emulating process can reach those of the user",
    remedy="Use Linux 5.13 or later with Landlock on.",
)


@dataclass(frozen=True)
class _Checked:
    """One draw's result, as `checks.Judged`."""

    record: DrawCheck | None
    reason: Reason | None
    call: Call
    inputs: Arrays
    expected: dict[str, Expectation]


def estimate_seconds(problem: Problem, workload: Workload) -> float:
    """How long one draw of a workload takes here, roughly, for a kernel that uses tensor cores."""
    return required_flops(problem, workload) / RATE


@dataclass(frozen=True)
class EmulatedEvaluator:
    """Judges candidates on the emulator.

    Attributes:
        settings: What the environment decides.
        thoroughness: `quick`: one draw, the whole grid late, further schedules on the first clusters; `thorough`: all
            draws, all schedules whole, races on the first draw, and the other small workloads.
    """

    settings: Settings
    thoroughness: Thoroughness = "quick"

    def run(self, plan: Plan, ptx: Path, wanted: frozenset[StageName], progress: Progress) -> GpuStages:
        """Run the wanted stages.

        Raises:
            ToolError: A tool is missing.
            SandboxError: A process cannot be set up.
        """
        started = time.time()
        progress(StageName.CHECK, "emulating the kernels and comparing with the oracle")
        with Program.load(plan, ptx, self.settings) as program:
            try:
                return self._judge(program, wanted, progress, started)
            except Refused as refused:
                return self._stages(_undecided(Reason(code=UNSUPPORTED, message=refused.what), ()), started)

    def _judge(self, program: Program, wanted: frozenset[StageName], progress: Progress, started: float) -> GpuStages:
        emulation = Emulation(program, program.plan.workload)
        results = self._draws(emulation, _DRAWS[self.thoroughness])
        check = _check(results)
        if check.outcome is Outcome.PASSED and self.thoroughness == "thorough":
            check = generalises(check, self._neighbours(program))
        stages = self._stages(check, started)
        ran = [each for result in results for each in result.call.ran]
        if StageName.SANITIZE in wanted:
            fault = next((result.call.fault for result in results if result.call.fault), None)
            stages = replace(stages, sanitize=self._stamped(findings_stage(ran, fault), time.time()))
        if check.outcome is Outcome.PASSED and StageName.PROFILE in wanted:
            progress(StageName.PROFILE, "spoiling the target's results, to see whether anything needs them")
            stages = replace(stages, profile=self._profile(emulation, results[0]))
        host_code = "live" if emulation.live else "replayed"
        return replace(stages, environment=stages.environment.model_copy(update={"host_code": host_code}))

    def _draws(self, emulation: Emulation, recipes: tuple[Recipe, ...]) -> list[_Checked]:
        """Each draw's result; after one that is not right no more are made."""
        results: list[_Checked] = []
        for recipe in recipes:
            results.append(self._draw(emulation, recipe, first=not results))
            if results[-1].reason is not None:
                break
        return results

    def _draw(self, emulation: Emulation, recipe: Recipe, *, first: bool) -> _Checked:
        problem, workload = emulation.program.plan.problem, emulation.workload
        inputs = draw_inputs(problem, workload, secrets.randbits(63), recipe)
        call = emulation.call(inputs, self._policy(problem, workload, further=first))
        exact = oracle(problem, workload, inputs)
        expected = expectations(NUMPY, problem, workload, recipe, exact, None)
        fault = call.fault
        if fault is not None:
            hinted = fault.model_copy(update={"hint": fault.hint or HINTS.get(fault.code, "")})
            return _Checked(None, hinted, call, inputs, expected)
        with np.errstate(all="ignore"):
            outputs = tuple(check_output(NUMPY, name, call.outputs[name], held) for name, held in expected.items())
        record = DrawCheck(
            workload=workload.uuid, recipe=recipe, outputs=outputs, inputs_unchanged=not call.changed
        )  # beside the tensors nothing is allocated: a write there is an error, so guards need not be looked at
        reason = why_not_right(record, call.changed, lambda name: _kept(call, name))
        return _Checked(record, reason, call, inputs, expected)

    def _neighbours(self, program: Program) -> list[_Checked]:
        own = program.plan.workload
        others = [each for each in program.plan.problem.workloads if each.role is Role.SMALL and each != own]
        return [self._draw(Emulation(program, each), "normal", first=False) for each in others]

    def _policy(self, problem: Problem, workload: Workload, *, further: bool) -> Policy:
        """The first draw runs all schedules; what is asked for beyond the small workloads may take its time."""
        thorough = self.thoroughness == "thorough"
        small = [required_flops(problem, each) for each in problem.workloads if each.role is Role.SMALL]
        growth = max(1.0, required_flops(problem, workload) / max(small, default=1))
        return Policy(
            schedules=("late", *_FURTHER) if further or thorough else ("late",),
            others=0 if thorough else 4,
            races=thorough and further,
            seconds=_PATIENCE * self.settings.device_timeout * growth,
        )

    def _profile(self, emulation: Emulation, first: _Checked) -> ProfileStage:
        started = time.time()
        plan = emulation.program.plan
        profile = profile_stage(first.call.ran, plan.problem, plan.workload, plan.target)
        policy = self._policy(plan.problem, plan.workload, further=False)

        def right(outputs: Arrays) -> bool:
            with np.errstate(all="ignore"):
                return all(_right(outputs[name], held) for name, held in first.expected.items())

        checked = Checked(policy, lambda how, watch: emulation.call(first.inputs, how, watch), right)
        return self._stamped(witnessed(profile, checked), started)

    def _stages(self, check: CheckStage, started: float) -> GpuStages:
        return GpuStages(
            check=self._stamped(check, started),
            sanitize=SanitizeStage(outcome=Outcome.NOT_RUN),
            profile=ProfileStage(outcome=Outcome.NOT_RUN),
            time=TimeStage(outcome=Outcome.UNAVAILABLE, reason=NO_CLOCK),
            environment=Environment(
                device="emulator",
                device_name=DEVICE_NAME,
                tools=(self._instrument,),
                protections=(
                    "processes of their own",
                    "memory and time limits",
                    *(("landlock",) if landlock() else ()),
                ),
                missing_protections=() if landlock() else (NO_LANDLOCK,),
                ptxbench=version("ptxbench"),
            ),
        )

    @property
    def _instrument(self) -> ToolVersion:
        return ToolVersion(name="emulator", version=f"{version('ptxbench')}, {self.thoroughness}")

    def _stamped(self, made: AnyStage, started: float) -> AnyStage:
        update = {"started": started, "seconds": time.time() - started, "instrument": self._instrument}
        return made.model_copy(update=update)


def _check(results: list[_Checked]) -> CheckStage:
    reason = next((result.reason for result in results if result.reason), None)
    if reason is not None and reason.code in UNDECIDED:
        return _undecided(reason, tuple(result.record for result in results if result.record))
    return stage(results, "oracle")


def _undecided(reason: Reason, draws: tuple[DrawCheck, ...]) -> CheckStage:
    open_layer = Layer.unavailable(reason.message)
    outcome = Outcome.UNAVAILABLE if reason.code == UNSUPPORTED else Outcome.INCONCLUSIVE
    return CheckStage(outcome=outcome, reason=reason, draws=draws, published=open_layer, contract=open_layer)


def _right(output: NDArray[Any], held: Expectation) -> bool:
    """Whether what was written of an output keeps the published rule, and something was."""
    elements, kept = untouched(output)
    written = np.where(kept, held.reference.astype(output.dtype), output) if elements else output
    return elements < output.size and check_output(NUMPY, "", written, held).published


def _kept(call: Call, name: str) -> Untouched:
    output = call.outputs[name]
    elements, kept = untouched(output)
    layout = Layout.of(output.shape)
    rows = int(kept.reshape(-1, layout.columns).any(axis=1).sum())
    return Untouched(elements, rows, layout.heads * layout.rows)
