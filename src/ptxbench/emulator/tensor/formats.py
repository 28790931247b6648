"""Number formats of tensor-core operands: bits to float32, or to mantissa and exponent; no arithmetic.

Formats: PTX ISA, sections Fundamental Types and Alternate Floating-Point Data Formats. tf32 loses its low 13 bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Bits = NDArray[Any]
"""Unsigned integers that hold the bits of registers or elements."""


@dataclass(frozen=True)
class Format:
    """One operand type."""

    name: str
    bits: int
    """Of an element in a register or in shared memory."""
    exponent: int = 0
    """Exponent bits; 0 for integers."""
    mantissa: int = 0
    """Fraction bits."""

    @property
    def floating(self) -> bool:
        """Whether it is a floating-point format."""
        return self.exponent > 0

    @property
    def storage(self) -> np.dtype[Any]:
        """Unsigned NumPy type of one element; sub-byte elements come one to a byte."""
        return np.dtype(f"uint{max(self.bits, 8)}")


FORMATS = {
    each.name: each
    for each in (
        Format("f64", 64, 11, 52),
        Format("f32", 32, 8, 23),
        Format("tf32", 32, 8, 10),
        Format("f16", 16, 5, 10),
        Format("bf16", 16, 8, 7),
        Format("e4m3", 8, 4, 3),
        Format("e5m2", 8, 5, 2),
        Format("s32", 32),
        Format("s8", 8),
        Format("u8", 8),
        Format("s4", 4),
        Format("u4", 4),
        Format("b1", 1),
    )
}

_EIGHT_BIT = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8}


@cache
def _table(name: str) -> NDArray[np.float32]:
    values: NDArray[np.float32] = np.arange(256, dtype=np.uint8).view(_EIGHT_BIT[name]).astype(np.float32)
    return values


def decode(bits: Bits, format_: Format) -> NDArray[np.float32]:
    """The values as float32, exactly; integers too (s4, u4 and b1 arrive one element to a byte)."""
    name = format_.name
    if name == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if name == "f16":
        return bits.view(np.float16).astype(np.float32)
    if name == "tf32":
        kept: NDArray[np.uint32] = bits & np.uint32(0xFFFFE000)
        return kept.view(np.float32)
    if name == "f32":
        return bits.view(np.float32)
    if name in _EIGHT_BIT:
        return np.asarray(_table(name)[bits])
    if name == "s4":
        return ((bits.astype(np.int8) ^ np.int8(8)) - np.int8(8)).astype(np.float32)
    return bits.astype(np.float32)


@dataclass(frozen=True)
class Parts:
    """Finite numbers beside the exponents that an adder aligns them by."""

    values: NDArray[np.float64]
    """0 where the number is special."""
    exponents: NDArray[np.int32]
    """Of the leading bit's place, not normalised: a subnormal has the smallest of its format. `NOTHING` for zero."""
    special: NDArray[np.float64] | None
    """None if all are finite; else the infinities and NaNs, with 0, 1 or -1 (the sign) for finite ones."""


NOTHING = -(1 << 20)
"""Below every exponent, and below every sum of two."""


def parts(bits: Bits, format_: Format) -> Parts:
    """Values and exponents of floating-point bits (any shape)."""
    values = decode(bits, format_).astype(np.float64)
    low = 13 if format_.name == "tf32" else 0
    field = bits.astype(np.int32, copy=False) >> (low + format_.mantissa) & ((1 << format_.exponent) - 1)
    exponents = np.maximum(field, 1) - ((1 << (format_.exponent - 1)) - 1)
    exponents = np.where(values == 0, NOTHING, exponents).astype(np.int32)
    finite = np.isfinite(values)
    if finite.all():
        return Parts(values, exponents, None)
    special = np.where(finite, np.sign(values), values)
    return Parts(np.where(finite, values, 0.0), np.where(finite, exponents, NOTHING).astype(np.int32), special)
