"""`lg2.approx` on float32 bit for bit as an H200 computes it for operands of 2 and more and below 1/2, from a table.

The unit adds the operand's exponent to a logarithm of the mantissa in 23 fraction bits, takes the ones' complement of
a negative sum, and cuts what does not fit into a float32. Found on all mantissas in [2, 4), and without a mismatch on
sampled operands of other exponents and on the row sums of attention kernels. Between 1/2 and 2 the unit has more
bits, which are not known: there the result is the correctly rounded one.
"""

from __future__ import annotations

import lzma
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.scalar.form import Bits
from ptxbench.emulator.codegen.scalar.rounding import canonical, flush32

_FRACTION = 23
_BIAS = 127
_LEAST = np.float32(2.0**-126)
_RAISE = 24
"""Without .ftz the assembler raises subnormal operands by this many binades, and lowers the result."""


@cache
def _mantissas() -> NDArray[np.int32]:
    """The logarithm of each mantissa, in units of 2^-23."""
    steps = lzma.decompress(Path(__file__).with_name("logarithm.xz").read_bytes())
    return np.cumsum(np.frombuffer(steps, np.int8), dtype=np.int32)


@np.errstate(all="ignore")
def _unit(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What the unit gives for numbers that are not subnormal."""
    bits = x.view(np.uint32)
    exponent = (bits >> _FRACTION).astype(np.int64) - _BIAS
    fixed = (exponent << _FRACTION) + _mantissas()[bits & ((1 << _FRACTION) - 1)]
    magnitude = np.where(fixed < 0, ~fixed, fixed)
    # Of at most 30 bits those beyond the first 24 are cut.
    size = np.frexp(magnitude.astype(np.float64))[1]
    cut = np.maximum(size - _FRACTION - 1, 0)
    exact = (magnitude >> cut << cut) * 2.0**-_FRACTION
    made = np.where(fixed < 0, -exact, exact).astype(np.float32)
    ordinary = np.isfinite(x) & (x >= _LEAST) & ((exponent > 0) | (exponent < -1))
    rounded = canonical(np.log2(x.astype(np.float64)).astype(np.float32)).view(np.float32)
    return np.where(ordinary, made, rounded)


@np.errstate(all="ignore")
def logarithm(bits: Bits, *, ftz: bool) -> Bits:
    """`lg2.approx{.ftz}.f32` of float32 bits."""
    if ftz:
        return _unit(flush32(bits).view(np.float32)).view(np.uint32)
    x = bits.view(np.float32)
    low = (x > 0) & (x < _LEAST)
    made = _unit(np.where(low, x * np.float32(2.0**_RAISE), x))
    return np.where(low, made - np.float32(_RAISE), made).view(np.uint32)
