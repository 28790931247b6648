"""The order of the stages, on one page: policy, build, inspect anywhere; check, time, sanitize, profile on a device.

What a stage does stands in its own module; what follows from the results stands in `schema.verdict`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from ptxbench.evaluate.devices import Choice, choose_device, list_gpus
from ptxbench.evaluate.emulated import EmulatedEvaluator, Thoroughness
from ptxbench.evaluate.gpu import GpuEvaluator, GpuStages, Plan, Progress
from ptxbench.evaluate.inspection import inspect_code
from ptxbench.evaluate.policy import binary_policy, source_policy
from ptxbench.evaluate.recording import HostMode
from ptxbench.evaluate.sanitizer import Tool
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.stages import CheckStage, InspectStage, Outcome, PolicyStage, Reason
from ptxbench.schema.values import Target, ToolVersion
from ptxbench.schema.verdict import Environment, StageName, Stages, Verdict
from ptxbench.settings import Settings
from ptxbench.suite import problem_hash
from ptxbench.toolchain.build import build
from ptxbench.toolchain.toolkit import find_toolkit

REFUSED = (Outcome.FAILED, Outcome.CHEATED)
ON_DEVICE = frozenset({StageName.CHECK, StageName.SANITIZE, StageName.PROFILE, StageName.TIME})


def _silent(stage: StageName, text: str) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class EvaluationRequest:
    """How to evaluate.

    Attributes:
        target: The architecture to build for.
        device: `auto`, `cuda:N`, `emulator` or `none`.
        until: The last stage to run; None runs them all.
        skip: Stages to leave out.
        progress: Called as stages begin.
        sanitizers: Tools of compute-sanitizer to run.
        thoroughness: How much the emulator runs: `quick` or `thorough`.
        host: On a GPU, whether host code is replayed: `auto` (else it runs live), `replay` (else it is not judged),
            `live` (it runs in every call).
        settings: What the environment decides.
    """

    target: Target = Target.SM_90A
    device: str = "auto"
    until: StageName | None = None
    skip: frozenset[StageName] = frozenset()
    progress: Progress = _silent
    sanitizers: tuple[Tool, ...] = ("memcheck",)
    thoroughness: Thoroughness = "quick"
    host: HostMode = "auto"
    settings: Settings = field(default_factory=Settings.load)

    def wants(self, stage: StageName) -> bool:
        """Whether this stage was asked for."""
        order = list(StageName)
        return stage not in self.skip and (self.until is None or order.index(stage) <= order.index(self.until))


@dataclass(frozen=True)
class _Static:
    """What the stages that need no device left."""

    stages: Stages
    library: Path | None
    ptx: Path | None = None

    @property
    def ended(self) -> bool:
        """Whether a stage refused the candidate, so that no device needs to be asked."""
        results = (self.stages.policy, self.stages.build, self.stages.inspect)
        return any(stage.outcome in REFUSED for stage in results)


def evaluate(
    candidate: Candidate,
    problem: Problem,
    workload: Workload,
    request: EvaluationRequest | None = None,
    gpu: GpuEvaluator | None = None,
) -> Verdict:
    """Judge one candidate on one workload.

    `gpu` is a warm evaluator to reuse for many candidates; without it, one is started for this call where a device is
    needed.

    Raises:
        PtxbenchError: A tool, the device or the harness is at fault; never the candidate.
    """
    request = request or EvaluationRequest()
    choice = choose(request, gpu)
    request.progress(StageName.POLICY, f"the device is {choice.name}: {choice.reason}")
    static = _static_stages(candidate, problem, request)
    stages, environment = static.stages, Environment(device=choice.name, ptxbench=version("ptxbench"))
    there = choice.gpu is not None or choice.emulated
    if static.library is not None and not static.ended and there and any(map(request.wants, ON_DEVICE)):
        plan = Plan(candidate, problem, workload, request.target, static.library, request.host)
        results = _emulated(plan, static, request) if choice.emulated else _on_gpu(plan, request, choice, gpu)
        stages = _merge(stages, results)
        environment = results.environment
    elif not static.ended:
        ended = Reason(code="ended_early", message=f"Nothing ran on a device: {_why_no_device(request, choice)}.")
        stages = stages.model_copy(update={"check": CheckStage(outcome=Outcome.NOT_RUN, reason=ended)})
    tools = (*environment.tools, *_build_tools(request.settings))
    return Verdict(
        candidate=candidate.id,
        candidate_name=candidate.name,
        problem=problem.name,
        problem_hash=problem_hash(problem),
        workload=workload.uuid,
        axes=problem.axis_values(workload),
        target=request.target,
        environment=environment.model_copy(update={"tools": tools}),
        stages=stages,
        families=problem.families[request.target],
        created=time.time(),
    )


def _static_stages(candidate: Candidate, problem: Problem, request: EvaluationRequest) -> _Static:
    """Policy, build and inspect: the stages that any machine can do."""
    stages = Stages()
    if request.wants(StageName.POLICY):
        request.progress(StageName.POLICY, "reading the source")
        stages = Stages(policy=source_policy(candidate, problem))
        if stages.policy.outcome is not Outcome.PASSED:
            return _Static(stages, None)
    if not request.wants(StageName.BUILD):
        return _Static(stages, None)
    request.progress(StageName.BUILD, f"compiling for {request.target.value}")
    built = build(candidate, request.target, request.settings)
    stages = stages.model_copy(update={"build": built.stage})
    if built.library is None:
        return _Static(stages, None)
    if request.wants(StageName.POLICY):
        request.progress(StageName.POLICY, "reading what the binary imports and contains")
        toolkit = find_toolkit(request.settings)
        binary = binary_policy(built.library, candidate, problem, request.target, toolkit)
        stages = stages.model_copy(update={"policy": _join(stages.policy, binary)})
    if stages.policy.outcome in REFUSED or not request.wants(StageName.INSPECT):
        return _Static(stages, built.library, built.ptx)
    request.progress(StageName.INSPECT, "counting opcodes")
    inspected: InspectStage = inspect_code(built.library, request.target, request.settings)
    return _Static(stages.model_copy(update={"inspect": inspected}), built.library, built.ptx)


def _join(source: PolicyStage, binary: PolicyStage) -> PolicyStage:
    """One policy result of the early look at the source and the deciding look at the binary."""
    update = {
        "findings": source.findings + binary.findings,
        "started": source.started,
        "seconds": source.seconds + binary.seconds,
    }
    return binary.model_copy(update=update)


def choose(request: EvaluationRequest, gpu: GpuEvaluator | None = None) -> Choice:
    """The device that a request leads to on this machine.

    Raises:
        DeviceError: The device that was asked for is absent or does not fit the target.
    """
    if gpu is not None:
        return choose_device(f"cuda:{gpu.gpu.ordinal}", request.target, (gpu.gpu,))
    if request.device in ("none", "emulator"):
        return choose_device(request.device, request.target, ())
    return choose_device(request.device, request.target, list_gpus(request.settings))


def _why_no_device(request: EvaluationRequest, choice: Choice) -> str:
    if choice.gpu or choice.emulated:
        return f"the evaluation was asked to end after {request.until}"
    return choice.reason


def _emulated(plan: Plan, static: _Static, request: EvaluationRequest) -> GpuStages:
    assert static.ptx is not None
    wanted = frozenset(stage for stage in ON_DEVICE if request.wants(stage))
    evaluator = EmulatedEvaluator(request.settings, request.thoroughness)
    return evaluator.run(plan, static.ptx, wanted, request.progress)


def _on_gpu(plan: Plan, request: EvaluationRequest, choice: Choice, gpu: GpuEvaluator | None) -> GpuStages:
    wanted = frozenset(stage for stage in ON_DEVICE if request.wants(stage))
    if gpu is not None:
        return gpu.run(plan, wanted, request.sanitizers, request.progress)
    assert choice.gpu is not None
    request.progress(StageName.CHECK, f"starting the judge on {choice.name} ({choice.gpu.name})")
    with GpuEvaluator.start(choice.gpu, request.settings) as evaluator:
        return evaluator.run(plan, wanted, request.sanitizers, request.progress)


def _merge(stages: Stages, results: GpuStages) -> Stages:
    update = {
        "check": results.check,
        "sanitize": results.sanitize,
        "profile": results.profile,
        "time": results.time,
    }
    return stages.model_copy(update=update)


def _build_tools(settings: Settings) -> tuple[ToolVersion, ...]:
    toolkit = find_toolkit(settings)
    return (ToolVersion(name="nvcc", version=toolkit.version, path=str(toolkit.nvcc)),)
