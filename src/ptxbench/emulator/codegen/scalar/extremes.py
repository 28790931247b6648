"""min and max of floating-point numbers of all widths (PTX ISA, sections min and max); integers are elsewhere.

-0 is below +0. A NaN loses against a number, or wins with `.NaN`; NaN results are canonical. `.xorsign.abs` compares
magnitudes, its sign is the exclusive or of both signs.
"""

from __future__ import annotations

import numpy as np

from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp, halves, same, signed
from ptxbench.emulator.codegen.scalar.rounding import flush16, flush32

_SMALLEST_NORMAL = np.float32(2.0**-126)
"""Results from here on are no zero, no NaN and not subnormal: NumPy then agrees with all the rules."""
_LARGEST_NUMBER = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF0000000000000}


def _order(bits: Bits) -> Bits:
    """Signed integers that are ordered as the numbers are, -0 below +0."""
    value = signed(bits)
    top = bits.dtype.itemsize * 8 - 1
    ordered: Bits = value ^ ((value >> top) & value.dtype.type((1 << top) - 1))
    return ordered


def _pairwise(form: Form, type_: str) -> Run:
    smaller = form.ins.opcode == "min"
    wins, sign_only, magnitudes = "NaN" in form.words, "xorsign" in form.words, "abs" in form.words
    infinity = _LARGEST_NUMBER[type_]
    flush = {"f16": flush16, "f32": flush32}.get(type_) if form.ftz else None
    plain: Run = np.minimum if smaller else np.maximum

    def quick(a: Bits, b: Bits) -> Bits:
        best = plain(a.view(np.float32), b.view(np.float32))
        ordinary = np.abs(best) >= _SMALLEST_NORMAL
        return np.asarray(best).view(np.uint32) if np.all(ordinary) else run(a, b)

    def run(a: Bits, b: Bits) -> Bits:
        if flush:
            a, b = flush(a), flush(b)
        of = a.dtype.type
        low = of((1 << (a.dtype.itemsize * 8 - 1)) - 1)
        x, y = (a & low, b & low) if magnitudes else (a, b)
        first = _order(x) < _order(y) if smaller else _order(x) > _order(y)
        made = np.where(first, x, y)
        if sign_only:
            made = made | ((a ^ b) & ~low)
        a_nan, b_nan = (a & low) > of(infinity), (b & low) > of(infinity)
        if not (np.any(a_nan) or np.any(b_nan)):
            return made
        if sign_only:
            sign = (a ^ b) & ~low
            x, y = x | sign, y | sign
        made = np.where(a_nan, y, np.where(b_nan, x, made))
        return np.where((a_nan | b_nan) if wins else (a_nan & b_nan), low, made)

    return quick if type_ == "f32" and not magnitudes else run


def extremum(form: Form) -> ScalarOp | None:
    """`min` and `max`, of two operands or (sm_100a) three."""
    type_ = form.type.removesuffix("x2")
    if type_ not in _LARGEST_NUMBER:
        return None
    run = _pairwise(form, type_)
    if form.type.endswith("x2"):
        run = halves(run)
    if len(form.ins.operands) == 4:
        pair = run
        return same(lambda a, b, c: pair(pair(a, b), c), form.type, 3)
    return same(run, form.type, 2)


BUILDERS = {"min": (extremum,), "max": (extremum,)}
