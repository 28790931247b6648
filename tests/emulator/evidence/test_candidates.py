"""Honest kernels of the repository, host code included, give the oracle's results on the emulator and nothing is found.

The sizes are smaller than the workloads', so that this stays quick; they are ragged wherever the kernel allows it.
"""

from __future__ import annotations

import pytest
from tests.emulator.evidence.bench import KERNELS
from tests.emulator.evidence.candidate import REFERENCE, Run, run_candidate, small_gemm

from ptxbench.emulator.launch import Policy
from ptxbench.suite.catalogue import load_problem

ATTENTION = ("mha_with_lse_d128", "mha_with_lse_d128_causal", "mha_bwd_d128", "mha_bwd_d128_causal")
SCHEDULES = ("late", "eager", "seed 1", "seed 2")
N, K = 256, 512
ROUNDED = 2.0**-7  # two roundings to bf16, against the greatest entry


def check(run: Run) -> None:
    for result in run.results:
        assert (result.error, result.unsupported, result.findings) == ("", "", ())
    assert all(miss < ROUNDED for miss in run.misses.values()), run.misses


@pytest.mark.parametrize("task", ATTENTION)
def test_a_reference_attention_kernel_is_right_in_all_schedules(task: str) -> None:
    source = (REFERENCE / task / "sm_90a.cu").read_text()
    check(run_candidate(source, load_problem(task), Policy(schedules=SCHEDULES), H=1, S=200))


@pytest.mark.parametrize("task", ATTENTION)
def test_a_plain_attention_kernel_is_right(task: str) -> None:
    source = (KERNELS / "simple" / f"{task}_mma.cu").read_text()
    check(run_candidate(source, load_problem(task), Policy(), H=1, S=100))


def test_the_reference_gemm_is_right_in_all_schedules() -> None:
    text = (REFERENCE / "gemm_n7168_k5120" / "sm_90a.cu").read_text()
    sizes = "constexpr int kN = 7168, kK = 5120;"
    assert sizes in text
    small = text.replace(sizes, f"constexpr int kN = {N}, kK = {K};").replace("[7168, 5120]", "[N, K]")
    check(run_candidate(small, small_gemm(N, K), Policy(schedules=SCHEDULES), M=200))


@pytest.mark.parametrize("name", ["gemm_mma", "gemm_plain"])
def test_a_plain_gemm_is_right(name: str) -> None:
    source = (KERNELS / "simple" / f"{name}.cu").read_text()
    check(run_candidate(source, small_gemm(128, 128), Policy(), M=72))
