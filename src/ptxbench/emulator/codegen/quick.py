"""Short ways through frequent scalar operations when no special value is about; the exact ones decide otherwise.

Each function looks whether its short way gives the bits of the exact operation that it replaces, and calls that if not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.scalar.form import ScalarOp
from ptxbench.emulator.ptx.ir import Instruction, Pair

Bits = NDArray[Any]
Run = Callable[..., Any]
_F32, _U32 = np.dtype(np.float32), np.dtype(np.uint32)
_ROUND, _ONE, _SHIFT, _HIGH = np.uint32(0x7FFF), np.uint32(1), np.uint32(16), np.uint32(0xFFFF0000)
_TINY = np.float32(np.finfo(np.float32).tiny)
_WARP = 32
_MOST_SOURCES = 2
"""Of a short way; `min` and `max` of three operands have none."""
count = np.count_nonzero


def quick(ins: Instruction, operation: ScalarOp) -> Run:
    """A function that does what `operation.run` does, sooner where it can."""
    if ins.opcode == "shfl":
        return _shuffle(ins, operation.run)
    maker = _MAKERS.get(ins.name) if len(operation.sources) <= _MOST_SOURCES else None
    return maker(operation.run) if maker else operation.run


def _binary(function: Callable[[Bits, Bits], Bits]) -> Callable[[Run], Run]:
    """Sums, differences and products: only a NaN has other bits."""

    def make(exact: Run) -> Run:
        def run(a: Bits, b: Bits) -> Bits:
            value = function(a.view(_F32), b.view(_F32))
            if count(value != value):  # noqa: PLR0124  (a NaN, sooner than np.isnan)
                made: Bits = exact(a, b)
                return made
            return value.view(_U32)

        return run

    return make


def _extreme(function: Callable[[Bits, Bits], Bits]) -> Callable[[Run], Run]:
    """Minimum and maximum: NaNs and zeros have rules of their own."""

    def make(exact: Run) -> Run:
        def run(a: Bits, b: Bits) -> Bits:
            value = function(a.view(_F32), b.view(_F32))
            # NaN and zero are the values for which this is false.
            if count(np.abs(value) > 0) != value.size:
                made: Bits = exact(a, b)
                return made
            return value.view(_U32)

        return run

    return make


def _pack_bf16(exact: Run) -> Run:
    """`cvt.rn.bf16x2.f32`: the first source becomes the upper half."""

    def run(a: Bits, b: Bits) -> Bits:
        x, y = a.view(_F32), b.view(_F32)
        if count(x != x) or count(y != y):  # noqa: PLR0124  (a NaN, sooner than np.isnan)
            made: Bits = exact(a, b)
            return made
        high = (a + _ROUND + ((a >> _SHIFT) & _ONE)) & _HIGH
        low = (b + _ROUND + ((b >> _SHIFT) & _ONE)) >> _SHIFT
        return high | low

    return run


def _exponential(exact: Run) -> Run:
    """`ex2.approx.ftz.f32`, as far as its result is neither subnormal nor NaN."""

    def run(a: Bits) -> Bits:
        value = np.exp2(a.view(_F32))
        if count(value >= _TINY) != value.size:
            if count(value != value):  # noqa: PLR0124  (a NaN, sooner than np.isnan)
                made: Bits = exact(a)
                return made
            value = np.where(value >= _TINY, value, np.float32(0))
        return value.view(_U32)

    return run


def _shuffle(ins: Instruction, exact: Run) -> Run:
    """`shfl.sync` with the same operands in all lanes, all of which execute."""
    mode, paired = ins.modifiers[1], isinstance(ins.operands[0], Pair)
    known: dict[tuple[int, int, int], tuple[Bits, Bits]] = {}
    lanes = np.arange(_WARP)

    def plan(by: int, clamp_word: int, size: int) -> tuple[Bits, Bits]:
        by, clamp, segment = by & 31, clamp_word & 31, clamp_word >> 8 & 31
        first = lanes & segment
        last = first | (clamp & ~segment)
        source = {"up": lanes - by, "down": lanes + by, "bfly": lanes ^ by, "idx": first | (by & ~segment)}[mode]
        inside = source >= last if mode == "up" else source <= last
        source = np.where(inside, source, lanes)
        warps = np.arange(size // _WARP)[:, None] * _WARP
        return (warps + source).ravel(), np.tile(inside, size // _WARP)

    def run(active: Bits, a: Bits, b: Bits, c: Bits, mask: Bits) -> Bits | tuple[Bits, Bits]:
        if count(active) != active.size or count(b != b[0]) or count(c != c[0]):
            made: Bits | tuple[Bits, Bits] = exact(active, a, b, c, mask)
            return made
        key = (int(b[0]), int(c[0]), a.size)
        found = known.get(key)
        if found is None:
            found = known[key] = plan(*key)
        return (a[found[0]], found[1]) if paired else a[found[0]]

    return run


_MAKERS: dict[str, Callable[[Run], Run]] = {
    **{"add.f32": _binary(np.add), "sub.f32": _binary(np.subtract), "mul.f32": _binary(np.multiply)},
    **{"add.rn.f32": _binary(np.add), "sub.rn.f32": _binary(np.subtract), "mul.rn.f32": _binary(np.multiply)},
    **{"min.f32": _extreme(np.minimum), "max.f32": _extreme(np.maximum)},
    **{"cvt.rn.bf16x2.f32": _pack_bf16, "ex2.approx.ftz.f32": _exponential},
}
