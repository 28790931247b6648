"""CTA and cluster barriers in a kernel, as an H200 answered."""

from __future__ import annotations

import pytest
from tests.emulator.core.small import run, store

WARP = "shr.u32 %r40, %r50, 5; and.b32 %r41, %r50, 31; setp.eq.u32 %p4, %r40, 0; setp.gt.u32 %p5, %r41, 15;\n"
DONE = "mov.u32 %r1, 1;\n" + store()

COMPLETES = {
    "a warp has exited, the others name no count": "@%p4 exit; bar.sync 0;\n",
    "half of each warp has exited": "@%p5 exit; bar.sync 0;\n",
    "an arrive counts for a warp": "setp.gt.u32 %p1, %r40, 1; @%p1 exit; @%p4 bra a; bar.sync 1, 64; bra d;\n"
    "a: bar.arrive 1, 64;\nd:\n",
    "seven lanes of two warps": "setp.gt.u32 %p1, %r40, 1; setp.gt.u32 %p2, %r41, 6; or.pred %p1, %p1, %p2;\n"
    "@%p1 exit; bar.sync 1, 64;\n",
    "both arms of a branch between lanes": "@%p5 bra x; bar.sync 0; bra d;\nx: bar.sync 0;\nd:\n",
    "one warp arrives twice": "setp.gt.u32 %p1, %r40, 1; @%p1 exit; @%p4 bra a; bar.sync 1, 96; bra d;\n"
    "a: bar.arrive 1, 96; bar.arrive 1, 96;\nd:\n",
}
HANGS = {
    "a count that an exited warp leaves short": "@%p4 exit; bar.sync 1, 128;\n",
    "three warps at a barrier for two": "@%p4 exit; bar.sync 1, 64;\n",
    "one warp at a barrier for two": "@!%p4 exit; bar.sync 1, 64;\n",
}


@pytest.mark.parametrize("case", COMPLETES)
@pytest.mark.parametrize("schedule", ["late", "seed 3"])
def test_a_barrier_completes_when(case: str, schedule: str) -> None:
    ran = run(WARP + COMPLETES[case] + DONE, threads=128, schedules=(schedule,))
    assert not ran.result.error


@pytest.mark.parametrize("case", HANGS)
def test_a_barrier_hangs_with(case: str) -> None:
    ran = run(WARP + HANGS[case] + DONE, threads=128)
    assert ran.error == "deadlock"
    assert "barrier 1" in ran.result.findings[0].state[0]


def test_two_counts_for_one_barrier_are_an_illegal_instruction() -> None:
    body = WARP + "@%p4 bra x; bar.sync 1, 96; bra d;\nx: bar.sync 1, 64;\nd:\n" + DONE
    assert run(body, threads=96).error == "cudaErrorIllegalInstruction"


def test_a_reduction_counts_the_live_threads_only() -> None:
    body = WARP + "setp.lt.u32 %p6, %r41, 5; bar.red.popc.u32 %r1, 0, %p6;\n" + store()
    assert set(run(body, threads=128).words.tolist()) == {20}
    body = WARP + "setp.gt.u32 %p6, %r41, 19; @%p6 exit; setp.lt.u32 %p7, %r41, 32; bar.red.popc.u32 %r1, 0, %p7;\n"
    assert set(run(body + store(), threads=128).words.tolist()) == {80, 0}


def test_a_store_before_a_barrier_is_seen_behind_it() -> None:
    body = """mov.u32 %r40, cell; shl.b32 %r41, %r50, 2; add.u32 %r42, %r40, %r41; st.shared.u32 [%r42], %r50;
    bar.sync 0; xor.b32 %r43, %r41, 252; add.u32 %r42, %r40, %r43; ld.shared.u32 %r1, [%r42];
    """
    ran = run(body + store(), threads=64, before=".shared .align 4 .b8 cell[256];")
    assert ran.words.tolist() == list(range(63, -1, -1))
    assert not ran.result.findings


CLUSTER = "mov.u32 %r40, %cluster_ctarank; mov.u32 %r41, cell; mapa.shared::cluster.u32 %r42, %r41, 1;\n"
CELL = ".shared .align 8 .b8 cell[64];"


def test_a_cluster_barrier_orders_stores_to_the_neighbour() -> None:
    body = (
        CLUSTER
        + """setp.eq.u32 %p1, %r40, 0; setp.eq.u32 %p2, %r50, 0; and.pred %p1, %p1, %p2;
        barrier.cluster.arrive; barrier.cluster.wait;
        @%p1 st.shared::cluster.u32 [%r42], 77;
        barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %r1, 0; setp.eq.u32 %p3, %r40, 1; @%p3 ld.shared.u32 %r1, [%r41];
        """
        + store()
    )
    ran = run(body, threads=32, grid=2, cluster=2, before=CELL)
    assert not ran.rules
    assert ran.words.tolist() == [0] * 32 + [77] * 32


def test_addresses_carry_the_rank_and_the_first_user_byte_is_0x400() -> None:
    ran = run(CLUSTER + "mov.u32 %r1, %r41;\n" + store(), threads=32, grid=4, cluster=4, before=CELL)
    assert ran.words[::32].tolist() == [0x400, 0x01000400, 0x02000400, 0x03000400]
    ran = run(CLUSTER + "mov.u32 %r1, %r42;\n" + store(), threads=32, grid=4, cluster=4, before=CELL)
    assert set(ran.words.tolist()) == {0x01000400}


def test_the_exit_of_a_neighbour_counts_as_its_arrival() -> None:
    body = CLUSTER + "setp.eq.u32 %p1, %r40, 0; @%p1 exit; barrier.cluster.arrive; barrier.cluster.wait;\n" + DONE
    assert not run(body, grid=2, cluster=2, before=CELL).result.error


def test_a_neighbour_that_has_exited_cannot_be_written() -> None:
    body = (
        CLUSTER
        + """setp.eq.u32 %p1, %r40, 1; @%p1 exit; barrier.cluster.arrive; barrier.cluster.wait;
        st.shared::cluster.u32 [%r42], 1;
        """
    )
    assert run(body, grid=2, cluster=2, before=CELL).error == "cudaErrorLaunchFailure"


def test_a_rank_outside_the_cluster_cannot_be_reached() -> None:
    body = CLUSTER + "mapa.shared::cluster.u32 %r42, %r41, 5; ld.shared::cluster.u32 %r1, [%r42];\n" + store()
    assert run(body, grid=2, cluster=2, before=CELL).error == "cudaErrorLaunchFailure"


def test_the_cluster_barrier_waits_for_all_threads() -> None:
    body = CLUSTER + "setp.eq.u32 %p1, %r40, 0; @%p1 barrier.cluster.arrive; @%p1 barrier.cluster.wait;\n"
    wait = "l: ld.volatile.global.u32 %r5, [%d50]; setp.eq.u32 %p3, %r5, 0; @%p3 bra l;\n"
    ran = run(body + wait, grid=2, cluster=2, before=CELL)
    assert ran.error == "deadlock"


SHARES = [
    ((24, 240, 240), False),
    ((56, 224, 224), False),
    ((24, 224, 224), False),
    ((24, 232, 232), False),
    ((40, 240, 232), True),
    ((32, 240, 240), True),
]


@pytest.mark.parametrize(("shares", "hangs"), SHARES)
def test_registers_are_handed_over_within_what_the_launch_had(shares: tuple[int, int, int], hangs: bool) -> None:
    """H200, 384 threads launched with 168 registers: sums up to 504 work, one increase beyond never returns."""
    arms = "".join(
        f"g{group}: setmaxnreg.{'dec' if share < 168 else 'inc'}.sync.aligned.u32 {share}; bra done;\n"
        for group, share in enumerate(shares)
    )
    choose = "shr.u32 %r40, %r50, 7;\nsetp.eq.u32 %p1, %r40, 0; @%p1 bra g0;\n"
    choose += "setp.eq.u32 %p1, %r40, 1; @%p1 bra g1; bra g2;\n"
    ran = run(choose + arms + "done:\n" + DONE, threads=384, registers=168)
    assert (ran.error == "deadlock") == hangs
