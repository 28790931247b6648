"""Kernels whose target instructions are decoration: right on the emulator, where the target's families do execute.

Their expected verdict is passed, executed: yes, necessity: no. What shows the last is the witness, which perturbs the
families' results in a second run.
"""

from __future__ import annotations

import pytest
from tests.emulator.evidence.bench import KERNELS
from tests.emulator.evidence.candidate import REFERENCE, run_candidate

from ptxbench.emulator.launch import Policy
from ptxbench.emulator.witness import Spoilt, spoiler
from ptxbench.suite.catalogue import load_problem

FAMILY = {"dummy_wgmma": "wgmma.mma_async", "times_zero": "wgmma.mma_async", "unused_tma": "cp.async.bulk.tensor"}
"""Attention kernels with `mma.sync`; what the verdict says of these and others is in tests/evaluate."""


@pytest.mark.parametrize("name", FAMILY)
def test_a_decorated_kernel_is_right_and_executes_the_family(name: str) -> None:
    source = (KERNELS / "decorative" / f"{name}.cu").read_text()
    run = run_candidate(source, load_problem("mha_with_lse_d128"), Policy(schedules=("late", "seed 1")), H=1, S=72)
    (result,) = run.results
    assert (result.error, result.unsupported, result.findings) == ("", "", ())
    assert all(miss < 2.0**-7 for miss in run.misses.values()), run.misses
    executed = {each.name.split(".m64")[0]: each.warps for each in result.counts if each.warps}
    assert any(each.startswith(FAMILY[name]) for each in executed)
    assert any(each.startswith("mma.sync") for each in executed)


@pytest.mark.parametrize("name", FAMILY)
def test_a_decorated_kernel_stays_right_when_the_family_is_spoilt(name: str) -> None:
    what: Spoilt = "tma" if name == "unused_tma" else "mma"
    source = (KERNELS / "decorative" / f"{name}.cu").read_text()
    run = run_candidate(source, load_problem("mha_with_lse_d128"), Policy(watch=spoiler(what)), H=1, S=72)
    assert all(miss < 2.0**-7 for miss in run.misses.values()), run.misses


@pytest.mark.parametrize("what", ["mma", "tma"])
def test_a_kernel_that_needs_the_family_is_wrong_when_it_is_spoilt(what: Spoilt) -> None:
    source = (REFERENCE / "mha_with_lse_d128" / "sm_90a.cu").read_text()
    run = run_candidate(source, load_problem("mha_with_lse_d128"), Policy(watch=spoiler(what)), H=1, S=72)
    assert not all(miss < 0.1 for miss in run.misses.values()), run.misses
