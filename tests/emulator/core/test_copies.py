"""Asynchronous copies in a kernel: bulk copies, cp.async, stores to a neighbour; when they land and what is found."""

from __future__ import annotations

import struct

import pytest
from tests.emulator.core.small import run, store

SHARED = ".shared .align 128 .b8 cell[512];\n.shared .align 8 .b64 bar;"
GIVEN = struct.pack("<64I", *range(100, 164))
SET_UP = """
ld.param.u64 %d1, [given]; setp.ne.u32 %p9, %r50, 0; mov.u32 %r40, cell;
shl.b32 %r41, %r50, 2; add.u32 %r42, %r40, %r41;
@!%p9 mbarrier.init.shared::cta.b64 [bar], 1;
bar.sync 0;
@!%p9 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {expected};
@!%p9 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%d1], {size}, [bar];
"""
WAIT = "w: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;\n@!%p1 bra w;\n"
READ = "ld.shared.u32 %r1, [%r42];\n" + store()
SCHEDULES = ["late", "eager", "seed 1"]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_bulk_copy_has_landed_when_its_phase_is_over(schedule: str) -> None:
    body = SET_UP.format(expected=256, size=256) + WAIT + READ
    ran = run(body, threads=64, before=SHARED, given=GIVEN, schedules=(schedule,))
    assert not ran.result.error
    assert not ran.result.findings
    assert ran.words.tolist() == list(range(100, 164))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_use_before_completion_is_found_whatever_the_schedule(schedule: str) -> None:
    body = SET_UP.format(expected=256, size=256) + "bar.sync 0;\n" + READ
    ran = run(body, threads=64, before=SHARED, given=GIVEN, schedules=(schedule,))
    assert ran.rules == {"use-before-completion"}


def test_bytes_that_never_come_are_a_deadlock() -> None:
    ran = run(SET_UP.format(expected=272, size=256) + WAIT + READ, threads=64, before=SHARED, given=GIVEN)
    assert ran.error == "deadlock"
    assert "16 tx-bytes outstanding" in ran.result.findings[0].state[0]


def test_a_size_loses_its_low_four_bits_and_zero_moves_nothing() -> None:
    body = SET_UP.format(expected=16, size="%r43").replace("@!%p9 cp.async", "mov.u32 %r43, 24;\n@!%p9 cp.async", 1)
    ran = run(body + WAIT + store("%r50"), threads=64, before=SHARED, given=GIVEN)
    assert not ran.result.error


@pytest.mark.parametrize("where", ["[cell+8], [%d1]", "[cell], [%d1+8]"])
def test_a_misaligned_bulk_copy_stops_the_kernel(where: str) -> None:
    body = SET_UP.format(expected=16, size=16).replace("[cell], [%d1]", where)
    assert run(body + WAIT, threads=64, before=SHARED, given=GIVEN).error == "cudaErrorMisalignedAddress"


STORE = """
mov.u32 %r40, cell; shl.b32 %r41, %r50, 2; add.u32 %r42, %r40, %r41; st.shared.u32 [%r42], %r50;
{fence} bar.sync 0; setp.ne.u32 %p9, %r50, 0;
@!%p9 cp.async.bulk.global.shared::cta.bulk_group [%d50], [cell], 128;
@!%p9 cp.async.bulk.commit_group;
{wait}
"""
FENCE, DONE = "fence.proxy.async.shared::cta;", "@!%p9 cp.async.bulk.wait_group 0;"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_bulk_store_writes_what_was_fenced(schedule: str) -> None:
    ran = run(STORE.format(fence=FENCE, wait=DONE), before=SHARED, schedules=(schedule,))
    assert not ran.result.findings
    assert ran.words.tolist() == list(range(32))


def test_a_store_that_no_fence_shows_to_the_async_proxy_is_found() -> None:
    ran = run(STORE.format(fence="", wait=DONE), before=SHARED)
    assert ran.rules == {"proxy-fence"}
    assert ran.words.tolist() == list(range(32))


def test_a_fence_by_the_issuer_alone_is_only_a_warning() -> None:
    body = STORE.format(fence="", wait=DONE).replace(
        "setp.ne.u32 %p9, %r50, 0;", "setp.ne.u32 %p9, %r50, 0; @!%p9 " + FENCE
    )
    ran = run(body, before=SHARED)
    assert not ran.rules
    assert [each.severity for each in ran.result.findings if each.rule == "proxy-fence"] == ["warning"]


def test_a_source_that_is_overwritten_before_it_is_read_is_found() -> None:
    again = " bar.sync 0; st.shared.u32 [%r42], 7; " + FENCE
    ran = run(STORE.format(fence=FENCE, wait=again + DONE), threads=64, words=64, before=SHARED)
    assert ran.rules == {"overwrite-before-release"}
    ran = run(
        STORE.format(fence=FENCE, wait=DONE.replace("group 0", "group.read 0") + again), threads=64, before=SHARED
    )
    assert not ran.rules


def test_an_exit_before_the_source_is_read_is_a_warning() -> None:
    ran = run(STORE.format(fence=FENCE, wait=""), before=SHARED)
    assert {each.rule for each in ran.result.findings} == {"exit-before-read"}


def test_a_bulk_reduction_adds_to_what_is_there() -> None:
    body = STORE.format(fence=FENCE, wait=DONE).replace(
        "cp.async.bulk.global.shared::cta.bulk_group", "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32"
    )
    ran = run("st.global.u32 [%d51], 5;\n" + body, before=SHARED)
    assert ran.words.tolist() == [lane + 5 for lane in range(32)]


PLAIN = """
ld.param.u64 %d1, [given]; shl.b32 %r41, %r50, 2; cvt.u64.u32 %d2, %r41; add.s64 %d1, %d1, %d2;
mov.u32 %r40, cell; add.u32 %r42, %r40, %r41;
cp.async.ca.shared.global [%r42], [%d1], 4{size};
cp.async.commit_group;
{wait} bar.sync 0; xor.b32 %r42, %r42, 4;
"""


@pytest.mark.parametrize("wait", ["cp.async.wait_group 0;", "cp.async.wait_all;"])
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_cp_async_has_landed_behind_its_wait(wait: str, schedule: str) -> None:
    body = PLAIN.format(wait=wait, size="") + READ
    ran = run(body, threads=64, before=SHARED, given=GIVEN, schedules=(schedule,))
    assert ran.words.tolist() == [100 + (lane ^ 1) for lane in range(64)]


def test_cp_async_without_a_wait_lands_late() -> None:
    ran = run(PLAIN.format(wait="", size="") + READ, threads=64, before=SHARED, given=GIVEN)
    assert ran.words.tolist() == [0] * 64
    assert "never-written" in ran.rules


def test_bytes_beyond_the_source_size_are_zeros_and_are_not_read() -> None:
    ran = run(PLAIN.format(wait="cp.async.wait_all;", size=", 2") + READ, threads=64, before=SHARED, given=GIVEN)
    assert ran.words.tolist() == [100 + (lane ^ 1) for lane in range(64)]
    ran = run(PLAIN.format(wait="cp.async.wait_all;", size=", 0") + READ, threads=64, before=SHARED, given=b"")
    assert ran.words.tolist() == [0] * 64


def test_copied_bytes_are_counted() -> None:
    counts = run(
        SET_UP.format(expected=256, size=256) + WAIT + READ, threads=64, before=SHARED, given=GIVEN
    ).result.counts
    assert {each.copied for each in counts if each.name.startswith("cp.async.bulk")} == {256}


def test_a_store_to_a_neighbour_tells_its_barrier() -> None:
    body = """
    mov.u32 %r40, %cluster_ctarank; setp.eq.u32 %p1, %r40, 0; setp.eq.u32 %p2, %r50, 0; and.pred %p3, %p1, %p2;
    @%p2 mbarrier.init.shared::cta.b64 [bar], 1;
    fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
    @%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 8;
    mov.u32 %r41, cell; mapa.shared::cluster.u32 %r42, %r41, 1;
    mov.u32 %r43, bar; mapa.shared::cluster.u32 %r44, %r43, 1;
    @%p3 st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%r42], {11, 12}, [%r44];
    mov.u32 %r1, 0; @%p1 bra over;
    w: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [bar], 0; @!%p4 bra w;
    ld.shared.u32 %r1, [cell+4];
    over: barrier.cluster.arrive; barrier.cluster.wait;
    """
    ran = run(body + store(), grid=2, cluster=2, before=SHARED)
    assert not ran.result.error
    assert not ran.rules
    assert ran.words.tolist() == [0] * 32 + [12] * 32
