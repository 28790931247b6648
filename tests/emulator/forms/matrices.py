"""Which lane holds which element of a matrix, element types as numbers, and sparse metadata: from the ISA's figures.

A place is (matrix, row, column); B is [column, k]. A holder maps (register, lane, element of the register) to a place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
Place = tuple[int, int, int]
Holder = Callable[[int, int, int], Place]
WIDTH = {
    **{"f64": 64, "f32": 32, "s32": 32, "tf32": 32, "f16": 16, "bf16": 16},
    **{"e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1},
}
_FLOATS: dict[str, Any] = {
    **{"f64": np.float64, "f32": np.float32, "tf32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16},
    **{"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2},
}


def draw(type_: str, shape: tuple[int, ...], rng: np.random.Generator) -> Bits:
    """Element bits of ordinary numbers."""
    if type_ in _FLOATS:
        drawn = rng.normal(size=shape).astype(_FLOATS[type_]).view(f"u{WIDTH[type_] // 8}").astype(np.uint64)
        return drawn & np.uint64(0xFFFFE000) if type_ == "tf32" else drawn
    return rng.integers(0, 1 << min(WIDTH[type_], 20), shape, np.uint64)


def numbers(bits: Bits, type_: str) -> NDArray[np.float64]:
    """What element bits mean."""
    width = WIDTH[type_]
    if type_ in _FLOATS:
        return bits.astype(f"u{width // 8}").view(_FLOATS[type_]).astype(np.float64)
    signed = bits.astype(np.int64)
    if type_[0] == "s":
        signed = np.where(signed >> (width - 1) & 1, signed - (1 << width), signed)
    return signed.astype(np.float64)


def registers(holder: Holder, matrices: Bits, count: int, lanes: int, width: int) -> list[NDArray[np.uint64]]:
    """The registers that hold matrices [number, rows, columns]."""
    made = []
    for register in range(count):
        words = np.zeros(lanes, np.uint64)
        for lane in range(lanes):
            for element in range(max(32, width) // width):
                word = int(matrices[holder(register, lane, element)]) << (width * element)
                words[lane] |= np.uint64(word)
        made.append(words)
    return made


def gathered(holder: Holder, words: Sequence[NDArray[np.uint64]], shape: tuple[int, ...], width: int) -> Bits:
    """The matrices that registers hold."""
    made = np.zeros(shape, np.uint64)
    for register, column in enumerate(words):
        for lane, word in enumerate(column.tolist()):
            for element in range(max(32, width) // width):
                made[holder(register, lane, element)] = word >> (width * element) & ((1 << width) - 1)
    return made


def factor_a(rows: int, width: int) -> Holder:
    """A of mma (8 or 16 rows) and of wgmma (64 rows of 128 lanes)."""
    each = max(32, width) // width

    def holder(register: int, lane: int, element: int) -> Place:
        g, t = lane % 32 // 4, lane % 4
        if rows == 8:
            return lane // 32, g, each * t + element + 4 * each * register
        matrix, top = (0, 16 * (lane // 32)) if rows == 64 else (lane // 32, 0)
        return matrix, top + g + 8 * (register % 2), each * t + element + 4 * each * (register // 2)

    return holder


def factor_b(width: int) -> Holder:
    """B of mma as [column, k]."""
    each = max(32, width) // width

    def holder(register: int, lane: int, element: int) -> Place:
        return lane // 32, lane % 32 // 4, each * (lane % 4) + element + 4 * each * register

    return holder


def accumulator(rows: int, width: int) -> Holder:
    """C and D of mma (8 or 16 rows) and of wgmma (64 rows)."""
    each = max(32, width) // width

    def holder(register: int, lane: int, element: int) -> Place:
        linear = register * each + element
        row, column = lane % 32 // 4 + 8 * (linear >> 1 & 1), 2 * (lane % 4) + (linear & 1)
        if rows == 8:
            return lane // 32, lane % 32 // 4, 2 * (lane % 4) + linear
        if rows == 64:
            return 0, 16 * (lane // 32) + row, column + 8 * (linear >> 2)
        return lane // 32, row, column

    return holder


def _quad(lane: int) -> tuple[int, int]:
    """Which of a warp's four products a lane works for, and 0 or 4 for its half."""
    return lane // 32 * 4 + lane % 16 // 4, 4 * (lane % 32 // 16)


def quad_factor(along_k: bool) -> Holder:
    """A (or B as [column, k]) of mma.m8n8k4 on f16; lanes hold neighbours along K, or along M."""

    def holder(register: int, lane: int, element: int) -> Place:
        matrix, up = _quad(lane)
        own, next_ = lane % 4, 2 * register + element
        return (matrix, own + up, next_) if along_k else (matrix, next_ + up, own)

    return holder


def quad_accumulator(width: int) -> Holder:
    """C and D of mma.m8n8k4 on f16."""

    def holder(register: int, lane: int, element: int) -> Place:
        matrix, up = _quad(lane)
        if width == 16:
            return matrix, lane % 4 + up, 2 * register + element
        return matrix, (lane & 1) + (register & 2) + up, (register & 4) + (lane & 2) + (register & 1)

    return holder
