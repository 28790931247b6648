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


def integer_product(
    a: Bits, b: Bits, types: tuple[Format, Format], addend: Bits | None, satfinite: bool, xor: bool = False
) -> NDArray[np.uint32]:
    """A times B transposed plus C in integers; of single bits, the count of those that `and` (or `xor`) leaves set.

    Args:
        a: Element bits [..., M, K].
        b: Element bits [..., N, K].
        types: Formats of A and B.
        addend: uint32 bits of s32 [..., M, N], or None.
        satfinite: Whether the sum clamps instead of wrapping.
        xor: For b1 only.
    """
    total = product(a, b, types).astype(np.int64)
    if xor:
        ones = a.sum(axis=-1, dtype=np.int64)[..., :, None] + b.sum(axis=-1, dtype=np.int64)[..., None, :]
        total = ones - 2 * total
    return to_s32(total if addend is None else total + addend.view(np.int32), satfinite)


def clamped(bits: Bits) -> Bits:
    """float16 or float32 bits with `.satfinite`: infinities become the largest number, NaNs +0."""
    sign, infinity = (0x8000, 0x7C00) if bits.dtype == np.uint16 else (0x80000000, 0x7F800000)
    magnitude = bits & bits.dtype.type(sign - 1)
    largest = (bits & bits.dtype.type(sign)) | bits.dtype.type(infinity - 1)
    kept = np.where(magnitude == bits.dtype.type(infinity), largest, bits)
    return np.where(magnitude > bits.dtype.type(infinity), bits.dtype.type(0), kept)
