"""set, setp, selp, slct (PTX ISA, section Comparison and Selection Instructions); no arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp, dtype, signed, width
from ptxbench.emulator.codegen.scalar.rounding import flush16, flush32

_ORDER: dict[str, Run] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_UNORDERED = {f"{name}u": _ORDER[name] for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_COMBINE: dict[str, Run] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


def floats(bits: Bits, type_: str, ftz: bool = False) -> Bits:
    """Registers as numbers to compare: float64 or float32, exactly."""
    if type_ == "f64":
        return bits.view(np.float64)
    if type_ == "f32":
        return (flush32(bits) if ftz else bits).view(np.float32)
    if type_ == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return (flush16(bits) if ftz else bits).view(np.float16).astype(np.float32)


def comparison(name: str, type_: str, ftz: bool) -> Run:
    """The predicate `name` on registers of a type (not a packed one)."""
    if type_[0] in "us" or type_[:2] in ("b1", "b3", "b6"):
        compare = _ORDER[name]
        if type_[0] == "s" and name not in ("lo", "ls", "hi", "hs"):
            return lambda a, b: compare(signed(a), signed(b))
        return compare
    decide = _float_comparison(name)
    return lambda a, b: decide(floats(a, type_, ftz), floats(b, type_, ftz))


def _float_comparison(name: str) -> Run:
    if name == "num":
        return lambda x, y: ~(np.isnan(x) | np.isnan(y))
    if name == "nan":
        return lambda x, y: np.isnan(x) | np.isnan(y)
    if name == "ne":
        return lambda x, y: (x < y) | (x > y)
    if name == "equ":
        return lambda x, y: ~((x < y) | (x > y))
    if name in ("neu", "eq", "lt", "le", "gt", "ge"):
        return _UNORDERED["neu"] if name == "neu" else _ORDER[name]
    opposite = _ORDER[{"ltu": "ge", "leu": "gt", "gtu": "le", "geu": "lt"}[name]]
    return lambda x, y: ~opposite(x, y)


def _parts(form: Form) -> tuple[Callable[[Bits, Bits], tuple[Bits, ...]], Run | None]:
    """The comparison of each element of the operands (two if packed), and how a third operand joins."""
    name = form.one_of(*_ORDER, *_UNORDERED, "num", "nan")
    type_ = form.type
    packed = type_.endswith("x2")
    compare = comparison(name, type_[:-2] if packed else type_, form.ftz)
    join = _COMBINE.get(form.one_of(*_COMBINE))

    def run(a: Bits, b: Bits) -> tuple[Bits, ...]:
        if not packed:
            return (compare(a, b),)
        sixteen = np.uint32(16)
        low = compare(a.astype(np.uint16), b.astype(np.uint16))
        return low, compare((a >> sixteen).astype(np.uint16), (b >> sixteen).astype(np.uint16))

    return run, join


def setp(form: Form) -> ScalarOp:
    """`setp`: p is the comparison, q its opposite; of packed operands p is the low half's and q the high half's."""
    compare, join = _parts(form)
    packed, both = form.type.endswith("x2"), form.paired

    def run(a: Bits, b: Bits, *c: Bits) -> Bits | tuple[Bits, Bits]:
        found = compare(a, b)
        p, q = found if packed else (found[0], ~found[0])
        if join is not None:
            p, q = join(p, c[0]), join(q, c[0])
        return (p, q) if both else p

    third = ("pred",) if join is not None else ()
    return ScalarOp(run, (form.type, form.type, *third), ("pred", "pred") if both else ("pred",))


def _ones(form: Form) -> tuple[int, str]:
    """What `set` writes where the comparison holds: the bits of one element, and the result's type."""
    result = form.types[0]
    bits = {"f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80, "f16x2": 0x3C00, "bf16x2": 0x3F80}.get(result)
    if bits is None:
        bits = 0xFFFF if form.type.endswith("x2") else (1 << width(result)) - 1
    return bits, result


def set_(form: Form) -> ScalarOp:
    """`set`: ones (integers: all bits; floats: 1.0) where the comparison holds; packed operands fill both halves."""
    compare, join = _parts(form)
    ones, result = _ones(form)
    name = np.dtype(dtype(result))

    def run(a: Bits, b: Bits, *c: Bits) -> Bits:
        made = name.type(0)
        for i, found in enumerate(compare(a, b)):
            holds = found if join is None else join(found, c[0])
            made = made | np.where(holds, name.type(ones << 16 * i), name.type(0))
        filled: Bits = np.asarray(made)
        return filled

    third = ("pred",) if join is not None else ()
    return ScalarOp(run, (form.type, form.type, *third), (result,))


def selp(form: Form) -> ScalarOp:
    """`selp`: a where the predicate holds, else b."""
    return ScalarOp(lambda a, b, p: np.where(p, a, b), (form.type, form.type, "pred"), (form.type,))


def slct(form: Form) -> ScalarOp:
    """`slct`: a where c is at least zero (-0 is, NaN is not), else b."""
    value, by = form.types
    ftz = form.ftz

    def run(a: Bits, b: Bits, c: Bits) -> Bits:
        keep = signed(c) >= 0 if by == "s32" else floats(c, "f32", ftz) >= 0
        return np.where(keep, a, b)

    return ScalarOp(run, (value, value, by), (value,))


BUILDERS = {"setp": (setp,), "set": (set_,), "selp": (selp,), "slct": (slct,)}
