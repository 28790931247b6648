"""Tensor maps that a kernel makes in memory: each missing fence is found, and its repaired twin is clean and right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from tests.emulator.blackwell.tiny import Ran, run

from ptxbench.emulator.async_.tensormap import TensorMap, Type, to_bytes

DATA = np.arange(100, 132, dtype=np.uint32)
_DATA_AT, _THERE = 4096, 1024
HEAD = f"""
add.u64 %d1, %d52, {_THERE}; cvta.to.global.u64 %d1, %d1; mul.wide.u32 %d2, %r350, 4; add.u64 %d3, %d52, %d2;
ld.global.u32 %r1, [%d3]; add.u64 %d4, %d1, %d2; mov.u32 %r2, 0; mov.u32 %r10, tile; shl.b32 %r11, %r350, 2;
add.u32 %r12, %r10, %r11; add.u64 %d5, %d52, {_DATA_AT}; @%p19 mbarrier.init.shared::cta.b64 [bar], 1;
bar.warp.sync 0xffffffff;
"""
STORE = "st.global.u32 [%d4], %r1;\n"
RELEASE = "fence.proxy.tensormap::generic.release.gpu;\n"
ACQUIRE = "fence.proxy.tensormap::generic.acquire.gpu [%d1], 128;\n"
SYNC = "bar.warp.sync 0xffffffff;\n"
LOAD = """@%p19 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
@%p19 cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%d1, {%r2}], [bar];
"""
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;\n"
OUT = "ld.shared.u32 %r3, [%r12]; st.global.u32 [%d51], %r3;\n"
REPLACE = "@%p19 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [tile+512], %d5;\n"
PUBLISH = (
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%d1], [tile+512], 128;\n"
)


@dataclass(frozen=True)
class Program:
    """One mistake.

    Attributes:
        body: Statements; `{fix}` stands for what is missing.
        rule: What must be found.
        words: What its message must say.
    """

    body: str
    fixed: str
    rule: str
    words: str
    broken: str = ""
    severity: str = "error"


PROGRAMS = {
    "no release behind the edit": Program(
        STORE + "{fix}" + SYNC + ACQUIRE + LOAD + WAIT + OUT, RELEASE, "proxy-fence", "generic.release by the editor"
    ),
    "no acquire before the use": Program(
        STORE + RELEASE + SYNC + "{fix}" + LOAD + WAIT + OUT, ACQUIRE, "proxy-fence", "generic.acquire by its issuer"
    ),
    "an acquire before the edit": Program(
        ACQUIRE + STORE + RELEASE + SYNC + "{fix}" + LOAD + WAIT + OUT, ACQUIRE, "proxy-fence", "generic.acquire"
    ),
    "an acquire by another lane alone": Program(
        STORE + RELEASE + SYNC + "{fix}" + LOAD + WAIT + OUT,
        ACQUIRE,
        "proxy-fence",
        "generic.acquire",
        broken="@!%p19 " + ACQUIRE,
        severity="warning",
    ),
    "nothing between the lanes that edit and the one that uses": Program(
        STORE + RELEASE + "{fix}" + ACQUIRE + LOAD + WAIT + OUT, SYNC, "race", "nothing orders the two"
    ),
    "an edit while a copy may still read the map": Program(
        STORE + RELEASE + SYNC + ACQUIRE + LOAD + "{fix}" + "@%p19 st.global.u32 [%d1], 0;\n" + SYNC + WAIT + OUT,
        WAIT.replace("W", "V"),
        "race",
        "TMA load",
    ),
    "a map in shared memory published before all lanes wrote it": Program(
        "st.shared.u32 [%r12+512], %r1;\n{fix}" + REPLACE + SYNC + PUBLISH + ACQUIRE + LOAD + WAIT + OUT,
        SYNC,
        "race",
        "tensormap.replace",
    ),
    "a published map without acquire": Program(
        "st.shared.u32 [%r12+512], %r1;\n" + SYNC + REPLACE + SYNC + PUBLISH + "{fix}" + LOAD + WAIT + OUT,
        ACQUIRE,
        "proxy-fence",
        "tensormap.cp_fenceproxy",
    ),
}


def given(address: int) -> bytes:
    """A map of 32 words, then the words."""
    made = to_bytes(TensorMap(Type.U32, address + _DATA_AT, (32,), (), (32,), (1,)))
    return made + bytes(_DATA_AT - len(made)) + DATA.tobytes()


def ran(program: Program, *, fixed: bool) -> Ran:
    """One warp."""
    body = HEAD + program.body.replace("{fix}", program.fixed if fixed else program.broken)
    return run(body, threads=32, given=given, races=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_missing_order_of_an_edited_map_is_found(name: str) -> None:
    program = PROGRAMS[name]
    result = ran(program, fixed=False).result
    found = [each for each in result.findings if each.rule == program.rule and each.severity == program.severity]
    assert found, result.findings
    assert any(program.words in each.message for each in found), [each.message for each in found]
    assert all(each.line and each.hint and each.message.count("line ") >= 2 for each in found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_found_in_the_repaired_twin_and_the_copy_is_right(name: str) -> None:
    made = ran(PROGRAMS[name], fixed=True)
    assert (made.result.error, made.result.unsupported, made.result.findings) == ("", "", ())
    assert (made.words == DATA).all()


def test_a_map_that_came_with_the_launch_needs_no_fence() -> None:
    body = HEAD + LOAD.replace("%d1,", "%d52,") + WAIT + OUT
    made = run(body, threads=32, given=given, races=True)
    assert not made.result.findings
    assert (made.words == DATA).all()
