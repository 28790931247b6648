"""float32 and float64 add, sub, mul, fma, div, rcp, sqrt, abs, neg and their modifiers; no approximations, no halves.

PTX ISA, section Floating Point Instructions; NaNs and zeros as measured on an H200.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxbench.emulator.codegen.scalar import double
from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp, same
from ptxbench.emulator.codegen.scalar.rounding import (
    F32,
    F64,
    add_exactly,
    canonical,
    directed_zero,
    flush32,
    odd,
    saturate,
    sum_odd,
    to_f32,
)

_SIGN32 = np.uint32(0x80000000)
_HALFWAY = np.uint64(0x0FFFFFFF)
"""float64 bits that are all zero where a float32 midpoint may lie."""


def _wrapped(form: Form, compute: Callable[..., F32]) -> Run:
    """Modifiers around a function of float32 arrays."""
    ftz, sat = form.ftz, "sat" in form.words

    def run(*registers: Bits) -> Bits:
        if ftz:
            registers = tuple(flush32(each) for each in registers)
        value = compute(*(each.view(np.float32) for each in registers))
        bits = canonical(saturate(value) if sat else value)
        return flush32(bits) if ftz else bits

    return run


def _doubled(run: Run) -> Run:
    """A function of 32-bit registers, made one of 64-bit registers that hold two of them each (`f32x2`)."""

    def both(*registers: Bits) -> Bits:
        low = run(*(each.astype(np.uint32) for each in registers)).astype(np.uint64)
        high = run(*((each >> np.uint64(32)).astype(np.uint32) for each in registers)).astype(np.uint64)
        joined: Bits = low | high << np.uint64(32)
        return joined

    return both


def _built(form: Form, count: int, single: Callable[..., F32], wide: Callable[..., F64]) -> ScalarOp | None:
    if form.type == "f32":
        return same(_wrapped(form, single), "f32", count)
    if form.type == "f32x2":
        return same(_doubled(_wrapped(form, single)), "b64", count)
    if form.type != "f64":
        return None

    def run(*registers: Bits) -> Bits:
        return canonical(wide(*(each.view(np.float64) for each in registers)))

    return same(run, "f64", count)


def add_f32(a: F32, b: F32, mode: str) -> F32:
    """a + b."""
    if mode == "rn":
        return a + b
    x, y = a.astype(np.float64), b.astype(np.float64)
    return to_f32(directed_zero(sum_odd(x, y), x, y, mode), mode)


def multiply_f32(a: F32, b: F32, mode: str) -> F32:
    """a * b."""
    return a * b if mode == "rn" else to_f32(a.astype(np.float64) * b.astype(np.float64), mode)


def fma_f32(a: F32, b: F32, c: F32, mode: str) -> F32:
    """a * b + c with one rounding; the product of two float32 is exact in float64."""
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    if mode == "rn":
        total = product + addend
        if np.all(np.asarray(total).view(np.uint64) & _HALFWAY):
            return np.asarray(total).astype(np.float32)
    total, error = add_exactly(product, addend)
    return to_f32(directed_zero(odd(total, error), product, addend, mode), mode)


def add(form: Form) -> ScalarOp | None:
    """`add` and `sub`."""
    mode, minus = form.rounding, form.ins.opcode == "sub"
    wide = double.add(mode)
    if minus:
        # A NaN is handed on as it is, sign and all.
        return _built(
            form, 2, lambda a, b: add_f32(a, -b, mode), lambda a, b: wide(a, np.where(np.isnan(b), b, np.negative(b)))
        )
    return _built(form, 2, lambda a, b: add_f32(a, b, mode), wide)


def mul(form: Form) -> ScalarOp | None:
    """`mul`."""
    mode = form.rounding
    return _built(form, 2, lambda a, b: multiply_f32(a, b, mode), double.multiply(mode))


def fma(form: Form) -> ScalarOp | None:
    """`fma`, and `mad` on floating-point numbers, which is the same."""
    mode = form.rounding
    return _built(form, 3, lambda a, b, c: fma_f32(a, b, c, mode), double.fma(mode))


def divide(form: Form) -> ScalarOp | None:
    """`div.rn` and its like: a float64 quotient of float32 lies on the same side of every float32 as the exact one."""
    if form.has("approx") or form.has("full"):
        return None
    mode = form.rounding
    return _built(form, 2, lambda a, b: to_f32(a.astype(np.float64) / b.astype(np.float64), mode), double.divide(mode))


def reciprocal(form: Form) -> ScalarOp | None:
    """`rcp.rn` and its like."""
    if form.has("approx"):
        return None
    mode, wide = form.rounding, double.divide(form.rounding)
    return _built(form, 1, lambda a: to_f32(1.0 / a.astype(np.float64), mode), lambda a: wide(np.float64(1), a))


def square_root(form: Form) -> ScalarOp | None:
    """`sqrt.rn` and its like."""
    if form.has("approx"):
        return None
    mode = form.rounding
    return _built(form, 1, lambda a: to_f32(np.sqrt(a.astype(np.float64)), mode), double.square_root(mode))


def negate(form: Form) -> ScalarOp | None:
    """`neg`; a float32 NaN becomes canonical, a float64 one quiet."""
    return _built(form, 1, np.negative, _but_nan(np.negative))


def absolute(form: Form) -> ScalarOp | None:
    """`abs`; a float32 NaN becomes canonical, a float64 one quiet."""
    return _built(form, 1, np.abs, _but_nan(np.abs))


def _but_nan(function: Callable[[F64], F64]) -> Callable[[F64], F64]:
    """The function on numbers; NaNs keep their sign and payload, but are quiet."""
    return lambda a: np.where(np.isnan(a), a + 0.0, function(a))


def copysign(form: Form) -> ScalarOp:
    """`copysign`: the magnitude of b with the sign of a."""
    sign = _SIGN32 if form.type == "f32" else np.uint64(1 << 63)
    return same(lambda a, b: (a & sign) | (b & ~sign), form.type, 2)


def testp(form: Form) -> ScalarOp:
    """`testp`: what kind of number it is; a zero is normal on an H200."""
    floats, smallest = {"f32": (np.float32, 2.0**-126), "f64": (np.float64, 2.0**-1022)}[form.type]
    tests: dict[str, Run] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda x: ~np.isnan(x),
        "notanumber": np.isnan,
        "normal": lambda x: np.isfinite(x) & ((np.abs(x) >= smallest) | (x == 0)),
        "subnormal": lambda x: (x != 0) & (np.abs(x) < smallest),
    }
    test = tests[form.one_of(*tests)]
    return ScalarOp(lambda a: test(a.view(floats)), (form.type,), ("pred",))


def mixed(form: Form) -> ScalarOp | None:
    """`add`, `sub` and `fma` of float32 with float16 or bfloat16 factors (sm_100a)."""
    if len(form.types) != 2 or form.types[0] != "f32" or form.types[1] not in ("f16", "bf16"):
        return None
    mode, narrow, opcode = form.rounding, form.types[1], form.ins.opcode

    def widened(bits: Bits) -> F32:
        if narrow == "f16":
            return bits.view(np.float16).astype(np.float32)
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)

    def run(*registers: Bits) -> Bits:
        last = registers[-1].view(np.float32)
        a = widened(registers[0])
        if opcode == "fma":
            value = fma_f32(a, widened(registers[1]), last, mode)
        else:
            value = add_f32(a, -last if opcode == "sub" else last, mode)
        return canonical(saturate(value) if "sat" in form.words else value)

    return ScalarOp(run, (*(narrow,) * (2 if opcode == "fma" else 1), "f32"), ("f32",))


BUILDERS = {
    "add": (mixed, add),
    "sub": (mixed, add),
    "mul": (mul,),
    "fma": (mixed, fma),
    "mad": (fma,),
    "div": (divide,),
    "rcp": (reciprocal,),
    "sqrt": (square_root,),
    "neg": (negate,),
    "abs": (absolute,),
    "copysign": (copysign,),
    "testp": (testp,),
}
