"""Where tcgen05.mma has rows and columns of D, of A and of scale factors in tensor memory; holds no cells.

PTX ISA, section Data Path Layout Organization (layouts A to G); formulas as CUTLASS has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.tensor.tcgen05 import Form, Shape


@dataclass(frozen=True, eq=False)
class Piece:
    """A block of a matrix that lies together.

    Attributes:
        cta: 0 or 1: which CTA of the pair.
        rows: Rows of the matrix.
        columns: Columns of the matrix; they lie from the address's column on.
        lanes: Tensor-memory lanes of the rows.
        groups: The same in groups of 16 lanes.
        part: Which part of N; each has rows, of A in tensor memory too, in lanes of its own.
    """

    cta: int
    rows: slice
    columns: slice
    lanes: slice | NDArray[np.int64]
    groups: slice
    part: int = 0


def half_lanes(form: Form, shape: Shape) -> bool:
    """Whether rows lie in every second group of 16 lanes, from lane 0 or lane 16 on (layouts C and F)."""
    if form.weight:
        return False
    if form.group == 1:
        return shape.m == 64
    return shape.m == 128 and form.sparse


@lru_cache(maxsize=512)
def accumulator(form: Form, shape: Shape, lane: int) -> tuple[Piece, ...]:
    """The pieces of D; `lane` is the address's: 0, or 16 where only half of the lanes are used."""
    n, rows = shape.n, shape.m // form.group
    if half_lanes(form, shape):
        return tuple(_spread(cta, rows, n, lane) for cta in range(form.group))
    parts = {128: 1, 64: 2, 32: 4}[rows]
    width = n // parts
    return tuple(
        Piece(
            cta,
            slice(cta * rows, (cta + 1) * rows),
            slice(part * width, (part + 1) * width),
            slice(part * rows, (part + 1) * rows),
            slice(part * rows // 16, (part + 1) * rows // 16),
            part,
        )
        for cta in range(form.group)
        for part in range(parts)
    )


def _spread(cta: int, rows: int, n: int, lane: int) -> Piece:
    m = np.arange(rows)
    lanes = m // 16 * 32 + m % 16 + lane
    return Piece(cta, slice(cta * rows, (cta + 1) * rows), slice(0, n), lanes, slice(lane // 16, 8, 2))


def scale_places(rows: int, first: int, count: int, lane: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lane and byte (from the address's column on) of the scale factors of rows: [rows], [rows, count].

    Row r has its four bytes in lane r modulo 32 of a quarter, column r / 32.
    """
    r = np.arange(rows)
    return r % 32 + lane, (r // 32 * 4 + first)[:, None] + np.arange(count)
