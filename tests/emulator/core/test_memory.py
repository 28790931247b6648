"""Memory as lanes see it: bounds, alignment, spaces, widths, atomics; and host allocations."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.emulator.core.small import run, store, text

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.memory import BASE, DeviceMemory

GIVEN = "ld.param.u64 %d1, [given];\n"


def test_device_addresses_are_not_addresses_of_the_host() -> None:
    memory = DeviceMemory(1 << 24)
    address = memory.allocate(100)
    assert address > BASE
    memory.write(address, b"abc")
    assert memory.read(address, 4) == b"abc\0"


def test_accesses_are_checked_to_the_byte() -> None:
    memory = DeviceMemory(1 << 24)
    address = memory.allocate(100)
    memory.check(address + 99, 1)
    for bad in (address - 1, address + 97):
        with pytest.raises(Fault, match="cudaErrorIllegalAddress"):
            memory.check(bad, 4)


def test_freed_memory_cannot_be_used_and_its_address_does_not_come_again() -> None:
    memory = DeviceMemory(1 << 24)
    address = memory.allocate(1 << 16)
    memory.free(address)
    with pytest.raises(Fault):
        memory.read(address, 4)
    assert memory.allocate(1 << 16) != address
    with pytest.raises(Fault):
        memory.free(address)


def test_more_than_the_capacity_is_refused() -> None:
    with pytest.raises(Fault, match="cudaErrorMemoryAllocation"):
        DeviceMemory(1 << 20).allocate(1 << 21)


OUTSIDE = [
    ("st.global.u32 [%d50+128], %r50;", "cudaErrorIllegalAddress", "out-of-bounds"),
    ("st.global.u32 [%d50+-4], %r50;", "cudaErrorIllegalAddress", "out-of-bounds"),
    ("st.global.u16 [%d50+1], %h1;", "cudaErrorMisalignedAddress", "misaligned"),
    ("ld.global.v4.u32 {%r1,%r2,%r3,%r4}, [%d50+8];", "cudaErrorMisalignedAddress", "misaligned"),
    ("mov.u64 %d2, 0; ld.u32 %r1, [%d2];", "cudaErrorIllegalAddress", "out-of-bounds"),
    ("mov.u32 %r1, 0x440; ld.shared.u32 %r2, [%r1];", "cudaErrorIllegalAddress", "out-of-bounds"),
    ("mov.u32 %r1, 0x402; ld.shared.u32 %r2, [%r1];", "cudaErrorMisalignedAddress", "misaligned"),
]


@pytest.mark.parametrize(("statement", "error", "rule"), OUTSIDE)
def test_a_bad_address_stops_the_kernel_with_line_and_rule(statement: str, error: str, rule: str) -> None:
    before = ".shared .align 16 .b8 cell[64];"
    ran = run(statement, before=before)
    assert ran.error == error
    assert rule in ran.rules
    assert f"PTX line {text(statement, before).splitlines().index(statement) + 1}:" in ran.result.error


def test_the_system_area_of_shared_memory_is_silently_there() -> None:
    ran = run("mov.u32 %r1, 0; st.shared.u32 [%r1], 9; ld.shared.u32 %r1, [%r1];\n" + store(), threads=1, shared=16)
    assert not ran.result.error
    assert ran.words[0] == 9


def test_lanes_outside_the_mask_touch_nothing() -> None:
    body = "setp.lt.u32 %p1, %r50, 3; mov.u64 %d2, 0; @%p1 mov.u64 %d2, %d51; @%p1 st.global.u32 [%d2], 7;\n"
    assert run(body).words.tolist() == [7, 7, 7] + [0] * 29


WIDTHS = [
    ("ld.global.u8 %r1, [%d1+1];", 0xFF),
    ("ld.global.s8 %r1, [%d1+1];", 0xFFFFFFFF),
    ("ld.global.s16 %r1, [%d1];", 0xFFFFFF80),
    ("ld.global.u16 %r1, [%d1];", 0xFF80),
    ("ld.global.v2.u32 {%r2, %r1}, [%d1];", 0x04030201),
    ("ld.global.u64 %d2, [%d1]; shr.u64 %d2, %d2, 32; cvt.u32.u64 %r1, %d2;", 0x04030201),
    ("ld.u32 %r1, [%d1+4];", 0x04030201),
    ("ld.global.nc.u32 %r1, [%d1+4];", 0x04030201),
]


@pytest.mark.parametrize(("statement", "value"), WIDTHS)
def test_a_load_extends_to_its_register(statement: str, value: int) -> None:
    given = bytes([0x80, 0xFF, 0x12, 0x34, 1, 2, 3, 4])
    assert set(run(GIVEN + statement + "\n" + store(), given=given).words.tolist()) == {value}


def test_local_memory_is_each_lanes_own() -> None:
    body = """mov.u64 %d2, place; cvta.local.u64 %d3, %d2; st.u32 [%d3+4], %r50; ld.local.u32 %r1, [place+4];
    """
    assert run(".local .align 8 .b8 place[16];\n" + body + store()).words.tolist() == list(range(32))


def test_a_generic_address_of_shared_memory_leads_there() -> None:
    body = """mov.u32 %r2, cell; cvt.u64.u32 %d2, %r2; cvta.shared.u64 %d3, %d2; st.u32 [%d3], 5;
    ld.shared.u32 %r1, [cell]; cvta.to.shared.u64 %d4, %d3; setp.eq.u64 %p1, %d4, %d2;
    isspacep.shared %p2, %d3; isspacep.global %p3, %d50; and.pred %p1, %p1, %p2; and.pred %p1, %p1, %p3;
    @!%p1 mov.u32 %r1, 0;
    """
    ran = run(body + store(), before=".shared .align 4 .b8 cell[64];")
    assert set(ran.words.tolist()) == {5}


def test_lanes_of_one_access_may_use_several_allocations() -> None:
    body = GIVEN + "setp.lt.u32 %p1, %r50, 16; selp.b64 %d2, %d1, %d51, %p1; ld.global.u32 %r1, [%d2];\n"
    ran = run(body + store(), given=struct.pack("<4I", 8, 0, 0, 0))
    assert ran.words.tolist() == [8] * 16 + [0] * 16


def test_global_variables_have_their_initial_values_and_addresses() -> None:
    before = ".global .align 8 .u64 there = table;\n.const .align 4 .u32 table[3] = {4, 5, 6};"
    ran = run("ld.global.u64 %d2, [there]; ld.const.u32 %r1, [%d2+8];\n" + store(), before=before)
    assert set(ran.words.tolist()) == {6}


ATOMICS = [
    ("atom.global.add.u32 %r2, [%d50], 1;", 32, 0),
    ("red.global.add.u32 [%d50], %r50;", 496, 0),
    ("red.global.max.s32 [%d50], %r50;", 31, 0),
    ("red.global.or.b32 [%d50], %r50;", 31, 0),
    ("atom.global.inc.u32 %r2, [%d50], 9;", 2, 0),
    ("atom.global.exch.b32 %r2, [%d50], %r50;", 31, 0),
    ("atom.global.cas.b32 %r2, [%d50], %r50, 5;", 5, 0),
]


@pytest.mark.parametrize(("statement", "total", "unused"), ATOMICS)
def test_atomics_act_lane_after_lane(statement: str, total: int, unused: int) -> None:
    assert run(statement).words[0] == total


def test_atomics_answer_the_value_before() -> None:
    ran = run("atom.shared.add.u32 %r1, [cell], 2;\n" + store(), before=".shared .align 4 .u32 cell;", checks=False)
    assert ran.words.tolist() == list(range(0, 64, 2))


def test_float_reductions_add_in_the_order_of_lanes() -> None:
    body = "cvt.rn.f32.u32 %f1, %r50; add.f32 %f1, %f1, 0f3DCCCCCD; red.global.add.f32 [%d50], %f1;\n"
    total = np.float32(0)
    for lane in range(32):
        total += np.float32(lane) + np.float32(0.1)
    assert run(body).words[0] == total.view(np.uint32)


def test_packed_halves_are_added_apart() -> None:
    ran = run("mov.b32 %r1, 0x3C004000; red.global.add.noftz.f16x2 [%d50], %r1;\n", threads=4, words=1)
    assert ran.words[0] == 0x44004800
