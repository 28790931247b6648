"""What an H200 answered at warp, CTA and cluster level, as small kernels: barriers, elect, shuffles, clusters.

mbarriers, tensor copies, matrices and arithmetic have their own tables beside their parts; statements.toml lists all.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest
from tests.emulator.evidence.bench import ROOT, Array, Bench, pointer

from ptxbench.emulator.launch import KernelLaunch, LaunchResult, Policy
from ptxbench.emulator.ptx.parse import parse

HEAD = """.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) {
.reg .pred p<9>; .reg .b32 r<32>; .reg .b64 d<9>;
.shared .align 16 .b8 data[1024];
ld.param.u64 d0, [out]; mov.u32 r0, %tid.x; mov.u32 r1, %laneid; shr.u32 r2, r0, 5; mov.u32 r9, 0;
mul.wide.u32 d1, r0, 4; add.u64 d1, d0, d1; mov.u32 r3, data; mov.u32 r8, %cluster_ctarank;
"""
TAIL = "\nst.global.u32 [d1], r9;\nret;\nEXIT: ret;\n}\n"


def run(body: str, threads: int = 128, cluster: int = 1, registers: int = 0) -> tuple[LaunchResult, Array]:
    """Run statements that leave their answer in r9; the result, and the answers of the last CTA."""
    bench = Bench(Policy(schedules=("late",), limit=200_000))
    out = bench.upload(np.full(threads, 0xFFFF_FFFF, np.uint32))
    launch = KernelLaunch(
        "k",
        grid=(cluster, 1, 1),
        block=(threads, 1, 1),
        cluster=(cluster, 1, 1),
        parameters=(pointer(out),),
        registers=registers,
    )
    result = bench.launch(parse(HEAD + body + TAIL), launch)
    return result, bench.download(out, (threads,), np.uint32)


BARRIERS = {
    # what the warps do: how it ends on an H200
    "setp.eq.u32 p0, r2, 0; @p0 bra EXIT; bar.sync 0;": "",
    "setp.ge.u32 p0, r1, 16; @p0 bra EXIT; bar.sync 0;": "",
    "setp.eq.u32 p0, r2, 0; @p0 bra EXIT; bar.sync 1, 128;": "deadlock",
    "setp.eq.u32 p0, r2, 3; @p0 bra EXIT; bar.sync 1, 64;": "deadlock",
    "setp.ge.u32 p0, r2, 2; @p0 bra EXIT; bar.sync 1, 128;": "deadlock",
    """setp.ge.u32 p0, r2, 2; @p0 bra EXIT; setp.eq.u32 p1, r2, 0; @p1 bra A;
       bar.sync 1, 96; bra B; A: bar.sync 1, 64; B:""": "cudaErrorIllegalInstruction",
    """setp.ge.u32 p0, r2, 2; @p0 bra EXIT; setp.eq.u32 p1, r2, 0; @p1 bra A;
       bar.sync 1, 64; bra B; A: bar.sync 1, 96; B:""": "cudaErrorIllegalInstruction",
    "setp.ge.u32 p0, r2, 1; @p0 bra EXIT; bar.sync 1, 64;": "deadlock",
    "setp.ge.u32 p0, r1, 16; @p0 bra SKIP; barrier.sync 0; SKIP:": "",
    """setp.ge.u32 p0, r2, 2; @p0 bra EXIT; setp.eq.u32 p1, r2, 0; @p1 bra A;
       bar.sync 1, 96; bra B; A: bar.arrive 1, 96; bar.arrive 1, 96; B:""": "",
    "setp.ge.u32 p0, r2, 2; @p0 bra EXIT; setp.ge.u32 p1, r1, 7; @p1 bra EXIT; barrier.sync 1, 64;": "",
    "setp.lt.u32 p0, r1, 16; @p0 bra A; barrier.sync 0; bra B; A: barrier.sync 0; B:": "",
    "bar.sync 16;": "cudaErrorIllegalInstruction",
}


@pytest.mark.parametrize("body", BARRIERS)
def test_a_cta_barrier_ends_as_on_the_hardware(body: str) -> None:
    result, _ = run(body)
    assert result.error.split(" ")[0] == BARRIERS[body], result.error
    assert result.unsupported == ""


@pytest.mark.parametrize(
    ("body", "answer"),
    [
        ("setp.lt.u32 p0, r1, 5; barrier.red.popc.u32 r9, 0, p0;", 20),
        ("setp.ge.u32 p1, r1, 20; @p1 bra EXIT; setp.eq.u32 p0, r9, 0; barrier.red.popc.u32 r9, 0, p0;", 80),
    ],
)
def test_a_reducing_barrier_counts_the_live_threads(body: str, answer: int) -> None:
    result, out = run(body)
    assert result.ok, result.error
    assert set(out[np.arange(128) % 32 < 20].tolist()) == {answer}


@pytest.mark.parametrize(
    ("executing", "mask", "leader"),
    [
        *((mask, mask, (mask & -mask).bit_length() - 1) for mask in (0xFFFFFFFF, 0xFFFFFFF0, 1 << 31, 0x00010100)),
        *((mask, mask, (mask & -mask).bit_length() - 1) for mask in (0xAAAAAAAA, 0x7FFF0000, 1, 0x40000002)),
        (0xFFFFFFFF, 0xFFFFFFF0, 0),
        (0x000000FF, 0x000000F0, 0),
        (0xFFFF0000, 0xFFFFFFFF, 16),
    ],
)
def test_elect_takes_the_lowest_executing_lane_whatever_the_mask(executing: int, mask: int, leader: int) -> None:
    body = f"mov.u32 r4, {executing}; shr.u32 r4, r4, r1; and.b32 r4, r4, 1; setp.eq.u32 p0, r4, 0; @p0 bra EXIT;"
    body += f"elect.sync r9|p1, {mask}; @p1 or.b32 r9, r9, 256;"
    _, out = run(body, threads=32)
    wanted = [(leader | 256 * (lane == leader)) if executing >> lane & 1 else 0xFFFFFFFF for lane in range(32)]
    assert out.tolist() == wanted


def test_exited_lanes_are_missing_from_a_ballot_and_answer_zero_to_a_shuffle() -> None:
    body = "setp.ge.u32 p0, r1, 16; @p0 bra EXIT; setp.eq.u32 p1, r9, 0; vote.sync.ballot.b32 r9, p1, -1;"
    assert set(run(body, threads=32)[1][:16].tolist()) == {0xFFFF}
    body = "setp.ge.u32 p0, r1, 16; @p0 bra EXIT; add.u32 r4, r1, 100; shfl.sync.idx.b32 r9, r4, 20, 31, -1;"
    assert set(run(body, threads=32)[1][:16].tolist()) == {0}


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("mapa.shared::cluster.u32 r4, r3, 1; and.b32 r9, r4, 0xff000000; shr.u32 r9, r9, 24;", ""),
        ("mapa.shared::cluster.u32 r4, r3, 5; ld.shared::cluster.u32 r9, [r4];", "cudaErrorLaunchFailure"),
        ("mbarrier.init.shared::cta.b64 [r3+4], 1;", "cudaErrorMisalignedAddress"),
        ("ld.shared.u32 r9, [r3+2];", "cudaErrorMisalignedAddress"),
        ("add.u32 r4, r3, 1024; ld.shared.u32 r9, [r4];", "cudaErrorIllegalAddress"),
        ("mov.u32 r4, 0; st.shared.u32 [r4], r0; ld.shared.u32 r9, [r4];", ""),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r9}, [r3+8];", "cudaErrorMisalignedAddress"),
    ],
)
def test_a_shared_address_is_taken_or_refused_as_on_the_hardware(body: str, error: str) -> None:
    result, _ = run(body, threads=32, cluster=2 if "mapa" in body else 1)
    assert result.error.split(" ")[0] == error, result.error
    assert result.unsupported == ""


def test_the_first_user_byte_lies_behind_the_system_area_and_ranks_stand_above_bit_24() -> None:
    _, out = run("mov.u32 r9, data; mapa.shared::cluster.u32 r9, r9, 3;", threads=32, cluster=4)
    assert set(out.tolist()) == {0x0300_0400}


def test_a_live_barrier_and_ordinary_memory_do_not_see_each_other() -> None:
    body = """mov.u64 d2, 0x1122334455667788; st.shared.u64 [r3], d2; mbarrier.init.shared::cta.b64 [r3], 1;
        ld.shared.u32 r9, [r3]; st.shared.u64 [r3], d2; mbarrier.arrive.shared::cta.b64 _, [r3];
        mbarrier.test_wait.parity.shared::cta.b64 p0, [r3], 0; @!p0 mov.u32 r9, 0;"""
    assert run(body, threads=1)[1].tolist() == [0x55667788]


def test_another_ctas_barrier_takes_arrivals() -> None:
    body = """mbarrier.init.shared::cta.b64 [r3], 1;
        barrier.cluster.arrive; barrier.cluster.wait; setp.ne.u32 p0, r8, 0; @p0 bra B;
        mapa.shared::cluster.u32 r4, r3, 1;
        mbarrier.expect_tx.relaxed.cluster.shared::cluster.b64 [r4], 16;
        mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [r4], 16;
        mbarrier.arrive.release.cluster.shared::cluster.b64 _, [r4];
        B: barrier.cluster.arrive; barrier.cluster.wait; @!p0 bra EXIT;
        mbarrier.test_wait.parity.shared::cta.b64 p1, [r3], 0; selp.u32 r9, 1, 0, p1;"""
    result, out = run(body, threads=1, cluster=2)
    assert result.error == ""
    assert out.tolist() == [1]


@pytest.mark.parametrize(("noinc", "error"), [("", "deadlock"), (".noinc", "")])
def test_cp_async_arrive_without_copies_counts_only_with_noinc(noinc: str, error: str) -> None:
    """The arrival is asynchronous, so the answer is whether a wait ends."""
    body = f"""mbarrier.init.shared::cta.b64 [r3], 1; cp.async.mbarrier.arrive{noinc}.shared::cta.b64 [r3];
        W: mbarrier.try_wait.parity.shared::cta.b64 p0, [r3], 0; @!p0 bra W;"""
    assert run(body, threads=1)[0].error.split(" ")[0] == error


def test_a_wgmma_without_its_fourth_warp_is_illegal() -> None:
    body = """.reg .f32 f<4>; setp.eq.u32 p0, r2, 3; @p0 bra EXIT; setp.eq.u32 p1, r0, r0; mov.u64 d2, 64;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, d2, d2, p1, 1, 1, 0, 0;"""
    assert run(body)[0].error.startswith("cudaErrorIllegalInstruction")


COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r4], [d2], r5, [r3];"


@pytest.mark.parametrize(("size", "copied"), [(0, 0), (16, 16), (24, 16), (48, 48)])
def test_a_bulk_copy_of_any_size_is_cut_to_16_bytes(size: int, copied: int) -> None:
    """The barrier expects what is really copied, and flips."""
    body = f"""mbarrier.init.shared::cta.b64 [r3], 1; add.u32 r4, r3, 16; mov.u64 d2, d0; mov.u32 r5, {size}; {COPY}
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [r3], {copied};
        W: mbarrier.try_wait.parity.shared::cta.b64 p0, [r3], 0; @!p0 bra W; mov.u32 r9, 1;"""
    first = "setp.ne.u32 p1, r0, 0; @p1 bra EXIT; "
    result, out = run(first + body, threads=16)
    assert result.error == ""
    assert out[0] == 1


@pytest.mark.parametrize(("destination", "source"), [(24, 0), (16, 8)])
def test_a_bulk_copy_off_16_bytes_is_misaligned(destination: int, source: int) -> None:
    body = f"""setp.ne.u32 p1, r0, 0; @p1 bra EXIT; mbarrier.init.shared::cta.b64 [r3], 1;
        add.u32 r4, r3, {destination}; add.u64 d2, d0, {source}; mov.u32 r5, 16; {COPY}"""
    assert run(body)[0].error.startswith("cudaErrorMisalignedAddress")


@pytest.mark.parametrize(
    ("counts", "error"),
    [
        *((counts, "") for counts in ((24, 240, 240), (40, 232, 232), (56, 224, 224), (24, 248, 232))),
        *((counts, "") for counts in ((24, 232, 232), (24, 224, 224), (200, 24, 24))),
        *((counts, "deadlock") for counts in ((40, 240, 232), (32, 240, 240), (40, 240, 240), (0, 240, 160))),
    ],
)
def test_registers_beyond_the_launchs_budget_hang(counts: tuple[int, int, int], error: str) -> None:
    """Launched with 168, three warpgroups; a warpgroup marked 0 keeps what it has."""
    changes = [
        f"setmaxnreg.{'dec' if each < 168 else 'inc'}.sync.aligned.u32 {each};" if each else "" for each in counts
    ]
    body = f"""shr.u32 r4, r2, 2; setp.eq.u32 p0, r4, 0; setp.eq.u32 p1, r4, 1; @p0 bra A; @p1 bra B;
        {changes[2]} bra C; A: {changes[0]} bra C; B: {changes[1]} C:"""
    result, _ = run(body, threads=384, registers=168)
    assert result.error.split(" ")[0] == error, result.error


def test_more_registers_are_waited_for_until_another_warpgroup_gives_some_up() -> None:
    """The first warpgroup gives up its registers long after the others asked."""
    body = """shr.u32 r4, r2, 2; setp.eq.u32 p0, r4, 0; @p0 bra A; setmaxnreg.inc.sync.aligned.u32 240; bra C;
        A: add.u32 r5, r5, 1; setp.lt.u32 p1, r5, 500; @p1 bra A; setmaxnreg.dec.sync.aligned.u32 24;
        C: mov.u32 r9, 1;"""
    result, out = run("mov.u32 r5, 0; " + body, threads=384, registers=168)
    assert result.error == ""
    assert set(out.tolist()) == {1}


def test_the_leader_of_a_warp_is_alone_until_it_meets_the_others_again() -> None:
    body = """elect.sync r4|p0, -1; mov.u32 r9, 0; @!p0 bra JOIN; activemask.b32 r9; bar.warp.sync 1;
        JOIN: bar.warp.sync -1; activemask.b32 r5; setp.ne.u32 p1, r5, -1; @p1 mov.u32 r9, 77;"""
    _, out = run(body, threads=32)
    assert out.tolist() == [1, *[0] * 31]


def test_a_warp_counts_once_all_its_live_lanes_have_come() -> None:
    """Half a warp is early, the other half late; the second warp waits for the late half."""
    body = """setp.ge.u32 p0, r2, 2; @p0 bra EXIT; setp.eq.u32 p1, r0, 0; @p1 st.shared.u32 [r3], r0; bar.warp.sync -1;
        setp.eq.u32 p2, r2, 1; @p2 bra SECOND; setp.lt.u32 p3, r1, 16; @p3 bra EARLY; mov.u32 r5, 0;
        LATE: add.u32 r5, r5, 1; setp.lt.u32 p4, r5, 300; @p4 bra LATE; st.shared.u32 [r3], 5;
        barrier.sync 1, 64; bra OVER;
        EARLY: barrier.sync 1, 64; bra OVER; SECOND: barrier.sync 1, 64; ld.shared.u32 r9, [r3]; OVER:"""
    result, out = run(body)
    assert result.error == ""
    assert set(out[32:64].tolist()) == {5}


def test_lanes_of_a_warp_that_multiply_apart_do_not_come_together() -> None:
    body = """.reg .f32 f<4>; setp.lt.u32 p0, r1, 16; setp.eq.u32 p1, r0, r0; mov.u64 d2, 64; @p0 bra A;
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, d2, d2, p1, 1, 1, 0, 0; bra B; A:
        wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, d2, d2, p1, 1, 1, 0, 0; B:"""
    assert run(body)[0].error.split(" ")[0] in ("deadlock", "cudaErrorIllegalInstruction")


# Statements per section of the measurements, all that were sure included.
COUNTS = {
    **{"corrections": 17, "tensor_copies": 25, "descriptors": 10, "mbarrier": 28, "threads": 19, "clusters": 10},
    **{"arithmetic": 25, "tensor_cores": 14, "registers": 7, "races": 15, "bulk_copies": 5},
}


def test_the_table_has_every_statement_with_a_test_that_exists() -> None:
    table = tomllib.loads((Path(__file__).parent / "statements.toml").read_text())
    assert {section: len(statements) for section, statements in table.items()} == COUNTS
    for number, (section, statements) in enumerate(table.items()):
        assert list(statements) == [f"{number}.{place:02}" for place in range(1, COUNTS[section] + 1)]
        for key, (sentence, *tests) in statements.items():
            assert sentence, key
            assert tests, key
            for test in tests:
                file, _, name = test.partition("::")
                there = test == "why: a time" or f"def {name}(" in (ROOT / "tests" / "emulator" / file).read_text()
                assert there, (key, test)
