"""float16 and bfloat16 arithmetic with one rounding for each result, single or two to a register; no approximations.

PTX ISA, section Half Precision Floating Point Instructions; NaNs, zeros and `.relu` as measured on an H200.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxbench.emulator.codegen.scalar.compare import floats
from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp, halves, same
from ptxbench.emulator.codegen.scalar.rounding import F32, F64, canonical, flush16, nearest_bf16, sum_odd, to_quantum

_TYPES = ("f16", "bf16")
_SMALLEST_NORMAL = np.float32(2.0**-126)
_OOB_NAN = 0x7FF7
"""What a tensor copy with `oobFill` NaN puts outside of a tensor: a factor that is it, with either sign, makes the
result of `.oob` zero; an addend that is it is an ordinary NaN (H200)."""


def narrow(value: Bits, type_: str) -> Bits:
    """float32 or float64 (exact, or rounded to odd) to float16 or bfloat16 bits, to nearest even; NaNs canonical."""
    if type_ == "f16":
        return canonical(np.asarray(value).astype(np.float16))
    if value.dtype == np.float32:
        return nearest_bf16(value.view(np.uint32))
    rounded = to_quantum(value, 8, 7, "rn")
    bits = np.asarray(rounded.astype(np.float32)).view(np.uint32) >> np.uint32(16)
    return np.where(np.isnan(value), np.uint16(0x7FFF), bits.astype(np.uint16))


def _element(form: Form, type_: str, compute: Callable[..., Bits]) -> Run:
    """Modifiers around a function of float32 arrays; its results are float32 or float64."""
    ftz = form.ftz and type_ == "f16"
    sat, relu, oob = (word in form.words for word in ("sat", "relu", "oob"))
    one = np.uint16(0x3C00 if type_ == "f16" else 0x3F80)
    nan = np.uint16(0x7FFF)
    top = np.uint16(0x8000)

    def run(*registers: Bits) -> Bits:
        given = tuple(flush16(each) for each in registers) if ftz else registers
        made = narrow(compute(*(floats(each, type_) for each in given)), type_)
        if ftz:
            made = flush16(made)
        if sat:
            made = np.where(made >= top, np.uint16(0), np.where(made == nan, np.uint16(0), np.minimum(made, one)))
        if relu:
            made = np.where(made >= top, np.uint16(0), made)
        if oob:
            outside = np.logical_or.reduce([(each & ~top) == np.uint16(_OOB_NAN) for each in registers[:2]])
            made = np.where(outside, np.uint16(0), made)
        return made

    return run


def _built(form: Form, count: int, compute: Callable[..., Bits]) -> ScalarOp | None:
    type_ = form.type.removesuffix("x2")
    if type_ not in _TYPES or len(form.types) != 1:
        return None
    run = _element(form, type_, compute)
    return same(halves(run) if form.type.endswith("x2") else run, form.type, count)


def add(form: Form) -> ScalarOp | None:
    """`add` and `sub`; a float32 sum has enough bits that rounding it again does no harm."""
    if form.ins.opcode == "sub":
        return _built(form, 2, np.subtract)
    return _built(form, 2, np.add)


def mul(form: Form) -> ScalarOp | None:
    """`mul`; the product is exact in float32, but for tiny ones of bfloat16."""
    return _built(form, 2, _product)


def _product(a: F32, b: F32) -> Bits:
    made = a * b
    if np.all(np.abs(made) >= _SMALLEST_NORMAL):
        return made
    exact: Bits = a.astype(np.float64) * b.astype(np.float64)
    return exact


def fma(form: Form) -> ScalarOp | None:
    """`fma`, with `.relu` and `.oob`."""
    return _built(form, 3, _fused)


def _fused(a: F32, b: F32, c: F32) -> F64:
    return sum_odd(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))


def signs(form: Form) -> ScalarOp | None:
    """`neg` and `abs`; a NaN becomes canonical."""
    type_ = form.type.removesuffix("x2")
    if type_ not in _TYPES:
        return None
    negate, ftz = form.ins.opcode == "neg", form.ftz and type_ == "f16"
    infinity = np.uint16(0x7C00 if type_ == "f16" else 0x7F80)
    low = np.uint16(0x7FFF)

    def run(a: Bits) -> Bits:
        given = flush16(a) if ftz else a
        changed = given ^ ~low if negate else given & low
        return np.where((a & low) > infinity, low, changed)

    return same(halves(run) if form.type.endswith("x2") else run, form.type, 1)


BUILDERS = {"add": (add,), "sub": (add,), "mul": (mul,), "fma": (fma,), "neg": (signs,), "abs": (signs,)}
