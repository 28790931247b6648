"""The judge's conversation with the evaluator: one answer per line, whatever happens; nothing is measured here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import DeviceError
from ptxbench.schema.problem import Baseline
from ptxbench.schema.stages import CheckStage, Outcome
from ptxbench.schema.values import Unavailable
from ptxbench.suite import load_problem, pick_workload

pytest.importorskip("torch", reason="the judge needs torch, which is an extra")

from ptxbench.evaluate.child import judge, protocol
from ptxbench.evaluate.child.gpu_state import open_reader, throttle_reasons
from ptxbench.evaluate.child.preparing import Baselines

PASSED = protocol.Measured(
    check=CheckStage(outcome=Outcome.PASSED), time=None, protections=(), missing_protections=(), held={}
)


class Desk:
    """A machine of which the judge only asks whether it still answers."""

    def __init__(self, alive: bool) -> None:
        self.device = self
        self._alive = alive

    def answers(self, seconds: float) -> bool:
        return self._alive


def order() -> bytes:
    problem = load_problem("gemm_n7168_k5120")
    files = protocol.CandidateFiles(library=Path("x.so"), symbol="run", kernels=("k",), cubin_hashes=("00",))
    body = protocol.Measure(
        problem=problem, workload=pick_workload(problem, "small"), seed=1, candidate=files, time=False, deadline=1
    )
    return protocol.Request(body=body).model_dump_json().encode() + b"\n"


def conversation(monkeypatch: pytest.MonkeyPatch, results: list[Any], lines: bytes, alive: bool = True) -> list[Any]:
    """What the judge answers to these lines when its measurements end as given."""

    def measure(desk: Any, request: Any) -> Any:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    monkeypatch.setattr(judge, "measure", measure)
    desk: Any = Desk(alive)
    requests, replies = os.pipe(), os.pipe()
    os.write(requests[1], lines)
    os.close(requests[1])
    judge.serve(desk, judge.Channel(requests[0], replies[1]))
    os.close(replies[1])
    with os.fdopen(replies[0], "rb") as answers:
        return [protocol.Reply.model_validate_json(line).body for line in answers]


def test_a_measurement_comes_back_as_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    assert conversation(monkeypatch, [PASSED], order()) == [PASSED]


def test_the_judge_survives_its_own_faults_and_unreadable_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    faults = [RuntimeError("out of memory"), DeviceError("No room.", "Free some.")]
    first, second, third, last = conversation(monkeypatch, [*faults, PASSED], order() * 2 + b"{}\n" + order())
    assert "out of memory" in first.what
    assert (second.what, second.remedy) == ("No room.", "Free some.")
    assert "cannot read" in third.what
    assert not any(answer.fatal for answer in (first, second, third))
    assert last == PASSED


def test_the_judge_ends_when_its_device_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    (answer,) = conversation(monkeypatch, [RuntimeError("unspecified launch failure"), PASSED], order() * 2, False)
    assert answer.fatal


def test_the_judge_ends_after_a_candidate_that_broke_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = PASSED.model_copy(update={"fatal": "the device did not answer"})
    assert conversation(monkeypatch, [broken, PASSED], order() * 2) == [broken]


def test_baselines_say_why_they_are_missing() -> None:
    problem = load_problem("gemm_n7168_k5120")
    assert problem.baselines == (Baseline(name="cublas", published_version="13.1.0"),)
    other = problem.model_copy(update={"baselines": (Baseline(name="flashinfer", published_version="0"),)})
    found = Baselines.find(other)
    assert (found.libraries, found.reference, found.reference_name) == ((), None, "oracle")
    assert found.missing[0].code == "flashinfer_unavailable"
    assert "pip install flashinfer-python" in found.missing[0].hint


def test_throttle_reasons_are_named_and_a_machine_without_nvml_says_so() -> None:
    assert throttle_reasons(0x4 | 0x40 | 0x1) == ("power cap", "hardware thermal slowdown")
    assert throttle_reasons(0) == ()
    found = open_reader("GPU-of-no-machine")
    assert isinstance(found, Unavailable)
    assert found.remedy
