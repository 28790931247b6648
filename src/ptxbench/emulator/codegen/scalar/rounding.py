"""Correct rounding of exact results to floating-point formats, in any direction; decides no instruction's meaning.

An exact result travels as a float64 rounded to odd: inexact values have their last bit set, so that a second
rounding, to a format with at least two bits less, gives what one rounding would have given (Boldo and Melquiond,
"Emulation of FMA and Correctly Rounded Sums: Proved Algorithms Using Rounding to Odd", IEEE TC 2008).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.scalar.form import Bits

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]

_NAN = {16: 0x7FFF, 32: 0x7FFFFFFF}
"""The NaN that arithmetic makes (H200), by width."""


def odd(value: F64, error: F64) -> F64:
    """value + error, rounded to odd; value is that sum rounded to nearest."""
    inexact = (error < 0) | (error > 0)
    if not np.any(inexact):
        return value
    bits = np.asarray(value).view(np.int64)
    outwards = np.where((error > 0) == (value > 0), 1, -1)
    return np.where(inexact & (bits & 1 == 0), bits + outwards, bits).view(np.float64)


def add_exactly(a: F64, b: F64) -> tuple[F64, F64]:
    """The rounded sum and its error (Knuth's TwoSum)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def sum_odd(a: F64, b: F64) -> F64:
    """a + b rounded to odd."""
    return odd(*add_exactly(a, b))


def directed_zero(total: F64, a: F64, b: F64, mode: str) -> F64:
    """The sum, an exact zero with the sign that rounding downwards gives it."""
    if mode != "rm":
        return total
    minus = (total == 0) & (np.signbit(a) | np.signbit(b))
    return np.where(minus, -0.0, total)


def to_f32(value: F64, mode: str = "rn") -> F32:
    """float64 (exact, or rounded to odd) to float32."""
    nearest: F32 = np.asarray(value).astype(np.float32)
    if mode == "rn":
        return nearest
    back = nearest.astype(np.float64)
    if mode == "rz":
        wrong, towards = np.abs(back) > np.abs(value), 0.0
    elif mode == "rm":
        wrong, towards = back > value, -np.inf
    else:
        wrong, towards = back < value, np.inf
    return np.where(wrong, np.nextafter(nearest, np.float32(towards)), nearest)


def to_quantum(value: F64, exponent_bits: int, mantissa_bits: int, mode: str) -> F64:
    """float64 (exact, or rounded to odd) rounded to a format's precision, exponents upwards unbounded.

    Args:
        value: Any shape.
        exponent_bits: Of the format; sets where subnormals begin.
        mantissa_bits: Fraction bits.
        mode: `rn`, `rz`, `rm`, `rp` or `rna` (ties away from zero).
    """
    smallest = 2 - (1 << (exponent_bits - 1))
    exponent = np.maximum(np.frexp(value)[1] - 1, smallest) - mantissa_bits
    scaled = np.ldexp(value, -exponent)
    made: F64 = np.ldexp(to_integral(scaled, mode), exponent)
    return made


def to_integral(value: F64, mode: str) -> F64:
    """float64 rounded to whole numbers; also `rni`, `rzi`, `rmi`, `rpi`."""
    if mode == "rna":
        whole = np.trunc(value)
        return whole + np.where(np.abs(value - whole) >= 0.5, np.copysign(1.0, value), 0.0)
    function = {"rn": np.rint, "rz": np.trunc, "rm": np.floor, "rp": np.ceil}[mode[:2]]
    result: F64 = function(value)
    return result


def flush32(bits: Bits) -> Bits:
    """float32 bits, subnormal numbers made zeros of their sign."""
    small = (bits & np.uint32(0x7F800000)) == 0
    return np.where(small, bits & np.uint32(0x80000000), bits)


def flush16(bits: Bits) -> Bits:
    """float16 bits, subnormal numbers made zeros of their sign."""
    small = (bits & np.uint16(0x7C00)) == 0
    return np.where(small, bits & np.uint16(0x8000), bits)


def canonical(values: Bits) -> Bits:
    """Bits of floating-point results, every NaN made the one that arithmetic makes (float64: left as it is)."""
    size = values.dtype.itemsize * 8
    bits: Bits = np.asarray(values).view(f"uint{size}")
    if size == 64:
        return bits
    nan = np.isnan(values)
    return np.where(nan, bits.dtype.type(_NAN[size]), bits) if nan.any() else bits


def saturate(values: Bits) -> Bits:
    """Clamped to [0, 1]; NaN becomes +0."""
    one = values.dtype.type(1)
    made: Bits = np.where(values > 0, np.minimum(values, one), values.dtype.type(0))
    return made


def nearest_bf16(bits: Bits) -> Bits:
    """float32 bits to bfloat16 bits, to nearest even; NaNs canonical."""
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    nan = (bits & np.uint32(0x7FFFFFFF)) > np.uint32(0x7F800000)
    made: Bits = rounded.astype(np.uint16)
    return np.where(nan, np.uint16(0x7FFF), made) if np.any(nan) else made
