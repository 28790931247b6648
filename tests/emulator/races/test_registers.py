"""Registers of asynchronous instructions before their wait: each use is found, and its waiting twin is clean."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.blackwell.tiny import allocated, numbered, registers
from tests.emulator.blackwell.tiny import run as run_blackwell
from tests.emulator.core.small import Ran, run

CELLS = ".shared .align 128 .b32 cell[128];\n"
PRODUCT = """
mov.u32 %r40, cell; shl.b32 %r41, %r50, 2; add.u32 %r42, %r40, %r41; st.shared.u32 [%r42], 0x3f803f80;
shr.u32 %r43, %r40, 4; cvt.u64.u32 %d1, %r43; or.b64 %d1, %d1, 0x1000080000; fence.proxy.async; bar.sync 0;
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0; setp.eq.u32 %p1, %r50, %r50;
mov.b32 %r1, 0x3f803f80; mov.b32 %r2, %r1; mov.b32 %r3, %r1; mov.b32 %r4, %r1;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f0, %f1, %f2, %f3}, {%r1, %r2, %r3, %r4}, %d1, %p1, 1, 1, 0;
"""
"""Ones by ones: each result is 16."""
COMMIT = "wgmma.commit_group.sync.aligned;\n"
WAIT = "wgmma.wait_group.sync.aligned 0;\n"
OUT = "cvt.rni.u32.f32 %r5, %f0; st.global.u32 [%d51], %r5;\n"
USES = {
    "an accumulator read": ("add.f32 %f4, %f0, %f1;\n", "accumulator-before-wait"),
    "an accumulator written": ("mov.f32 %f3, 0f3f800000;\n", "accumulator-before-wait"),
    "a register of A written": ("mov.b32 %r2, 0;\n", "operand-before-wait"),
    "a register of A written under a guard": ("@%p1 mov.b32 %r4, 0;\n", "operand-before-wait"),
}


def hopper(text: str, schedule: str = "late") -> Ran:
    """One warpgroup."""
    return run(text, threads=128, before=CELLS, schedules=(schedule,))


@pytest.mark.parametrize("committed", [COMMIT, ""])
@pytest.mark.parametrize("name", USES)
def test_a_register_of_a_product_that_nobody_waited_for_is_found(name: str, committed: str) -> None:
    use, rule = USES[name]
    ran = hopper(PRODUCT + committed + use + ("" if committed else COMMIT) + WAIT + OUT)
    assert [(each.rule, each.severity) for each in ran.result.findings] == [(rule, "lint")]
    assert "wgmma.wait_group" in ran.result.findings[0].hint
    assert (ran.words == 16).all(), "ptxas repairs it, so the numbers are those of a product that was waited for"


@pytest.mark.parametrize("name", USES)
def test_nothing_is_found_behind_the_wait(name: str) -> None:
    ran = hopper(PRODUCT + COMMIT + WAIT + USES[name][0] + OUT)
    assert not ran.result.findings
    assert (ran.words == 16).all()


def test_reading_registers_of_a_is_no_hazard() -> None:
    ran = hopper(PRODUCT + COMMIT + "add.u32 %r6, %r1, %r2;\n" + WAIT + OUT)
    assert not ran.result.findings


LOAD = (
    numbered(1, 2)
    + f"tcgen05.st.sync.aligned.32x32b.x2.b32 [%r301], {registers(1, 2)};\ntcgen05.wait::st.sync.aligned;\n"
)
LOAD += f"tcgen05.ld.sync.aligned.32x32b.x2.b32 {registers(3, 2)}, [%r301];\n"
USE = "add.u32 %r5, %r3, %r4;\n"
LOADED = "tcgen05.wait::ld.sync.aligned;\n"


def test_a_loaded_register_is_found_when_it_is_used_before_its_wait() -> None:
    wrong = run_blackwell(allocated(LOAD + USE + LOADED + "st.global.u32 [%d51], %r5;"))
    assert [(each.rule, each.severity) for each in wrong.result.findings] == [("register-before-wait", "warning")]
    right = run_blackwell(allocated(LOAD + LOADED + USE + "st.global.u32 [%d51], %r5;"))
    assert not right.result.findings
    assert (right.words == 2000 * np.arange(128) + 1).all()
