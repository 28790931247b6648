"""Where the bytes of a box lie in shared memory: rows, pitch and the swizzle's XOR; no data moves here.

Pitch and XOR as measured on an H200: rows of a swizzled box stand one span apart however narrow the box is, and the
XOR works on the absolute shared address. The atom variants (sm_100a) are the driver documentation's.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.async_.tensormap import Swizzle

PERIOD = 1024
"""Bytes after which every swizzle repeats."""

# Per swizzle: the address bits (mask, shift) that are XORed onto lower ones.
_XOR = {
    Swizzle.NONE: (0, 0),
    Swizzle.B32: (0x080, 3),
    Swizzle.B64: (0x180, 3),
    Swizzle.B128: (0x380, 3),
    Swizzle.B128_ATOM32: (0x180, 2),
    Swizzle.B128_ATOM32_FLIP8: (0x180, 2),
    Swizzle.B128_ATOM64: (0x080, 1),
}


def swizzled(addresses: NDArray[np.int64], swizzle: int) -> NDArray[np.int64]:
    """Byte addresses in shared memory after the XOR."""
    mask, shift = _XOR[Swizzle(swizzle)]
    moved = addresses ^ (addresses & mask) >> shift
    if swizzle == Swizzle.B128_ATOM32_FLIP8:
        moved ^= (addresses & 0x80) >> 4  # the halves of 16 bytes change places on odd lines
    return moved


def unit_of(swizzle: int) -> int:
    """Bytes that the swizzle keeps together."""
    return 8 if swizzle == Swizzle.B128_ATOM32_FLIP8 else 16


@lru_cache(maxsize=256)
def placement(rows: int, inner: int, pitch: int, swizzle: int, phase: int) -> tuple[NDArray[np.int64], int]:
    """Index of each unit of an image within shared memory, counted from the last multiple of `PERIOD` bytes.

    Args:
        rows: Rows of the image.
        inner: Bytes of a row; a multiple of the unit.
        pitch: Bytes from row to row.
        swizzle: A `Swizzle`.
        phase: Shared address of the image modulo `PERIOD`.

    Returns:
        int64 [rows * inner / unit], read-only; and the bytes from the multiple of `PERIOD` to the end of the highest.
    """
    unit = unit_of(swizzle)
    linear = phase + pitch * np.arange(rows)[:, None] + np.arange(0, inner, unit)
    result = swizzled(linear.ravel(), swizzle) // unit
    result.flags.writeable = False
    return result, (int(result.max()) + 1) * unit
