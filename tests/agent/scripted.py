"""Scripted doubles of a run's means: a model that says what it is told to, an evaluator that judges by a word."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ptxbench.agent.ask import Request
from ptxbench.agent.session import Session
from ptxbench.errors import DeviceError
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.stages import (
    BaselineTime,
    BuildStage,
    CheckStage,
    Outcome,
    PolicyStage,
    ProfileStage,
    Reason,
    Samples,
    SanitizeStage,
    TimeStage,
    WorkShare,
)
from ptxbench.schema.turn import Answer, RunPlan, SampleKey, Trajectory, Usage
from ptxbench.schema.values import Layer, Target
from ptxbench.schema.verdict import Environment, Stages, Verdict
from ptxbench.suite import load_problem, pick_workload, problem_hash

PROBLEM = "gemm_n7168_k5120"
SOURCE = """#include <tvm/ffi/function.h>
// {word}
void run(tvm::ffi::TensorView a) {{}}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""
USAGE = Usage(input_tokens=100, output_tokens=50, reasoning_tokens=20, cost=0.01)


def said(word: str, stop: str = "stop") -> Answer:
    """An answer with a kernel of which the scripted evaluator makes what `word` says."""
    text = f"Here it is.\n\n```cuda\n{SOURCE.format(word=word)}```\n"
    return Answer.model_validate({"text": text, "stop": stop, "usage": USAGE, "seconds": 1.0})


def plan_of(trajectories: int = 1, **changes: object) -> RunPlan:
    """A plan for one problem on the emulator without a pack."""
    workload = pick_workload(load_problem(PROBLEM), "small").uuid
    keys = tuple(
        SampleKey(problem=PROBLEM, workload=workload, target=Target.SM_90A, pack="none", number=number)
        for number in range(trajectories)
    )
    base: dict[str, object] = {"model": "scripted", "keys": keys, "turns": 4, "device": "emulator", "tasks": (PROBLEM,)}
    return RunPlan.model_validate(base | changes)


def open_session(plan: RunPlan, folder: Path | None = None) -> Session:
    """A session for `plan_of`."""
    return Session.open(plan, {PROBLEM: load_problem(PROBLEM)}, folder)


class ScriptedModel:
    """Gives its answers in their order, for each trajectory, and keeps the requests."""

    def __init__(self, *answers: Answer | BaseException) -> None:
        self.answers = answers
        self.requests: list[Request] = []

    async def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        said_before = sum(each.key == request.key for each in self.requests) - 1
        answer = self.answers[min(said_before, len(self.answers) - 1)]
        if isinstance(answer, BaseException):
            raise answer
        return answer


class WordEvaluator:
    """Judges a kernel by the words in it: `wrong`, `broken`, `fast 1.3`, `own work`, `fault`; else it is right."""

    def __init__(self, *, device: str = "cuda:0", before: Callable[[], None] = lambda: None, faults: int = 0) -> None:
        self.device = device
        self.before = before
        self.faults = faults
        self.candidates: list[Candidate] = []

    async def evaluate(self, problem: Problem, workload: Workload, candidate: Candidate) -> Verdict:
        self.before()
        await asyncio.sleep(0)  # where an interrupt arrives
        self.candidates.append(candidate)
        source = candidate.entry_source
        if "fault" in source and self.faults > 0:
            self.faults -= 1
            raise DeviceError("The device is gone.", "Plug it in.")
        stages = _stages(source)
        return Verdict(
            candidate=candidate.id,
            candidate_name=candidate.name,
            problem=problem.name,
            problem_hash=problem_hash(problem),
            workload=workload.uuid,
            axes=problem.axis_values(workload),
            target=Target.SM_90A,
            environment=Environment(device=self.device),
            stages=stages,
            families=("GMMA", "TMA"),
            created=time.time(),
        )


def _stages(source: str) -> Stages:
    policy = PolicyStage(outcome=Outcome.PASSED)
    if "broken" in source:
        reason = Reason(code="compile_error", message="It does not compile.")
        return Stages(policy=policy, build=BuildStage(outcome=Outcome.FAILED, reason=reason))
    build = BuildStage(outcome=Outcome.PASSED)
    if "wrong" in source:
        reason = Reason(code="wrong_numbers", message="The numbers are wrong.")
        return Stages(policy=policy, build=build, check=CheckStage(outcome=Outcome.FAILED, reason=reason))
    share = 1.0 if "own work" in source else 0.0
    work = WorkShare(target_mma=share, tma=share, other_mma=1 - share, excessive=False)
    return Stages(
        policy=policy,
        build=build,
        check=CheckStage(outcome=Outcome.PASSED, contract=Layer.yes_or_no(True), published=Layer.yes_or_no(True)),
        sanitize=SanitizeStage(outcome=Outcome.PASSED),
        profile=ProfileStage(outcome=Outcome.PASSED, executed=Layer.yes_or_no(share > 0), work=work),
        time=_time(source),
    )


def _time(source: str) -> TimeStage:
    if "fast" not in source:
        return TimeStage(outcome=Outcome.NOT_RUN)
    speedup = float(source.partition("fast ")[2].split()[0])
    samples = Samples(milliseconds=(1.0,), median=1.0)
    library = BaselineTime(
        name="cublas", version="1", published_version="1", samples=samples, speedup=speedup, interval=(speedup, speedup)
    )
    return TimeStage(outcome=Outcome.PASSED, baselines=(library,))


def words(trajectory: Trajectory) -> Sequence[str]:
    """The states of a trajectory's turns."""
    return [turn.state.value for turn in trajectory.turns]
