"""The Blackwell attention kernels of this repository: right and clean, host code included, at a ragged small size."""

from __future__ import annotations

import pytest
from tests.emulator.blackwell.gemm import ROOT
from tests.emulator.evidence.candidate import run_candidate

from ptxbench.emulator.launch import Policy
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.suite.catalogue import load_problem
from ptxbench.toolchain.build import build

PERSISTENT = "mha_with_lse_d128_causal"
ATTENTION = ("mha_with_lse_d128", PERSISTENT, "mha_bwd_d128", "mha_bwd_d128_causal")
ROUNDED = 2.0**-7  # two roundings to bf16, against the greatest entry


def source(task: str) -> str:
    """The kernel; one of those whose CTAs live long has to do with a single CTA, so that it takes two heads in turn."""
    text = (ROOT / "reference" / task / "sm_100a.cu").read_text()
    if task != PERSISTENT:
        return text
    many = "std::min(sms, args.items())"
    assert text.count(many) == 1
    return text.replace(many, "1")


@pytest.mark.parametrize("task", ATTENTION)
def test_an_attention_kernel_is_right_and_nothing_is_found(task: str) -> None:
    policy, heads = Policy(schedules=("late", "seed 1")), 2 if task == PERSISTENT else 1
    run = run_candidate(source(task), load_problem(task), policy, Target.SM_100A, H=heads, S=200)
    for result in run.results:
        assert (result.error, result.unsupported, result.findings) == ("", "", ())
    assert all(miss < ROUNDED for miss in run.misses.values()), run.misses


@pytest.mark.parametrize("task", ATTENTION)
def test_an_attention_kernel_compiles_without_spills(task: str) -> None:
    kernels = build(Candidate.from_source(source(task)), Target.SM_100A, Settings.load()).stage.kernels
    assert kernels
    assert all(each.spill_store_bytes == each.spill_load_bytes == each.stack_bytes == 0 for each in kernels)
