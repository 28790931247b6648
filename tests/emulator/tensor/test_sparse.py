"""Sparse products: metadata by the ISA's figures, bit by bit, and products against dense ones in Python numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor.exact import WIDE, fused
from ptxbench.emulator.tensor.formats import FORMATS, Bits
from ptxbench.emulator.tensor.fragments import mma_a, mma_b, mma_c, wgmma_d
from ptxbench.emulator.tensor.mma import Mma
from ptxbench.emulator.tensor.sparse import Sparsity
from ptxbench.emulator.tensor.wgmma import Wgmma

WARPS = 2
ORDERED = [(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)]
TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def holder(width: int, depth: int, row: int, column: int, selector: int) -> tuple[int, int]:
    """Lane and first bit of the metadata for the chunk with an element of A, as the figures of the ISA have it."""
    chunk = column // {4: 8, 32: 2}.get(width, 4)
    half, g = divmod(row, 8)
    if width >= 16:
        return 4 * g + chunk // 4 + selector * max(
            depth * (2 if width == 32 else 1) // 16, 1
        ), 16 * half + chunk % 4 * 4
    return 4 * g + half + 2 * (chunk // 8) + 2 * selector, chunk % 8 * 4


class Drawn:
    """A random sparse A: what it keeps, where that lies, and the metadata that says so."""

    def __init__(self, sparsity: Sparsity, rows: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        size = {4: 8, 32: 2}.get(sparsity.width, 4)
        chunks = sparsity.depth // size
        self.words = rng.integers(0, 2**32, 2 * rows, np.uint32)
        self.positions = np.zeros((rows, sparsity.depth // 2), np.int64)
        for row in range(rows):
            for chunk in range(chunks):
                pair = ORDERED[rng.integers(6)] if sparsity.width != 32 else ORDERED[5 * rng.integers(2)]
                if not sparsity.ordered and sparsity.width != 32 and rng.integers(2):
                    pair = pair[::-1]
                lane, bit = holder(sparsity.width, sparsity.depth, row % 16, size * chunk, sparsity.selector)
                self._write(row // 16 * 32 + lane, bit, pair[0] | pair[1] << 2)
                kept = {4: [2 * pair[0], 2 * pair[0] + 1, 2 * pair[1], 2 * pair[1] + 1], 32: [pair[0] // 2]}
                places = kept.get(sparsity.width, list(pair))
                self.positions[row, len(places) * chunk : len(places) * (chunk + 1)] = [
                    size * chunk + p for p in places
                ]

    def _write(self, lane: int, bit: int, value: int) -> None:
        cleared = int(self.words[lane]) & ~(15 << bit)
        self.words[lane] = cleared | value << bit


SPARSITIES = [
    Sparsity(16, 16, 3, True),
    Sparsity(16, 16, 0, False),
    Sparsity(16, 32, 1, False),
    Sparsity(32, 8, 2, True),
    Sparsity(32, 16, 1, False),
    Sparsity(8, 32, 1, True),
    Sparsity(8, 64, 0, False),
    Sparsity(4, 64, 0, True),
    Sparsity(4, 128, 0, False),
]


@pytest.mark.parametrize("sparsity", SPARSITIES, ids=str)
def test_metadata_is_read_from_the_lanes_and_bits_that_the_isa_names(sparsity: Sparsity) -> None:
    drawn = Drawn(sparsity, 16 * WARPS, 1)
    made = sparsity.positions(drawn.words)
    assert (made.reshape(drawn.positions.shape) == drawn.positions).all()


@pytest.mark.parametrize(
    ("width", "ordered", "bad"),
    [(16, True, 0b0001), (16, False, 0b0101), (8, True, 0b1011), (4, False, 0), (32, True, 0b1001), (32, False, 0)],
)
def test_undefined_metadata_is_refused(width: int, ordered: bool, bad: int) -> None:
    sparsity = Sparsity(width, {4: 64, 8: 32, 16: 16, 32: 8}[width], 0, ordered)
    words = np.full(32, 0x44444444, np.uint32)
    sparsity.positions(words)
    words[12] = 0x44444404 | bad << 4
    with pytest.raises(Fault, match="row 3, chunk 1 is undefined"):
        sparsity.positions(words)


def values_of(name: str, bits: Bits) -> NDArray[np.float64]:
    """The numbers that bits of a type stand for."""
    if name in TYPES:
        kept = bits & np.uint32(0xFFFFE000) if name == "tf32" else bits
        made: NDArray[np.float64] = kept.view(TYPES[name]).astype(np.float64)
        return made
    signed = {"s8": bits.view(np.int8), "s4": (bits ^ 8).astype(np.int8) - 8}.get(name, bits)
    return signed.astype(np.float64)


def draw(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Bits:
    """Random finite element bits, sub-byte ones one to a byte."""
    if name in TYPES:
        made: Bits = rng.normal(size=shape).astype(TYPES[name]).view(f"uint{FORMATS[name].bits}")
        return made
    return rng.integers(0, 1 << FORMATS[name].bits, shape, np.uint8)


def dense(values: NDArray[np.float64], positions: NDArray[np.int64], depth: int) -> NDArray[np.float64]:
    """The whole A."""
    made = np.zeros((*values.shape[:-1], depth))
    np.put_along_axis(made, positions, values, axis=-1)
    return made


def packed(matrix: Bits, rows: bool) -> Bits:
    """Registers of 4-bit operands: as of 8-bit ones, with two neighbours along K in a byte."""
    joined = matrix[..., ::2] | matrix[..., 1::2] << 4
    return (mma_a(16, joined.shape[2], 8) if rows else mma_b(joined.shape[2], 8)).spread(joined)


MMA = [
    (16, "f16", "f16", "f16"),
    (16, "f16", "f16", "f32"),
    (16, "bf16", "bf16", "f32"),
    (32, "f16", "f16", "f16"),
    (32, "f16", "f16", "f32"),
    (32, "bf16", "bf16", "f32"),
    (8, "tf32", "tf32", "f32"),
    (16, "tf32", "tf32", "f32"),
    (64, "e4m3", "e5m2", "f32"),
    (64, "e5m2", "e4m3", "f32"),
    (32, "s8", "u8", "s32"),
    (64, "u8", "s8", "s32"),
    (64, "s4", "u4", "s32"),
    (128, "u4", "s4", "s32"),
]


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize(("k", "a", "b", "d"), MMA)
def test_a_sparse_mma_is_the_dense_product_with_zeros(k: int, a: str, b: str, d: str, mode: str) -> None:
    rng, width = np.random.default_rng(2), FORMATS[a].bits
    sparsity = Sparsity(width, k, 0, True)
    form = Mma(16, k, (FORMATS[a], FORMATS[b]), FORMATS[d], native=width != 8, sparsity=sparsity)
    drawn = Drawn(sparsity, 16 * WARPS, 3)
    left, right = draw(a, (WARPS, 16, k // 2), rng), draw(b, (WARPS, 8, k), rng)
    wide = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[d]
    c = (100 * rng.normal(size=(WARPS, 16, 8))).astype(wide)
    a_registers = packed(left, True) if width == 4 else mma_a(16, k // 2, width).spread(left)
    b_registers = packed(right, False) if width == 4 else mma_b(k, width).spread(right)
    fragment = mma_c(16, FORMATS[d].bits)
    made = form.multiply(a_registers, b_registers, fragment.spread(c.view(f"u{c.itemsize}")), mode, drawn.words)
    result = fragment.matrix(made).view(wide).astype(np.float64)
    whole = dense(values_of(a, left), drawn.positions.reshape(WARPS, 16, -1), k)
    expected = whole @ values_of(b, right).swapaxes(1, 2) + c
    scale = np.abs(whole) @ np.abs(values_of(b, right)).swapaxes(1, 2) + np.abs(c)
    assert (np.abs(result - expected) <= {"f16": 2.0**-9, "f32": 2.0**-20, "s32": 0}[d] * scale).all()


def test_what_the_sparse_a_leaves_out_is_not_multiplied() -> None:
    form = Mma(16, 16, (FORMATS["f16"],) * 2, FORMATS["f32"], sparsity=Sparsity(16, 16, 0, True))
    a = np.full((2, 32), 0x3C003C00, np.uint32)
    b = np.full((2, 32), 0x3C003C00, np.uint32)
    b[:, 1::2] = 0x7E007E00  # columns 2 and 3 of each four are NaN
    for mode in ("fast", "exact"):
        made = form.multiply(a, b, np.zeros((4, 32), np.uint32), mode, np.full(32, 0x44444444, np.uint32))
        assert (made.view(np.float32) == 8.0).all()


WGMMA = [
    ("f16", "f16", "f32", 32),
    ("bf16", "bf16", "f32", 32),
    ("f16", "f16", "f16", 32),
    ("tf32", "tf32", "f32", 16),
    ("e4m3", "e5m2", "f32", 64),
    ("e5m2", "e4m3", "f16", 64),
    ("s8", "u8", "s32", 64),
]


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize(("a", "b", "d", "k"), WGMMA)
def test_a_sparse_wgmma_is_the_dense_product_with_zeros(a: str, b: str, d: str, k: int, mode: str) -> None:
    rng, n = np.random.default_rng(4), 24
    sparsity = Sparsity(FORMATS[a].bits, k, 0, FORMATS[a].floating)
    form = Wgmma(n, k, (FORMATS[a], FORMATS[b]), FORMATS[d], False, sparsity=sparsity)
    drawn = Drawn(sparsity, 64, 5)
    left, right = draw(a, (64, k // 2), rng), draw(b, (n, k), rng)
    wide = {"f16": np.float16, "f32": np.float32, "s32": np.int32}[d]
    c = (100 * rng.normal(size=(64, n))).astype(wide)
    fragment = wgmma_d(n, FORMATS[d].bits)
    made = form.multiply(left, right, fragment.spread(c.view(f"u{c.itemsize}")[None]), mode, drawn.words)
    result = fragment.matrix(made)[0].view(wide).astype(np.float64)
    whole = dense(values_of(a, left), drawn.positions, k)
    expected = whole @ values_of(b, right).T + c
    scale = np.abs(whole) @ np.abs(values_of(b, right)).T + np.abs(c)
    narrow = d == "f16" or (mode == "exact" and FORMATS[a].bits == 8)
    assert (np.abs(result - expected) <= (0 if d == "s32" else 2.0**-9 if narrow else 2.0**-20) * scale).all()


def test_exact_mode_aligns_the_kept_products_alone() -> None:
    """A sparse product is bit for bit the dense one of the kept elements and what they meet."""
    rng = np.random.default_rng(6)
    sparsity = Sparsity(16, 32, 0, True)
    form = Wgmma(8, 32, (FORMATS["bf16"],) * 2, FORMATS["f32"], False, sparsity=sparsity)
    drawn = Drawn(sparsity, 64, 7)
    left, right = draw("bf16", (64, 16), rng), draw("bf16", (8, 32), rng)
    made = wgmma_d(8, 32).matrix(form.multiply(left, right, None, "exact", drawn.words))[0]
    for row in (0, 9, 40, 63):
        met = right[:, drawn.positions[row]]
        assert (made[row] == fused(left[row : row + 1], met, form.types, None, WIDE)[0]).all()


def test_the_static_form_is_read_from_the_instruction(instruction: Callable[..., Instruction]) -> None:
    four = "{%r1,%r2,%r3,%r4}"
    text = f"mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {four}, {four}, {four}, {four}, %r9, 1;"
    assert Mma.parse(instruction(text)).sparsity == Sparsity(16, 32, 1, False)
    eight = f"mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32 {four}, {four}, {four}, {four}, %r9, 0;"
    assert Mma.parse(instruction(eight)).sparsity == Sparsity(8, 64, 0, True)
    text = f"wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16 {four}, %d1, %d2, %r9, 1, %p1, -1, 1, 0, 1;"
    made = Wgmma.parse(instruction(text))
    assert (made.sparsity, made.negated, made.transposed) == (Sparsity(16, 32, 1, False), (True, False), (False, True))
    assert (made.depth(0), made.depth(1)) == (16, 32)
