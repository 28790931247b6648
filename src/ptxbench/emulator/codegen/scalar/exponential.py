"""`ex2.approx` on float32 bit for bit as an H200 computes it, from a table of what it adds to the rounded result.

The unit cuts the operand's magnitude to 23 fraction bits; of a negative operand that is not whole it takes the ones'
complement. The fraction alone then decides the result's fraction, the whole part its exponent. Found from, and without
a mismatch on, all operands in [0.5, 2), (-4, -1], (-16, -8] and (-0.25, -0.125].
"""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.scalar.form import Bits
from ptxbench.emulator.codegen.scalar.rounding import flush32

_FRACTIONS = 1 << 23
_BIAS, _INFINITE, _LOWEST = 127, 255, -126.0
_FAR = 300.0
"""Beyond which every result is zero or infinite."""


@cache
def _differences() -> NDArray[np.int8]:
    """For each fraction, what the device's result is above the correctly rounded one, in units of the last place."""
    return np.frombuffer(lzma.decompress(Path(__file__).with_name("exponential.xz").read_bytes()), np.int8)


@np.errstate(all="ignore")
def _unit(x: NDArray[np.float32]) -> Bits:
    """What the unit gives: float32 bits, a result below the normal numbers made zero."""
    magnitude = np.minimum(np.abs(np.where(np.isnan(x), np.float32(0), x)).astype(np.float64), _FAR)
    cut = np.floor(magnitude * _FRACTIONS).astype(np.int64)
    fraction, whole = cut % _FRACTIONS, cut // _FRACTIONS
    negative = np.signbit(x)
    below = negative & (fraction > 0)
    fraction = np.where(below, _FRACTIONS - 1 - fraction, fraction)
    exponent = np.where(negative, -whole - below, whole) + _BIAS
    rounded = np.exp2(fraction / _FRACTIONS).astype(np.float32).view(np.uint32).astype(np.int64)
    bits = rounded + _differences()[fraction] + ((exponent - _BIAS) << 23)
    bits = np.where(exponent >= _INFINITE, _INFINITE << 23, np.where(exponent <= 0, 0, bits))
    return np.where(np.isnan(x), np.uint32(0x7FFFFFFF), bits.astype(np.uint32))


@np.errstate(all="ignore")
def exponential(bits: Bits, *, ftz: bool) -> Bits:
    """`ex2.approx{.ftz}.f32` of float32 bits."""
    if ftz:
        return _unit(flush32(bits).view(np.float32))
    # Without .ftz the assembler halves a low operand and squares the result.
    x = bits.view(np.float32)
    low = x < _LOWEST
    made = _unit(np.where(low, x * np.float32(0.5), x)).view(np.float32)
    return np.where(low, made * made, made).view(np.uint32)
