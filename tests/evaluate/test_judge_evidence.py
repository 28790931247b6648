"""Which timings are believed: whose kernels ran, two clocks, the floor; on made-up series."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ptxbench.evaluate.statistics import DeviceLimits
from ptxbench.schema.stages import Outcome, TimeStage
from ptxbench.schema.values import ToolVersion
from ptxbench.suite import load_problem, pick_workload

pytest.importorskip("torch", reason="the judge needs torch, which is an extra")

from ptxbench.evaluate.child.evidence import Context, time_stage
from ptxbench.evaluate.child.instrument import Activity, KernelSpan, SpanResult
from ptxbench.evaluate.child.preparing import Baselines
from ptxbench.evaluate.child.protocol import CandidateFiles
from ptxbench.evaluate.child.timing import SAMPLES, WARM_UPS, Series, Timed, schedule

PROBLEM = load_problem("gemm_n7168_k5120")
CONTEXT = Context(
    problem=PROBLEM,
    workload=pick_workload(PROBLEM, "paper"),
    files=CandidateFiles(library=Path("x"), symbol="run", kernels=("own", "other"), cubin_hashes=("aa",)),
    loaded=("aa",),
    launch_cost_ms=0.01,
    limits=DeviceLimits(9, 132, 1.98e9, 4.8e12),
    instrument=ToolVersion(name="cupti", version="13"),
    states=(),
)


def call(*names: str, milliseconds: float = 1.0, wall: float | None = None, **update: Any) -> Timed:
    length = int(milliseconds * 1e6)
    kernels = tuple(KernelSpan(name, 10, 10 + length, 7, Activity.KERNEL, 0) for name in names)
    spans = SpanResult(10, 10 + length, (0, 10**10), kernels, len(names), 0, 0, 0, 0)
    return Timed(replace(spans, **update), milliseconds if wall is None else wall)


def judged(*calls: Timed, context: Context = CONTEXT) -> TimeStage:
    return time_stage(Series(candidate=list(calls)), Baselines(PROBLEM, (), ()), context)


def test_an_honest_series_gives_numbers() -> None:
    stage = judged(call("own", "other"), call("other", "own", milliseconds=1.01), call("own", "other"))
    assert (stage.outcome, stage.reason) == (Outcome.PASSED, None)
    assert stage.candidate is not None
    assert stage.candidate.median == 1.0
    assert stage.tflops == pytest.approx(601.3, abs=0.1)
    assert stage.floor_ms is not None
    assert stage.roofline_share == pytest.approx(stage.floor_ms)


@pytest.mark.parametrize(
    ("calls", "outcome", "code"),
    [
        ([call("own"), call("own", "cublas")], "cheated", "foreign_kernel"),
        ([call("own"), call()], "cheated", "foreign_kernel"),
        ([call("own", milliseconds=0)], "inconclusive", "faster_than_possible"),
        ([call("own"), call("other")], "inconclusive", "kernels_vary"),
        ([call("own", milliseconds=0.4)], "inconclusive", "faster_than_possible"),
        ([call("own", wall=1.05)], "inconclusive", "timer_disputed"),
        ([call("own", wall=0.9)], "inconclusive", "timer_disputed"),
        ([call("own", dropped=1)], "inconclusive", "lost_records"),
        ([call("own", records=300)], "inconclusive", "lost_records"),
        ([call("own", absurd=1)], "inconclusive", "absurd_records"),
        ([call("own", strays=1)], "inconclusive", "stray_work"),
        ([call("own", nameless=1)], "inconclusive", "nameless_kernels"),
    ],
)
def test_a_series_that_cannot_be_believed_says_why(calls: list[Timed], outcome: str, code: str) -> None:
    stage = judged(*calls)
    assert stage.outcome == outcome
    assert stage.reason is not None
    assert stage.reason.code == code
    assert stage.reason.hint


def test_foreign_kernels_are_listed() -> None:
    assert judged(call("own", "cublas")).foreign_kernels == ("cublas",)


def test_a_cubin_from_elsewhere_is_a_cheat() -> None:
    stage = judged(call("own"), context=replace(CONTEXT, loaded=("aa", "bb")))
    assert stage.outcome is Outcome.CHEATED


def test_copies_and_sets_are_part_of_the_time_and_no_kernels() -> None:
    timed = call("own")
    copy = KernelSpan("", 10, 20, 7, Activity.COPY, 0)
    spans = replace(timed.spans, kernels=(*timed.spans.kernels, copy), records=2)
    assert judged(Timed(spans, timed.wall_ms)).outcome is Outcome.PASSED


def test_the_order_of_calls_is_secret_and_never_repeats_a_slot() -> None:
    turns = schedule(5, draws=4, slots=4)
    assert turns == schedule(5, 4, 4)
    assert turns != schedule(6, 4, 4)
    assert len(turns) == WARM_UPS + SAMPLES
    assert sum(turn.checked for turn in turns) == SAMPLES // 2
    assert not any(turn.checked for turn in turns[:WARM_UPS])
    assert all(a.slot != b.slot for a, b in pairwise(turns))
    assert {turn.draw for turn in turns} == {turn.slot for turn in turns} == {0, 1, 2, 3}
