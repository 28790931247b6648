"""mbarriers that another CTA uses: the cluster's barrier and the fence behind the initialisation, each left out."""

from __future__ import annotations

import pytest
from tests.emulator.core.small import Ran, run
from tests.emulator.races.programs import SYNC, WORDS

FENCE = "fence.mbarrier_init.release.cluster;\n"
BODY = (
    """
setp.eq.u32 %p9, %r50, 0; mov.u32 %r45, %cluster_ctarank; mov.u32 %r48, bar; mov.u32 %r40, 1;
@%p9 mbarrier.init.shared::cta.b64 [bar], 2;
{fence}{barrier}
@!%p9 bra WAIT;
xor.b32 %r46, %r45, {other}; mapa.shared::cluster.u32 %r49, %r48, %r46;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r49];
mbarrier.arrive.shared::cta.b64 _, [bar];
WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bar], 0;
@!%p1 bra WAIT;
"""
    + SYNC
)


def ran(fence: str, barrier: str = SYNC, other: int = 1, *, races: bool = False) -> Ran:
    """Two CTAs, each arrives at the other's mbarrier (with `other` 0 at its own)."""
    body = BODY.format(fence=fence, barrier=barrier, other=other)
    return run(body, threads=32, grid=2, cluster=2, before=WORDS, races=races)


@pytest.mark.parametrize("races", [False, True])
def test_another_ctas_mbarrier_without_the_fence_behind_its_initialisation_is_a_lint(races: bool) -> None:
    found = ran("", races=races).result.findings
    assert {(each.rule, each.severity) for each in found} == {("mbarrier-init-fence", "lint")}
    assert len(found) <= 2
    assert "fence.mbarrier_init" in found[0].hint


@pytest.mark.parametrize("races", [False, True])
@pytest.mark.parametrize("fence", [FENCE, "fence.acq_rel.cluster;\n", "membar.gl;\n"])
def test_a_fence_that_reaches_the_cluster_is_enough(fence: str, races: bool) -> None:
    assert not ran(fence, races=races).result.findings


def test_a_fence_before_the_initialisation_is_none() -> None:
    body = BODY.format(fence="", barrier=SYNC, other=1).replace("@%p9 mbarrier.init", FENCE + "@%p9 mbarrier.init")
    found = run(body, threads=32, grid=2, cluster=2, before=WORDS).result.findings
    assert {each.rule for each in found} == {"mbarrier-init-fence"}


def test_the_own_mbarrier_needs_no_fence() -> None:
    assert not ran("", "bar.sync 0;\n", 0).result.findings


@pytest.mark.parametrize("races", [False, True])
@pytest.mark.parametrize("barrier", ["", "bar.sync 0;\n"])
def test_another_ctas_mbarrier_without_the_clusters_barrier_is_an_error(barrier: str, races: bool) -> None:
    found = ran(FENCE, barrier, races=races).result.findings
    assert ("uninitialised-barrier", "error") in {(each.rule, each.severity) for each in found}


def test_a_relaxed_arrival_without_the_fence_is_an_error_of_the_check_for_races() -> None:
    relaxed = SYNC.replace("arrive", "arrive.relaxed")
    assert ("uninitialised-barrier", "error") in {
        (each.rule, each.severity) for each in ran("", relaxed, races=True).result.findings
    }
    assert not ran(FENCE, relaxed, races=True).result.findings
