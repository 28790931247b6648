"""This machine's evaluator holds the device for one candidate at a time, and only for what compiles."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any, cast

import pytest

from ptxbench.errors import DeviceError, ToolError
from ptxbench.evaluate import local
from ptxbench.evaluate.gpu import GpuEvaluator
from ptxbench.evaluate.local import LocalEvaluator
from ptxbench.evaluate.pipeline import EvaluationRequest
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.stages import BuildStage, CheckStage, Outcome, PolicyStage, Reason, SanitizeStage
from ptxbench.schema.values import Target
from ptxbench.schema.verdict import Environment, StageName, Stages, State, Verdict
from ptxbench.suite import load_problem, pick_workload

PROBLEM = load_problem("gemm_n7168_k5120")
SMALL = pick_workload(PROBLEM, "small")


class Watched:
    """In the place of the pipeline: counts who is at work at once, in compiling and on the device."""

    def __init__(self) -> None:
        self.at_work = {"compiling": 0, "device": 0}
        self.most = dict(self.at_work)
        self.calls = {"compiling": 0, "device": 0}
        self._lock = threading.Lock()

    def evaluate(
        self, candidate: Candidate, problem: Problem, workload: Workload, request: EvaluationRequest, gpu: object
    ) -> Verdict:
        where = "compiling" if request.until is StageName.BUILD else "device"
        with self._lock:
            self.calls[where] += 1
            self.at_work[where] += 1
            self.most[where] = max(self.most[where], self.at_work[where])
        time.sleep(0.01)
        with self._lock:
            self.at_work[where] -= 1
        if "tool is gone" in candidate.entry_source:
            raise ToolError("nvcc is gone.", "Install it.")
        broken = "broken" in candidate.entry_source
        build = BuildStage(
            outcome=Outcome.FAILED if broken else Outcome.PASSED,
            reason=Reason(code="compile_error", message="no") if broken else None,
        )
        passed = Outcome.PASSED if where == "device" else Outcome.NOT_RUN
        stages = Stages(
            policy=PolicyStage(outcome=Outcome.PASSED),
            build=build,
            check=CheckStage(outcome=passed),
            sanitize=SanitizeStage(outcome=passed),
        )
        return Verdict(
            candidate=candidate.id,
            problem=problem.name,
            problem_hash="p",
            workload=workload.uuid,
            axes={},
            target=Target.SM_90A,
            environment=Environment(device="cuda:0"),
            stages=stages,
            families=(),
            created=1.0,
        )


def judged(watched: Watched, monkeypatch: pytest.MonkeyPatch, *sources: str) -> list[Any]:
    """The verdicts, or faults, of candidates that are handed in at once to an evaluator with a GPU."""
    monkeypatch.setattr(local, "evaluate", watched.evaluate)

    async def judge() -> list[Any]:
        evaluator = LocalEvaluator(EvaluationRequest(), "cuda:0", cast(GpuEvaluator, object()), asyncio.Semaphore(2))
        candidates = [Candidate.from_source(source) for source in sources]
        work = [evaluator.evaluate(PROBLEM, SMALL, candidate) for candidate in candidates]
        return await asyncio.gather(*work, return_exceptions=True)

    return asyncio.run(judge())


def test_a_gpu_judges_one_candidate_at_a_time_while_others_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    verdicts = judged(watched, monkeypatch, *(f"// {number}" for number in range(8)))
    assert [verdict.status.state for verdict in verdicts] == [State.PASSED] * 8
    assert watched.most["device"] == 1
    assert watched.most["compiling"] <= 2


def test_what_does_not_compile_never_holds_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    (verdict,) = judged(watched, monkeypatch, "broken")
    assert verdict.status.stage is StageName.BUILD
    assert watched.calls == {"compiling": 1, "device": 0}


def test_a_fault_of_the_harness_is_raised_where_the_verdict_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    fault, verdict = judged(Watched(), monkeypatch, "tool is gone", "right")
    assert isinstance(fault, ToolError)
    assert verdict.status.state is State.PASSED


def test_a_device_that_is_absent_is_an_error_before_any_candidate() -> None:
    with pytest.raises(DeviceError, match="cuda:63"):
        LocalEvaluator.open(EvaluationRequest(device="cuda:63"))


def test_the_emulator_refuses_a_source_without_run_in_a_verdict() -> None:
    evaluator = LocalEvaluator.open(EvaluationRequest(device="emulator"))
    verdict = asyncio.run(evaluator.evaluate(PROBLEM, SMALL, Candidate.from_source("int x;\n")))
    evaluator.close()
    assert (evaluator.device, verdict.status.state, verdict.status.stage) == (
        "emulator",
        State.FAILED,
        StageName.POLICY,
    )
