"""Whole kernels with the check for races: nothing in honest ones, and in seeded bugs what the other checks say too."""

from __future__ import annotations

from functools import partial

import pytest
from tests.emulator.blackwell.gemm import multiply, ptx
from tests.emulator.evidence import test_bugs
from tests.emulator.evidence.bench import KERNELS
from tests.emulator.evidence.candidate import REFERENCE, run_candidate, small_gemm
from tests.emulator.evidence.test_bugs import BUGS

from ptxbench.emulator import launch
from ptxbench.emulator.launch import Policy
from ptxbench.suite.catalogue import load_problem

ATTENTION = ("mha_with_lse_d128", "mha_with_lse_d128_causal", "mha_bwd_d128", "mha_bwd_d128_causal")
DECORATIVE = ("dummy_wgmma", "times_zero", "unused_tma", "idle_tma")
RACES = Policy(races=True)
SIZES = "constexpr int kN = 7168, kK = 5120;"


@pytest.mark.parametrize("task", ATTENTION)
def test_no_race_is_found_in_a_reference_attention_kernel(task: str) -> None:
    source = (REFERENCE / task / "sm_90a.cu").read_text()
    run = run_candidate(source, load_problem(task), RACES, H=1, S=136 if "bwd" not in task else 72)
    assert [result.findings for result in run.results] == [()] * len(run.results)


def test_no_race_is_found_in_the_reference_gemm_whose_clusters_multicast() -> None:
    text = (REFERENCE / "gemm_n7168_k5120" / "sm_90a.cu").read_text()
    assert SIZES in text
    small = text.replace(SIZES, "constexpr int kN = 256, kK = 512;").replace("[7168, 5120]", "[N, K]")
    (result,) = run_candidate(small, small_gemm(256, 512), RACES, M=200).results
    assert not result.findings


@pytest.mark.parametrize("task", ["mha_with_lse_d128_causal", "mha_bwd_d128"])
def test_no_race_is_found_in_a_plain_attention_kernel(task: str) -> None:
    source = (KERNELS / "simple" / f"{task}_mma.cu").read_text()
    run = run_candidate(source, load_problem(task), RACES, H=1, S=72)
    assert [result.findings for result in run.results] == [()] * len(run.results)


@pytest.mark.parametrize("name", ["gemm_mma", "gemm_plain"])
def test_no_race_is_found_in_a_plain_gemm(name: str) -> None:
    source = (KERNELS / "simple" / f"{name}.cu").read_text()
    (result,) = run_candidate(source, small_gemm(128, 64), RACES, M=72).results
    assert not result.findings


@pytest.mark.parametrize("name", DECORATIVE)
def test_no_race_is_found_in_a_decorated_kernel(name: str) -> None:
    source = (KERNELS / "decorative" / f"{name}.cu").read_text()
    gemm = name == "idle_tma" and "mha" not in source
    problem = small_gemm(128, 64) if gemm else load_problem("mha_with_lse_d128")
    run = run_candidate(source, problem, RACES, **({"M": 72} if gemm else {"H": 1, "S": 72}))
    assert [result.findings for result in run.results] == [()] * len(run.results)


def test_no_race_is_found_in_the_blackwell_gemm(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = launch.Policy
    monkeypatch.setattr("tests.emulator.blackwell.gemm.Policy", partial(kept, races=True))
    result, got, expected = multiply(ptx(), (200, 512, 384), 2)
    assert not result.findings
    assert (got == expected).all()


@pytest.mark.parametrize("name", ["", *BUGS])
def test_a_seeded_bug_is_named_as_without_the_check_for_races(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    flags = (f"-DBUG_{name}",) if name else ()
    plain = {each.rule for each in test_bugs.run(flags, ("late",))[1].findings}
    monkeypatch.setattr(test_bugs, "Policy", partial(Policy, races=True))
    with_races = {each.rule for each in test_bugs.run(flags, ("late",))[1].findings}
    assert plain <= with_races
    assert with_races - plain <= ({"race"} if plain else set())
