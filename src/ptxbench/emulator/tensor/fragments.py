"""Which element of a matrix lies where in whose registers; moves bits between registers and matrices, computes nothing.

A fragment places the elements of a matrix into `registers` registers of `lanes` lanes, `places` elements in each
register, the first in its low bits. Formulas: PTX ISA, sections Matrix Fragments for mma and wgmma.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.tensor.formats import Bits

Index = NDArray[np.int64]
Place = Callable[[Index, Index, Index], Index]
"""Row or column of (register, lane, place)."""


@dataclass(frozen=True, eq=False)
class Fragment:
    """A bijection between (register, lane, place) and (row, column)."""

    shape: tuple[int, int]
    registers: int
    lanes: int
    width: int
    """Bits of an element."""
    container: int
    """Bits of a register: 32 or 64."""
    rows: Index
    """[registers, lanes, places]."""
    columns: Index
    gather: Index
    """Flat (register, lane, place) of each element in row-major order."""
    scatter: Index
    """Flat row-major element of each (register, lane, place)."""

    @property
    def places(self) -> int:
        """Elements in a register."""
        return self.container // self.width

    def matrix(self, registers: Bits) -> Bits:
        """Element bits of the matrices that registers hold.

        Args:
            registers: [registers, groups * lanes] of uint32 or uint64.

        Returns:
            [groups, rows, columns] of unsigned integers; elements below 8 bits come one to a byte.
        """
        split = unpack(np.ascontiguousarray(registers), self.width)
        grouped = split.reshape(self.registers, -1, self.lanes * self.places).swapaxes(0, 1)
        flat = grouped.reshape(grouped.shape[0], -1)
        return np.take(flat, self.gather, axis=1).reshape(-1, *self.shape)

    def spread(self, matrices: Bits) -> Bits:
        """Registers that hold matrices [groups, rows, columns]: the inverse of `matrix`."""
        flat = np.take(matrices.reshape(matrices.shape[0], -1), self.scatter, axis=1)
        grouped = flat.reshape(-1, self.registers, self.lanes * self.places).swapaxes(0, 1)
        packed = pack(np.ascontiguousarray(grouped), self.width, self.container)
        return packed.reshape(self.registers, -1)


def unpack(words: Bits, width: int) -> Bits:
    """Elements of words along the last axis, lowest bits first; 1 and 4-bit elements one to a byte."""
    if width >= 8:
        return words.view(np.dtype(f"uint{width}"))
    parts = words.view(np.uint8)
    if width == 1:
        return np.unpackbits(parts, axis=-1, bitorder="little")
    return np.stack([parts & 15, parts >> 4], axis=-1).reshape(*parts.shape[:-1], -1)


def pack(elements: Bits, width: int, container: int) -> Bits:
    """Words of elements along the last axis: the inverse of `unpack` for elements of 8 bits and more."""
    assert width >= 8
    return elements.view(np.dtype(f"uint{container}"))


def fragment(
    shape: tuple[int, int], lanes: int, width: int, row: Place, column: Place, container: int = 32
) -> Fragment:
    """The fragment of a matrix that these formulas describe."""
    places = container // width
    registers = shape[0] * shape[1] // (lanes * places)
    r, lane, i = np.meshgrid(np.arange(registers), np.arange(lanes), np.arange(places), indexing="ij")
    rows, columns = row(r, lane, i) + 0 * r, column(r, lane, i) + 0 * r
    scatter = (rows * shape[1] + columns).ravel()
    gather = np.argsort(scatter)
    assert (scatter[gather] == np.arange(scatter.size)).all(), "a fragment holds each element once"
    return Fragment(shape, registers, lanes, width, container, rows, columns, gather, scatter)


@lru_cache(maxsize=256)
def wgmma_d(n: int, width: int) -> Fragment:
    """Accumulators [64, n] of wgmma in 128 lanes; width 32 (f32, s32) or 16 (f16)."""

    def row(r: Index, lane: Index, i: Index) -> Index:
        linear = r * (32 // width) + i
        return 16 * (lane // 32) + lane % 32 // 4 + 8 * (linear >> 1 & 1)

    def column(r: Index, lane: Index, i: Index) -> Index:
        linear = r * (32 // width) + i
        made: Index = 2 * (lane % 4) + (linear & 1) + 8 * (linear >> 2)
        return made

    return fragment((64, n), 128, width, row, column)


@lru_cache(maxsize=16)
def wgmma_a(width: int) -> Fragment:
    """Operand A [64, 256 / width] of wgmma in four registers of 128 lanes; width 32, 16, 8 or 1."""
    places = 32 // width

    def row(r: Index, lane: Index, _: Index) -> Index:
        return 16 * (lane // 32) + lane % 32 // 4 + 8 * (r & 1)

    def column(r: Index, lane: Index, i: Index) -> Index:
        return places * (lane % 4) + i + 4 * places * (r >> 1)

    return fragment((64, 8 * places), 128, width, row, column)


@lru_cache(maxsize=64)
def mma_a(rows: int, depth: int, width: int) -> Fragment:
    """Operand A [rows, depth] of mma.sync in 32 lanes, row-major; rows 16 or 8; width 64 means f64."""
    container = max(width, 32)
    places = container // width

    def row(r: Index, lane: Index, _: Index) -> Index:
        return lane // 4 + 8 * (r & 1 if rows == 16 else 0 * r)

    def column(r: Index, lane: Index, i: Index) -> Index:
        return places * (lane % 4) + i + 4 * places * (r >> 1 if rows == 16 else r)

    return fragment((rows, depth), 32, width, row, column, container)


@lru_cache(maxsize=64)
def mma_b(depth: int, width: int) -> Fragment:
    """Operand B of mma.sync as [8 columns, depth] in 32 lanes."""
    container = max(width, 32)
    places = container // width

    def row(_: Index, lane: Index, __: Index) -> Index:
        return lane // 4

    def column(r: Index, lane: Index, i: Index) -> Index:
        return places * (lane % 4) + i + 4 * places * r

    return fragment((8, depth), 32, width, row, column, container)


@lru_cache(maxsize=16)
def mma_c(rows: int, width: int) -> Fragment:
    """Accumulators [rows, 8] of mma.sync in 32 lanes; width 64, 32 or 16."""
    container = max(width, 32)
    places = container // width

    def row(r: Index, lane: Index, i: Index) -> Index:
        return lane // 4 + 8 * ((r * places + i) >> 1)

    def column(r: Index, lane: Index, i: Index) -> Index:
        return 2 * (lane % 4) + ((r * places + i) & 1)

    return fragment((rows, 8), 32, width, row, column, container)
