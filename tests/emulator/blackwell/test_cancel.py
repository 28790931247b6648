"""clusterlaunchcontrol: one cluster does the work of others, whatever requests are granted."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.emulator.blackwell.tiny import SCHEDULES, refused_by_ptxas, run, text

TILES = 12
HEAD = """
.reg .b128 %q<4>;
@%p19 mbarrier.init.shared::cta.b64 [bar], 1;
@%p19 fence.mbarrier_init.release.cluster;
mov.u32 %r10, {place}; mov.u32 %r11, 0;
{sync}
again:
setp.eq.u32 %p17, %r12, 0;
{request}
mad.lo.u32 %r13, %r10, 128, %r350; mul.wide.u32 %d1, %r13, 4; add.s64 %d1, %d50, %d1;
mul.lo.u32 %r14, %r13, 3; st.global.u32 [%d1], %r14;
wait: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], %r11;
@!%p1 bra wait;
xor.b32 %r11, %r11, 1;
ld.shared.b128 %q1, [tile];
clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p2, %q1;
@!%p2 bra end;
{query}
fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;
bar.sync 0;
{sync}
bra again;
end:
"""
ONE = HEAD.format(
    place="%ctaid.x",
    sync="bar.sync 0;",
    request="""
@%p19 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
@%p19 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [tile], [bar];
""",
    query="clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r10, %r20, %r21, %r22}, %q1;",
)
PAIR = HEAD.format(
    place="%ctaid.x",
    sync="barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;",
    request="""
mov.u32 %r12, %cluster_ctarank; setp.eq.and.u32 %p17, %r12, 0, %p19;
@%p19 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
@%p17 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes"""
    """.multicast::cluster::all.b128 [tile], [bar];
""",
    query="""
clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r10, %q1;
clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %r20, %q1;
clusterlaunchcontrol.query_cancel.get_first_ctaid::z.b32.b128 %r21, %q1;
add.u32 %r10, %r10, %r12; add.u32 %r10, %r10, %r20; add.u32 %r10, %r10, %r21;
""",
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("body", "cluster"), [(ONE, 1), (PAIR, 2)])
def test_every_tile_is_done_once(body: str, cluster: int, schedule: str) -> None:
    ran = run(body, grid=TILES, cluster=cluster, schedules=(schedule,))
    assert not ran.result.error
    assert not ran.result.findings
    assert ran.words.tolist() == [3 * place for place in range(128 * TILES)]


def started(schedule: str) -> int:
    """CTAs that ran from the start."""
    counts = run(ONE, grid=TILES, schedules=(schedule,)).result.counts
    return next(each.threads for each in counts if each.name.startswith("mbarrier.init"))


def test_late_the_first_cluster_takes_all_the_work_and_eager_none() -> None:
    assert started("late") == 1
    assert started("eager") == TILES
    assert 1 < started("seed 1") <= TILES


def test_another_request_after_a_refusal_is_undefined() -> None:
    body = ONE.replace("@!%p2 bra end;", "@!%p2 bra again;")
    ran = run(body, grid=TILES)
    assert ran.error == "cudaErrorIllegalInstruction"
    assert "try_cancel after one that is known to have failed" in ran.messages


def test_an_answer_needs_16_aligned_bytes() -> None:
    ran = run(ONE.replace("b128 [tile], [bar]", "b128 [tile+8], [bar]"), grid=TILES)
    assert ran.error == "cudaErrorMisalignedAddress"


def test_ptxas_takes_these_programs(tmp_path: Path) -> None:
    for body in (ONE, PAIR):
        assert not refused_by_ptxas(text(body), tmp_path)
