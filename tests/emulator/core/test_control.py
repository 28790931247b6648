"""Branches, calls, exits, counts and limits."""

from __future__ import annotations

import pytest
from tests.emulator.core.small import run, store, text

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.launch import KernelLaunch, Policy, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.parse import parse


def test_lanes_part_and_meet_again() -> None:
    body = """mov.u32 %r1, 1; setp.lt.u32 %p1, %r50, 10; @%p1 bra low; add.u32 %r1, %r1, 100; bra join;
    low: add.u32 %r1, %r1, 10;
    join: activemask.b32 %r2; setp.eq.u32 %p2, %r2, -1; @%p2 add.u32 %r1, %r1, 1000;
    """
    assert run(body + store()).words.tolist() == [1011] * 10 + [1101] * 22


def test_each_lane_runs_its_own_number_of_rounds() -> None:
    body = """mov.u32 %r1, 0; mov.u32 %r2, 0;
    loop: setp.ge.u32 %p1, %r2, %r50; @%p1 bra done; add.u32 %r1, %r1, %r2; add.u32 %r2, %r2, 1; bra loop;
    done:
    """
    assert run(body + store(), threads=64).words.tolist() == [n * (n - 1) // 2 for n in range(64)]


def test_a_table_branch_goes_to_the_lanes_own_target() -> None:
    body = """and.b32 %r2, %r50, 1;
    targets: .branchtargets even, odd;
    brx.idx %r2, targets;
    even: mov.u32 %r1, 20; bra done;
    odd: mov.u32 %r1, 10;
    done:
    """
    assert run(body + store()).words.tolist() == [20, 10] * 16


CALLEE = """.func (.param .b32 result) twice(.param .b32 value) {
.reg .b32 %r<4>; .reg .pred %p<2>;
ld.param.b32 %r1, [value]; setp.eq.u32 %p1, %r1, 3; @%p1 bra odd;
add.u32 %r2, %r1, %r1; st.param.b32 [result], %r2; ret;
odd: mov.u32 %r2, 99; st.param.b32 [result], %r2; ret;
}
"""
CALL = """{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r50; call (b), twice, (a); ld.param.b32 %r1, [b]; }
"""


def test_a_call_returns_to_each_of_its_callers() -> None:
    again = "{ .param .b32 a; .param .b32 b; st.param.b32 [a], %r1; call (b), twice, (a); ld.param.b32 %r1, [b]; }\n"
    ran = run(CALL + again + store(), before=CALLEE)
    twice = [99 if n == 3 else 2 * n for n in range(32)]
    assert ran.words.tolist() == [99 if n == 3 else 2 * n for n in twice]


def test_recursion_is_named_as_unsupported() -> None:
    endless = ".func f() { call f, (); ret; }\n"
    with pytest.raises(Exception, match="calls itself"):
        run("call f, ();\n", before=endless)


def test_what_is_not_implemented_is_named_only_when_lanes_reach_it() -> None:
    product = "vadd.s32.s32.s32 %r1, %r1, %r1"
    body = f"setp.gt.u32 %p1, %r50, LEAST; @!%p1 bra over; {product};\nover:\n"
    assert not run(body.replace("LEAST", "500"), threads=128).result.unsupported
    ran = run(body.replace("LEAST", "3"), threads=128)
    line = next(n for n, each in enumerate(text(body).splitlines(), 1) if "vadd" in each)
    assert ran.result.unsupported.startswith("unsupported: vadd.s32.s32.s32 at")
    assert str(line) in ran.result.unsupported


def test_instructions_are_counted_by_warps_and_by_threads() -> None:
    body = "setp.lt.u32 %p1, %r50, 40; @%p1 add.u32 %r1, %r1, 1; @%p1 bra over; sub.u32 %r1, %r1, 1;\nover:\n"
    counts = {each.name: (each.warps, each.threads) for each in run(body, threads=96, grid=2).result.counts}
    assert counts["setp.lt.u32"] == (6, 192)
    assert counts["add.u32"] == (6, 80)
    assert counts["sub.u32"] == (4, 112)


@pytest.mark.parametrize(
    ("body", "counts"),
    [
        ("@%p1 ret; ret;\n", [("ret", 3, 40), ("ret", 2, 56)]),
        ("@%p1 exit; exit;\n", [("exit", 3, 40), ("exit", 2, 56)]),
        ("@%p1 bra over;\nover: ret;\n", [("bra", 3, 40), ("ret", 3, 96)]),
        ("@%p1 bar.sync 1, 64;\nret;\n", [("bar.sync", 3, 40), ("ret", 3, 96)]),
        ("@!%p1 bra over; bar.sync 1, 64;\nover: ret;\n", [("bra", 3, 56), ("bar.sync", 2, 40), ("ret", 3, 96)]),
        ("@!%p1 bra over; @%p1 ret;\nover: ret;\n", [("bra", 3, 56), ("ret", 2, 40), ("ret", 2, 56)]),
    ],
)
def test_ends_of_blocks_count_the_threads_whose_guard_is_true(body: str, counts: list[tuple[str, int, int]]) -> None:
    ran = run(f"setp.lt.u32 %p1, %r50, 40; {body}", threads=96).result
    executed = [(each.name, each.warps, each.threads) for each in ran.counts]
    assert executed[-len(counts) :] == counts


def test_an_endless_loop_ends_at_the_limit() -> None:
    assert run("l: add.u32 %r1, %r1, 1; bra l;\n", limit=10_000).error == "cudaErrorLaunchTimeout"


def test_a_trap_and_a_failed_assertion_stop_the_kernel() -> None:
    assert run("trap;\n").error == "cudaErrorLaunchFailure"
    before = ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e);\n"
    call = """{ .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
    call __assertfail, (a, b, c, d, e); }
    """
    assert run(call, before=before).error == "cudaErrorAssert"


SPECIALS = [
    ("%tid.x", lambda t, b: t),
    ("%ctaid.x", lambda t, b: b),
    ("%ntid.x", lambda t, b: 48),
    ("%nctaid.x", lambda t, b: 2),
    ("%laneid", lambda t, b: t % 32),
    ("%warpid", lambda t, b: t // 32),
    ("%lanemask_lt", lambda t, b: (1 << t % 32) - 1),
    ("%ctaid.y", lambda t, b: 0),
]


@pytest.mark.parametrize(("name", "value"), SPECIALS)
def test_special_registers(name: str, value: object) -> None:
    ran = run(f"mov.u32 %r1, {name};\n" + store(), threads=48, grid=2)
    assert callable(value)
    assert ran.words.tolist() == [value(t, b) for b in range(2) for t in range(48)]


def test_the_clock_goes_forward() -> None:
    ran = run(
        "mov.u64 %d1, %clock64; mov.u64 %d2, %clock64; setp.gt.u64 %p1, %d2, %d1; selp.u32 %r1, 1, 0, %p1;\n" + store()
    )
    assert set(ran.words.tolist()) == {1}


def test_blocks_wait_for_each_other_through_global_memory() -> None:
    """A spin on a flag that a later block sets: the later block must start meanwhile."""
    body = """setp.eq.u32 %p1, %r51, 1; @%p1 bra give;
    l: ld.acquire.gpu.global.u32 %r1, [%d50+128]; setp.eq.u32 %p2, %r1, 0; @%p2 bra l; bra done;
    give: mov.u32 %r1, 9; st.release.gpu.global.u32 [%d50+128], %r1;
    done:
    """
    ran = run(body + store(), grid=2, words=65)
    assert not ran.result.error
    assert set(ran.words[:32].tolist()) == {9}


def test_a_spin_that_nobody_ends_is_a_deadlock() -> None:
    body = "l: ld.acquire.gpu.global.u32 %r1, [%d50]; setp.eq.u32 %p2, %r1, 0; @%p2 bra l;\n"
    assert run(body).error == "deadlock"


REFUSED = [
    (
        KernelLaunch("k", (3, 1, 1), (32, 1, 1), (2, 1, 1), parameters=(bytes(8), bytes(8))),
        "cudaErrorInvalidClusterSize",
    ),
    (KernelLaunch("k", (1, 1, 1), (2048, 1, 1), parameters=(bytes(8), bytes(8))), "cudaErrorInvalidConfiguration"),
    (KernelLaunch("k", (1, 1, 1), (32, 1, 1), parameters=(bytes(8),)), "cudaErrorInvalidValue"),
    (KernelLaunch("other", (1, 1, 1), (32, 1, 1)), "cudaErrorInvalidDeviceFunction"),
]


@pytest.mark.parametrize(("launch", "error"), REFUSED)
def test_a_launch_that_cuda_refuses_is_refused(launch: KernelLaunch, error: str) -> None:
    with pytest.raises(Fault, match=error):
        run_launch(parse(text("")), launch, DeviceMemory(1 << 24), Policy())
