"""Matrix products in float32 by BLAS: quick, close to the device, not its bits; integers are exact.

Sums of 8-bit integer products over one instruction stay below 2^24, so float32 holds them exactly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.tensor.formats import Bits, Format, decode

NAN32 = np.uint32(0x7FFFFFFF)
"""The only NaN that arithmetic makes (H200)."""
NAN16 = np.uint16(0x7FFF)


def product(a: Bits, b: Bits, types: tuple[Format, Format]) -> NDArray[np.float32]:
    """A times B transposed.

    Args:
        a: Element bits [..., M, K].
        b: Element bits [..., N, K].
        types: Formats of A and B.

    Returns:
        float32 [..., M, N].
    """
    made: NDArray[np.float32] = np.matmul(decode(a, types[0]), decode(b, types[1]).swapaxes(-1, -2))
    return made


def to_f32(values: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Bits of float32 results, NaNs made canonical."""
    nan = np.isnan(values)
    bits = values.view(np.uint32)
    return np.where(nan, NAN32, bits) if nan.any() else bits


def to_f16(values: NDArray[np.floating[Any]]) -> NDArray[np.uint16]:
    """Bits of float16 results, rounded to nearest even, NaNs made canonical."""
    halves = values.astype(np.float16)
    nan = np.isnan(halves)
    bits = halves.view(np.uint16)
    return np.where(nan, NAN16, bits) if nan.any() else bits


def to_s32(exact: NDArray[np.int64], satfinite: bool) -> NDArray[np.uint32]:
    """Bits of integer results, wrapped or clamped to 32 bits."""
    if satfinite:
        exact = np.clip(exact, -(1 << 31), (1 << 31) - 1)
    return (exact & 0xFFFFFFFF).astype(np.uint32)
