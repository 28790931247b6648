"""Hostile kernels end as a result: mutated texts, endless loops, wild addresses, bombs; never a crash or a hang."""

from __future__ import annotations

import random
import resource
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.emulator.evidence.bench import Bench, pointer
from tests.emulator.ptx.texts import COMPILED, compiled

from ptxbench.emulator.errors import Fault, PtxError, Unsupported
from ptxbench.emulator.launch import KernelLaunch, LaunchResult, Policy, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.parse import parse

LIMIT = 20_000
MAX_SECONDS = 20.0
HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
START = """.visible .entry k(.param .u64 out) {
.reg .pred p<8>; .reg .b16 h<8>; .reg .b32 r<64>; .reg .f32 f<16>; .reg .b64 d<16>;
.shared .align 1024 .b8 tile[4096]; .shared .align 8 .b8 barrier[16];
ld.param.u64 d0, [out]; mov.u32 r0, %tid.x; mov.u32 r1, tile; mov.u32 r2, barrier;
"""
STATEMENTS = (
    *(
        "add.s32 r3, r0, r1;",
        "mul.wide.u32 d1, r0, r3;",
        "setp.lt.u32 p0, r0, 7;",
        "@p0 bra L;",
        "bra M;",
        "L: ",
        "M: ",
    ),
    *("@!p0 bra L;", "@p0 ret;", "exit;", "bar.sync 0;", "bar.sync r3, 32;", "bar.arrive 1, 64;", "trap;"),
    *("ld.shared.b32 r4, [r1];", "st.shared.b32 [r3], r0;", "st.shared.v4.b32 [r1+16], {r0, r1, r2, r3};"),
    *(
        "ld.global.b32 r5, [d0];",
        "st.global.b32 [d1], r5;",
        "atom.global.add.u32 r6, [d0], 1;",
        "ld.local.b32 r7, [r3];",
    ),
    *("mbarrier.init.shared::cta.b64 [r2], 1;", "mbarrier.init.shared::cta.b64 [r2], r3;"),
    *("mbarrier.arrive.shared::cta.b64 _, [r2];", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [r2], r3;"),
    *("mbarrier.try_wait.parity.shared::cta.b64 p1, [r2], 0;", "mbarrier.inval.shared::cta.b64 [r2];"),
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], r3, [r2];",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [r1], [d0], 4080, [r2];",
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [r1], [d0, {r0, r3}], [r2];",
    *("cp.async.bulk.commit_group;", "cp.async.bulk.wait_group 0;", "cp.async.ca.shared.global [r1], [d0], 16;"),
    *("wgmma.fence.sync.aligned;", "wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"),
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, d1, d2, p0, 1, 1, 0, 0;",
    *("shfl.sync.idx.b32 r8|p2, r0, r3, 31, -1;", "vote.sync.ballot.b32 r9, p0, -1;", "elect.sync r10|p3, r3;"),
    *("activemask.b32 r11;", "div.u32 r12, r0, r13;", "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {r14}, [r1];"),
    *("mapa.shared::cluster.u32 r15, r1, r3;", "st.shared::cluster.b32 [r15], r0;", "barrier.cluster.arrive;"),
    *("barrier.cluster.wait;", "setmaxnreg.inc.sync.aligned.u32 240;", "nanosleep.u32 r3;", "fence.proxy.async;"),
)


def launched(text: str, threads: int = 128) -> LaunchResult | PtxError | Fault | Unsupported:
    """What becomes of a text: a result, or a refusal; in bounded time."""
    start = time.process_time()
    try:
        module = parse(text)
        name = next((each.name for each in module.functions.values() if each.entry), "")
        memory = DeviceMemory(1 << 22)
        address = memory.allocate(4096)
        entry = module.functions.get(name)
        count = len(entry.parameters) if entry else 0
        sizes = [each.size for each in entry.parameters] if entry else []
        given_ = tuple(pointer(address).ljust(size, b"\0")[:size] for size in sizes[:count])
        launch = KernelLaunch(name, (2, 1, 1), (threads, 1, 1), dynamic_shared=2048, parameters=given_)
        result: LaunchResult | PtxError | Fault | Unsupported = run_launch(
            module, launch, memory, Policy(("late", "seed 1"), limit=LIMIT)
        )
    except (PtxError, Fault, Unsupported) as refused:
        result = refused
    assert time.process_time() - start < MAX_SECONDS
    return result


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.sampled_from(STATEMENTS), max_size=14), st.sampled_from((1, 32, 128, 160)))
def test_statements_in_any_order_end_as_a_result(statements: list[str], threads: int) -> None:
    body = "\n".join(
        each for place, each in enumerate(statements) if each[1:2] != ":" or each not in statements[:place]
    )
    ends = "".join(f"{label}: " for label in "LM" if f"{label}: " not in statements)
    launched(f"{HEAD}{START}{body}\n{ends}ret;\n}}\n", threads)


KERNEL = compiled(next(name for name in COMPILED if name.startswith("gemm.sm_90a")))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_a_kernel_with_lines_changed_ends_as_a_result(random_: random.Random) -> None:
    lines = KERNEL.splitlines()
    body = [place for place, line in enumerate(lines) if line.endswith(";") and "\t" in line]
    for _ in range(random_.randrange(1, 5)):
        place, other = random_.choice(body), random_.choice(body)
        change = random_.randrange(3)
        lines[place] = ("", lines[other], lines[place] + "\n" + lines[other])[change]
    launched("\n".join(lines))


@pytest.mark.parametrize(
    "body",
    [
        "L: bra L;",
        "L: add.s32 r3, r3, 1; bra L;",
        "L: ld.volatile.global.u32 r3, [d0]; setp.eq.u32 p0, r3, 0; @p0 bra L;",
        "setp.ne.u32 p1, r0, 0; @p1 ret; L: atom.global.add.u32 r3, [d0], 1; setp.ne.u32 p0, r3, -1; @p0 bra L;",
        "L: nanosleep.u32 100; bra L;",
        "mbarrier.init.shared::cta.b64 [r2], 1; L: mbarrier.test_wait.parity.shared::cta.b64 p1, [r2], 0; @!p1 bra L;",
        "mbarrier.init.shared::cta.b64 [r2], 1; L: mbarrier.try_wait.parity.shared::cta.b64 p1, [r2], 0; @!p1 bra L;",
        "setp.lt.u32 p0, r0, 32; @p0 ret; bar.sync 1, 128;",
    ],
)
def test_a_kernel_that_never_ends_is_ended(body: str) -> None:
    result = launched(f"{HEAD}{START}{body}\nret;\n}}\n")
    assert isinstance(result, LaunchResult), result
    assert result.error.startswith(("deadlock", "cudaErrorLaunchTimeout")), result.error


def test_endless_recursion_is_a_result() -> None:
    text = f"{HEAD}.func f() {{ call f, (); ret; }}\n{START}call f, ();\nret;\n}}\n"
    result = launched(text)
    assert not isinstance(result, LaunchResult) or result.error or result.unsupported


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD}.global .b8 g[1099511627776];\n{START}ret;\n}}\n",
        f"{HEAD}.shared .b8 g[1099511627776];\n{START}ret;\n}}\n",
        f"{HEAD}{START}.local .b8 x[1099511627776];\nmov.u32 r3, x; st.local.b32 [r3], r0;\nret;\n}}\n",
    ],
)
def test_a_bomb_of_memory_is_refused(text: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = launched(text)
    assert not isinstance(result, LaunchResult) or result.error or result.unsupported
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KiB


def test_a_grid_of_billions_ends_by_the_limit() -> None:
    bench = Bench(Policy(limit=5_000))
    launch = KernelLaunch("k", ((1 << 31) - 1, 1, 1), (32, 1, 1), parameters=(pointer(0),))
    assert bench.launch(parse(f"{HEAD}{START}ret;\n}}\n"), launch).error.startswith("cudaErrorLaunchTimeout")


@pytest.mark.parametrize(
    ("grid", "block", "shared"),
    [
        ((1 << 31, 1, 1), (32, 1, 1), 0),
        ((1, 1 << 16, 1), (32, 1, 1), 0),
        ((1, 1, 1), (1 << 20, 1, 1), 0),
        ((1, 1, 1), (32, 1, 1), 1 << 40),
    ],
)
def test_a_launch_that_no_device_takes_is_refused(
    grid: tuple[int, int, int], block: tuple[int, int, int], shared: int
) -> None:
    module = parse(f"{HEAD}{START}ret;\n}}\n")
    bench = Bench()
    with pytest.raises(Fault):
        bench.launch(module, KernelLaunch("k", grid, block, dynamic_shared=shared, parameters=(pointer(0),)))
