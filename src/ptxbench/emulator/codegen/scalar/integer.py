"""Integer arithmetic on register bits (PTX ISA, section Integer Arithmetic Instructions); no carries, no bit fields."""

from __future__ import annotations

from functools import partial

import numpy as np

from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp, halves, same, signed, unsigned, width

_LOW32 = np.uint64(0xFFFFFFFF)
_SHIFT32 = np.uint64(32)


def is_integer(type_: str) -> bool:
    """Whether a PTX type is an integer or packed integer."""
    return type_[0] in "us" and type_ != "ue8m0x2"


def add(form: Form) -> ScalarOp | None:
    """`add` and `sub` on integers."""
    if not is_integer(form.type):
        return None
    plain: Run = np.add if form.ins.opcode == "add" else np.subtract
    if form.type.endswith("x2"):
        return same(halves(plain), form.type, 2)
    if "sat" in form.words:
        return same(partial(_saturated, plain), form.type, 2)
    return same(plain, form.type, 2)


def _saturated(combine: Run, a: Bits, b: Bits) -> Bits:
    return _clamp32(combine(_wide(a, True), _wide(b, True)))


def _clamp32(values: Bits) -> Bits:
    return unsigned(np.clip(values, -(1 << 31), (1 << 31) - 1).astype(np.int32))


def _wide(bits: Bits, negative: bool) -> Bits:
    """32-bit or smaller integers as 64-bit ones of the same value."""
    return signed(bits).astype(np.int64) if negative else bits.astype(np.uint64)


def high(a: Bits, b: Bits, negative: bool) -> Bits:
    """The upper half of the product; same dtype as the factors."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        product = unsigned(_wide(a, negative) * _wide(b, negative))
        return (product >> np.uint64(bits)).astype(a.dtype)
    a_low, a_high, b_low, b_high = a & _LOW32, a >> _SHIFT32, b & _LOW32, b >> _SHIFT32
    middle = a_high * b_low + (a_low * b_low >> _SHIFT32)
    other = a_low * b_high + (middle & _LOW32)
    result = a_high * b_high + (middle >> _SHIFT32) + (other >> _SHIFT32)
    if negative:
        zero = np.uint64(0)
        result = result - np.where(signed(a) < 0, b, zero) - np.where(signed(b) < 0, a, zero)
    made: Bits = result
    return made


def wide(a: Bits, b: Bits, negative: bool) -> Bits:
    """The whole product, twice as wide as the factors (16 or 32 bits)."""
    product: Bits = unsigned(_wide(a, negative) * _wide(b, negative))
    return product if a.dtype.itemsize == 4 else product.astype(np.uint32)


def _multiply(form: Form) -> tuple[Run, str]:
    """The product of `mul`, `mad`, and the type of its result."""
    negative = form.type[0] == "s"
    if "wide" in form.words:
        return partial(wide, negative=negative), f"{form.type[0]}{2 * width(form.type)}"
    if "hi" in form.words:
        return partial(high, negative=negative), form.type
    return np.multiply, form.type


def mul(form: Form) -> ScalarOp | None:
    """`mul.lo`, `mul.hi`, `mul.wide`."""
    if not is_integer(form.type):
        return None
    run, result = _multiply(form)
    return ScalarOp(run, (form.type,) * 2, (result,))


def mad(form: Form) -> ScalarOp | None:
    """`mad.lo`, `mad.hi`, `mad.wide`, `mad.hi.sat.s32`."""
    if not is_integer(form.type):
        return None
    product, result = _multiply(form)
    if "sat" in form.words:
        combine: Run = partial(_saturated, np.add)
    else:
        combine = np.add

    def run(a: Bits, b: Bits, c: Bits) -> Bits:
        total: Bits = combine(product(a, b), c)
        return total

    return ScalarOp(run, (form.type, form.type, result), (result,))


def mul24(form: Form) -> ScalarOp:
    """`mul24` and `mad24`: products of the low 24 bits; `.hi` is bits 47 to 16."""
    negative, upper, saturate = form.type[0] == "s", "hi" in form.words, "sat" in form.words

    def low24(bits: Bits) -> Bits:
        if negative:
            return (signed(bits << np.uint32(8)) >> 8).astype(np.int64)
        return (bits & np.uint32(0xFFFFFF)).astype(np.int64)

    def product(a: Bits, b: Bits) -> Bits:
        whole = low24(a) * low24(b)
        return unsigned(whole >> 16 if upper else whole).astype(np.uint32)

    def added(a: Bits, b: Bits, c: Bits) -> Bits:
        part = product(a, b)
        total: Bits = _saturated(np.add, part, c) if saturate else part + c
        return total

    return same(added, "b32", 3) if form.ins.opcode == "mad24" else same(product, "b32", 2)


def divide(form: Form) -> ScalarOp | None:
    """`div` and `rem`; by zero all bits are ones (H200)."""
    if not is_integer(form.type):
        return None
    negative, remainder = form.type[0] == "s", form.ins.opcode == "rem"

    def run(a: Bits, b: Bits) -> Bits:
        zero, ones = b == 0, a.dtype.type(np.iinfo(a.dtype).max)
        top, bottom = (_magnitude(a), _magnitude(b)) if negative else (a, b)
        quotient = top // np.where(zero, a.dtype.type(1), bottom)
        if negative:
            quotient = np.where((signed(a) < 0) != (signed(b) < 0), -quotient, quotient)
        return np.where(zero, ones, a - quotient * b if remainder else quotient)

    return same(run, form.type, 2)


def _magnitude(bits: Bits) -> Bits:
    return np.where(signed(bits) < 0, -bits, bits)


def sad(form: Form) -> ScalarOp:
    """`sad`: c + |a - b|."""
    negative = form.type[0] == "s"

    def run(a: Bits, b: Bits, c: Bits) -> Bits:
        less = signed(a) < signed(b) if negative else a < b
        total: Bits = c + np.where(less, b - a, a - b)
        return total

    return same(run, form.type, 3)


def negate(form: Form) -> ScalarOp | None:
    """`neg` on integers."""
    return same(np.negative, form.type, 1) if is_integer(form.type) else None


def absolute(form: Form) -> ScalarOp | None:
    """`abs` on integers; the smallest stays itself."""
    return same(_magnitude, form.type, 1) if is_integer(form.type) else None


def extremum(form: Form) -> ScalarOp | None:
    """`min` and `max` on integers, packed ones and `.relu` too."""
    if not is_integer(form.type):
        return None
    choose: Run = np.minimum if form.ins.opcode == "min" else np.maximum
    if form.type[0] == "u":
        run: Run = choose
    else:
        run = partial(_signed_extremum, choose, "relu" in form.words)
    return same(halves(run) if form.type.endswith("x2") else run, form.type, 2)


def _signed_extremum(choose: Run, relu: bool, a: Bits, b: Bits) -> Bits:
    chosen = choose(signed(a), signed(b))
    return unsigned(np.maximum(chosen, chosen.dtype.type(0)) if relu else chosen)


def dot(form: Form) -> ScalarOp:
    """`dp4a` and `dp2a`: sums of products of bytes, or of halfwords and bytes, onto c."""
    first, second = form.types[0][0] == "s", form.types[1][0] == "s"
    four = form.ins.opcode == "dp4a"
    offset = 2 if "hi" in form.words else 0

    def run(a: Bits, b: Bits, c: Bits) -> Bits:
        total = c.astype(np.int64)
        for i in range(4 if four else 2):
            left = _field(a, i, 8 if four else 16, first)
            total = total + left * _field(b, i + offset, 8, second)
        return (total & 0xFFFFFFFF).astype(np.uint32)

    return same(run, "b32", 3)


def _field(bits: Bits, index: int, size: int, negative: bool) -> Bits:
    field = (bits >> np.uint32(index * size)).astype(np.int64) & ((1 << size) - 1)
    return np.where(field >> (size - 1) > 0, field - (1 << size), field) if negative else field


BUILDERS = {
    "add": (add,),
    "sub": (add,),
    "mul": (mul,),
    "mad": (mad,),
    "mul24": (mul24,),
    "mad24": (mul24,),
    "div": (divide,),
    "rem": (divide,),
    "sad": (sad,),
    "neg": (negate,),
    "abs": (absolute,),
    "min": (extremum,),
    "max": (extremum,),
    "dp4a": (dot,),
    "dp2a": (dot,),
}
