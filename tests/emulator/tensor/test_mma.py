"""mma.sync on registers of several warps, against matrix products in float64 and Python integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor.formats import FORMATS
from ptxbench.emulator.tensor.fragments import mma_a, mma_b, mma_c
from ptxbench.emulator.tensor.mma import Mma

WARPS = 2
TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "f32": np.float32,
    "f64": np.float64,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def _values(name: str, rows: int, columns: int, seed: int) -> tuple[NDArray[Any], NDArray[np.float64]]:
    drawn = np.random.default_rng(seed).normal(size=(WARPS, rows, columns)).astype(TYPES[name])
    bits = drawn.view(f"uint{FORMATS[name].bits}")
    if name == "tf32":
        bits = bits & np.uint32(0xFFFFE000)
    return bits, bits.view(drawn.dtype).astype(np.float64)


FLOATING = [
    (16, 8, "f16", "f16", "f16"),
    (16, 8, "f16", "f16", "f32"),
    (16, 8, "bf16", "bf16", "f32"),
    (16, 16, "f16", "f16", "f16"),
    (16, 16, "f16", "f16", "f32"),
    (16, 16, "bf16", "bf16", "f32"),
    (16, 4, "tf32", "tf32", "f32"),
    (16, 8, "tf32", "tf32", "f32"),
    (16, 16, "e4m3", "e5m2", "f32"),
    (16, 32, "e5m2", "e4m3", "f32"),
    (16, 32, "e4m3", "e4m3", "f16"),
    (8, 4, "f64", "f64", "f64"),
    (16, 4, "f64", "f64", "f64"),
    (16, 8, "f64", "f64", "f64"),
    (16, 16, "f64", "f64", "f64"),
]


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize(("m", "k", "a", "b", "d"), FLOATING)
def test_floating_products_are_near_the_exact_ones(m: int, k: int, a: str, b: str, d: str, mode: str) -> None:
    form = Mma(m, k, (FORMATS[a], FORMATS[b]), FORMATS[d], native=FORMATS[a].bits != 8)
    (a_bits, left), (b_bits, right), (c_bits, c) = _values(a, m, k, 1), _values(b, 8, k, 2), _values(d, m, 8, 3)
    made = form.multiply(
        list(mma_a(m, k, FORMATS[a].bits).spread(a_bits)),
        list(mma_b(k, FORMATS[b].bits).spread(b_bits)),
        list(mma_c(m, FORMATS[d].bits).spread(c_bits)),
        mode,
    )
    result = mma_c(m, FORMATS[d].bits).matrix(made).view(TYPES[d]).astype(np.float64)
    scale = np.abs(left) @ np.abs(right).swapaxes(1, 2) + np.abs(c)
    tolerance = {"f16": 2.0**-9, "f32": 2.0**-20, "f64": 2.0**-50}[d]
    assert (np.abs(result - (left @ right.swapaxes(1, 2) + c)) <= tolerance * scale).all()


INTEGER = [(8, 16, "s8", "u8"), (16, 16, "u8", "s8"), (16, 32, "s8", "s8"), (8, 32, "s4", "u4"), (16, 64, "u4", "s4")]


def _elements(name: str, words: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Integers in words, lowest bits first: [words, elements]."""
    size = FORMATS[name].bits
    fields = words.astype(np.int64)[..., None] >> (size * np.arange(32 // size)) & ((1 << size) - 1)
    return np.where((fields >> (size - 1) > 0) & (name[0] == "s"), fields - (1 << size), fields)


@pytest.mark.parametrize(("m", "k", "a", "b"), INTEGER)
def test_integer_products_are_exact(m: int, k: int, a: str, b: str) -> None:
    """Each output from the lanes that the ISA names: row g from lanes 4g to 4g+3, column n likewise from B."""
    rng = np.random.default_rng(4)
    form = Mma(m, k, (FORMATS[a], FORMATS[b]), FORMATS["s32"])
    places = 32 // FORMATS[a].bits
    depth_registers = k // (4 * places)
    a_registers = rng.integers(0, 2**32, (depth_registers * m // 8, 32), np.uint32)
    b_registers = rng.integers(0, 2**32, (depth_registers, 32), np.uint32)
    c_registers = rng.integers(0, 2**32, (m // 4, 32), np.uint32)
    made = form.multiply(a_registers, b_registers, c_registers)
    for register in range(m // 4):
        for lane in (0, 3, 17, 31):
            g, t = divmod(lane, 4)
            upper, column = register // 2, 2 * t + register % 2
            total = int(c_registers[register, lane].astype(np.int32))
            for part in range(depth_registers):
                row = a_registers[part * (m // 8) + upper, 4 * g : 4 * g + 4]
                other = b_registers[part, 4 * column : 4 * column + 4]
                total += int((_elements(a, row) * _elements(b, other)).sum())
            assert made[register, lane] == total & 0xFFFFFFFF


@pytest.mark.parametrize("xor", [False, True])
def test_single_bits_are_combined_and_counted(xor: bool) -> None:
    rng = np.random.default_rng(5)
    form = Mma(16, 256, (FORMATS["b1"],) * 2, FORMATS["s32"], xor=xor)
    a, b = rng.integers(0, 2**32, (4, 32), np.uint32), rng.integers(0, 2**32, (2, 32), np.uint32)
    made = form.multiply(a, b, np.zeros((4, 32), np.uint32))
    combine = np.bitwise_xor if xor else np.bitwise_and
    expected = sum(int(np.bitwise_count(combine(a[2 * i, 4:8], b[i, 8:12])).sum()) for i in range(2))
    assert made[0, 4 + 1] == expected  # row 1, column 2


def test_satfinite_clamps() -> None:
    form = Mma(16, 16, (FORMATS["s8"],) * 2, FORMATS["s32"], satfinite=True)
    a, b = np.full((2, 32), 0x7F7F7F7F, np.uint32), np.full((1, 32), 0x7F7F7F7F, np.uint32)
    assert (form.multiply(a, b, np.full((4, 32), 0x7FFFFFFF, np.uint32)) == 0x7FFFFFFF).all()


def test_the_static_form_is_read_from_the_instruction(instruction: Callable[..., Instruction]) -> None:
    four = "{%r1,%r2,%r3,%r4}"
    text = f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {four}, {four}, {{%r9,%r10}}, {four};"
    assert Mma.parse(instruction(text)) == Mma(16, 16, (FORMATS["bf16"],) * 2, FORMATS["f32"])
    bits = "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc {%r1,%r2},{%r3},{%r4},{%r5,%r6};"
    assert Mma.parse(instruction(bits)) == Mma(8, 128, (FORMATS["b1"],) * 2, FORMATS["s32"], xor=True)
    clamped = f"mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s4.u4.s32 {four}, {{%r5,%r6}}, {{%r9}}, {four};"
    assert Mma.parse(instruction(clamped)) == Mma(
        16, 32, (FORMATS["s4"], FORMATS["u4"]), FORMATS["s32"], satfinite=True
    )
    fp8 = f"f32.e4m3.e5m2.f32 {four}, {four}, {{%r9, %r10}}, {four};"
    for kind, native in (("", False), ("kind::f8f6f4.", True)):
        made = Mma.parse(instruction(f"mma.sync.aligned.m16n8k32.row.col.{kind}{fp8}", "sm_100a"))
        assert made == Mma(16, 32, (FORMATS["e4m3"], FORMATS["e5m2"]), FORMATS["f32"], native=native)
    with pytest.raises(Unsupported):
        Mma.parse(instruction("add.u32 %r1, %r2, %r3;"))


@pytest.mark.parametrize("rounding", ["rn", "rz", "rm", "rp"])
def test_float64_products_round_each_step_in_their_direction(rounding: str) -> None:
    form = Mma(8, 4, (FORMATS["f64"],) * 2, FORMATS["f64"], rounding)
    a, b = np.full((1, 32), 1.0).view(np.uint64), np.full((1, 32), 2.0**-60).view(np.uint64)
    made = form.multiply(a, b, np.full((2, 32), 1.0).view(np.uint64), "exact").view(np.float64)
    steps = 4 * 2.0**-52 if rounding == "rp" else 0.0
    assert (made == 1.0 + steps).all()
