"""Floating-point formats of 4 to 32 bits: codes to values and rounded values to codes; knows no instruction.

PTX ISA, section Alternate Floating-Point Data Formats; overflow, NaN and sign rules as scanned on an H200 for f16,
bf16, tf32, e4m3 and e5m2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxbench.emulator.codegen.scalar.form import Bits
from ptxbench.emulator.codegen.scalar.rounding import F64, to_quantum


@dataclass(frozen=True)
class Small:
    """A format with a sign bit, subnormals and, where `infinite`, infinities."""

    exponent: int
    mantissa: int
    nan: int
    """The code that a NaN becomes; formats without NaN take their largest number."""
    infinite: bool
    largest: int
    """The code of the largest finite number."""
    shift: int = 0
    """Bits of the register below the code."""

    @property
    def smallest_exponent(self) -> int:
        """Of normal numbers."""
        return 2 - (1 << (self.exponent - 1))

    @property
    def sign(self) -> int:
        """The sign bit of a code."""
        return 1 << (self.exponent + self.mantissa)


SMALL = {
    "f16": Small(5, 10, 0x7FFF, True, 0x7BFF),
    "bf16": Small(8, 7, 0x7FFF, True, 0x7F7F),
    "tf32": Small(8, 10, 0x3FFFF, True, 0x3FBFF, 13),
    "e4m3": Small(4, 3, 0x7F, False, 0x7E),
    "e5m2": Small(5, 2, 0x7F, True, 0x7B),
    "e2m3": Small(2, 3, 0x1F, False, 0x1F),
    "e3m2": Small(3, 2, 0x1F, False, 0x1F),
    "e2m1": Small(2, 1, 0x7, False, 0x7),
}


def value_of(code: int, format_: Small) -> float:
    """The number that a finite, positive code means."""
    field = code >> format_.mantissa
    fraction = code & ((1 << format_.mantissa) - 1)
    if field:
        fraction |= 1 << format_.mantissa
    return float(np.ldexp(float(fraction), max(field, 1) - 1 + format_.smallest_exponent - format_.mantissa))


def encode(value: F64, format_: Small, mode: str, satfinite: bool, relu: bool) -> Bits:
    """Codes of numbers.

    Args:
        value: float64, exact or rounded to odd.
        format_: The format.
        mode: `rn`, `rz`, `rm`, `rp` or `rna`.
        satfinite: Whether infinities and overflows become the largest number of their sign.
        relu: Whether everything with a minus sign becomes +0.

    Returns:
        uint32 of the same shape.
    """
    rounded = np.abs(to_quantum(value, format_.exponent, format_.mantissa, mode))
    return _coded(value, rounded, format_, mode, (satfinite, relu))


def encode_stochastic(value: F64, format_: Small, random: tuple[Bits, int], satfinite: bool, relu: bool) -> Bits:
    """Codes of numbers, rounded away from zero where random bits carry out of the bits that are cut off.

    Args:
        value: float64, exact.
        format_: The format.
        random: Bits of each number, and how many; the highest has half the weight of the last place that stays.
        satfinite: As for `encode`.
        relu: As for `encode`.

    Returns:
        uint32 of the same shape.
    """
    bits, count = random
    exponent = np.maximum(np.frexp(value)[1] - 1, format_.smallest_exponent) - format_.mantissa
    scaled = np.abs(np.ldexp(value, -exponent))
    whole = np.trunc(scaled)
    cut = np.trunc(np.ldexp(np.where(np.isfinite(scaled), scaled - whole, 0.0), count))
    rounded = np.ldexp(whole + (cut + bits >= 1 << count), exponent)
    return _coded(value, rounded, format_, "rs", (satfinite, relu))


def _coded(value: F64, rounded: F64, format_: Small, mode: str, clamp: tuple[bool, bool]) -> Bits:
    """Codes of rounded sizes, with the sign that the values had; `clamp` is satfinite and relu."""
    satfinite, relu = clamp
    smallest = format_.smallest_exponent
    exponent = np.where(rounded == 0, smallest, np.maximum(np.frexp(rounded)[1] - 1, smallest))
    whole = np.ldexp(rounded, format_.mantissa - exponent)
    within = np.isfinite(rounded) & (rounded <= value_of(format_.largest, format_))
    code = np.where(within, whole, 0).astype(np.int64) + (np.where(within, exponent - smallest, 0) << format_.mantissa)
    minus = np.signbit(value)
    code = np.where(within, code, _overflow(value, minus, format_, mode, satfinite))
    code = np.where(minus, 0 if relu else code | format_.sign, code)
    code = np.where(np.isnan(value), format_.nan, code)
    return (code << format_.shift).astype(np.uint32)


def _overflow(value: F64, minus: Bits, format_: Small, mode: str, satfinite: bool) -> Bits:
    infinity = format_.largest + 1
    if satfinite or not format_.infinite:
        return np.full(np.shape(value), format_.largest)
    outwards = {"rz": np.zeros_like(minus), "rm": minus, "rp": ~minus}.get(mode, np.ones_like(minus))
    return np.where(outwards | np.isinf(value), infinity, format_.largest)


def decode(code: Bits, name: str) -> F64:
    """The numbers that codes mean (uint32 or narrower, of e4m3, e5m2, e2m3, e3m2 or e2m1)."""
    format_ = SMALL[name]
    low = code.astype(np.int64) & (format_.sign - 1)
    field = low >> format_.mantissa
    fraction = low & ((1 << format_.mantissa) - 1)
    whole = np.where(field > 0, fraction | (1 << format_.mantissa), fraction).astype(np.float64)
    value: F64 = np.ldexp(whole, np.maximum(field, 1) - 1 + format_.smallest_exponent - format_.mantissa)
    if format_.infinite:
        value = np.where(low == format_.largest + 1, np.inf, value)
    if name in ("e4m3", "e5m2"):
        value = np.where(low > format_.largest + format_.infinite, np.nan, value)
    return np.where((code.astype(np.int64) & format_.sign) != 0, -value, value)


def to_scale(bits: Bits, mode: str, satfinite: bool) -> Bits:
    """float32 bits to ue8m0 codes: the exponent alone, rounded down (`rz`) or up (`rp`) to a power of two."""
    magnitude = bits.astype(np.int64) & 0x7FFFFFFF
    field, fraction = magnitude >> 23, magnitude & 0x7FFFFF
    code = field
    if mode == "rp":
        above = np.where(field > 0, fraction > 0, fraction > 0x400000)
        code = field + above
    code = np.minimum(code, 254 if satfinite else 255)
    return np.where(magnitude > 0x7F800000, 255, code).astype(np.uint32)
