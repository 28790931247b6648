"""Kernels judged once more: what they are now stands beside what was stored."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.report.making import GEMM, StoredVerdicts, make_recorded_run, source_of, stored_verdict

from ptxbench.records.read import read_run
from ptxbench.report.judging_again import choose, judge_again
from ptxbench.suite import load_problem

NAMES = ("wrong-skipped_k", "simple-gemm_mma", "reference-gemm_n7168_k5120")


def test_a_kernel_that_fails_now_is_a_difference_and_the_others_are_none(tmp_path: Path) -> None:
    trajectories = list(read_run(make_recorded_run(tmp_path / "run", *NAMES)).trajectories())
    verdicts = {source_of(name).strip(): stored_verdict(name) for name in NAMES}
    verdicts[source_of("simple-gemm_mma").strip()] = stored_verdict("wrong-skipped_k")
    chosen = choose(trajectories, 10, "cuda:0", seed=1)
    assert len(chosen) == 3
    (found,) = asyncio.run(judge_again(trajectories, chosen, {GEMM: load_problem(GEMM)}, StoredVerdicts(verdicts)))
    assert "turn 1" in found.where
    assert (found.what, found.stored, found.follows) == ("status", "passed", "failed at check")


def test_a_kernel_is_judged_on_the_kind_of_device_that_judged_it(tmp_path: Path) -> None:
    trajectories = list(read_run(make_recorded_run(tmp_path / "run", *NAMES)).trajectories())
    assert choose(trajectories, 10, "emulator", seed=1) == ()
    assert choose(trajectories, 2, "cuda:1", seed=1) == choose(trajectories, 2, "cuda:1", seed=1)
