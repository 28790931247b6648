"""Approximating functions: correctly rounded where the device is within about two units in the last place of it.

Special values, flushing and clamping are the device's (PTX ISA, Floating Point Instructions; scans of all 2^32 inputs
on an H200); ordinary results lie within its error bounds, not on its bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxbench.emulator.codegen.scalar.compare import floats
from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp, halves, same
from ptxbench.emulator.codegen.scalar.half import narrow
from ptxbench.emulator.codegen.scalar.rounding import F64, canonical, flush16, flush32

_LARGE_DIVISOR = 2.0**126
_TURN = np.float64(np.float32(0.15915494))


def _angle(x: F64) -> F64:
    """The angle that the device takes: a number of turns, cut to float32, of which the fraction counts."""
    turns = x * _TURN
    near = turns.astype(np.float32)
    cut = np.where(np.abs(near) > np.abs(turns), np.nextafter(near, np.float32(0)), near).astype(np.float64)
    made: F64 = np.copysign(2 * np.pi * (cut - np.trunc(cut)), x)
    return made


_FUNCTIONS: dict[str, Callable[[F64], F64]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "rcp": np.reciprocal,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sqrt": np.sqrt,
    "sin": lambda x: np.sin(_angle(x)),
    "cos": lambda x: np.cos(_angle(x)),
    "tanh": np.tanh,
}


def unary(form: Form) -> ScalarOp | None:
    """`ex2`, `lg2`, `rcp`, `rsqrt`, `sqrt`, `sin`, `cos`, `tanh`, all `.approx`."""
    if "approx" not in form.words:
        return None
    function = _FUNCTIONS[form.ins.opcode]
    if form.type == "f64":
        return same(_upper_half(function) if form.ftz else _whole(function), "f64", 1)
    if form.type == "f32":
        return same(_single(function, form), "f32", 1)
    type_ = form.type.removesuffix("x2")
    run = _half(function, type_, form.ftz)
    return same(halves(run) if form.type.endswith("x2") else run, form.type, 1)


def _single(function: Callable[[F64], F64], form: Form) -> Run:
    before = form.ftz
    after = form.ftz or form.ins.opcode == "sin"  # the device's sine has no subnormal results

    def run(a: Bits) -> Bits:
        value = (flush32(a) if before else a).view(np.float32).astype(np.float64)
        bits = canonical(function(value).astype(np.float32))
        return flush32(bits) if after else bits

    return run


def _half(function: Callable[[F64], F64], type_: str, ftz: bool) -> Run:
    def run(a: Bits) -> Bits:
        value = floats(_flushed(a, type_) if ftz else a, type_).astype(np.float64)
        made = narrow(function(value), type_)
        return _flushed(made, type_) if ftz else made

    return run


def _flushed(bits: Bits, type_: str) -> Bits:
    if type_ == "f16":
        return flush16(bits)
    return np.where((bits & np.uint16(0x7F80)) == 0, bits & np.uint16(0x8000), bits)


def _upper_half(function: Callable[[F64], F64]) -> Run:
    """`rcp` and `rsqrt` with `.ftz` on float64 know the upper 32 bits only, of the operand and of the result."""
    sign, top, upper = np.uint64(1 << 63), np.uint64(0x7FF << 52), np.uint64(0xFFFFFFFF00000000)

    def flushed(bits: Bits) -> Bits:
        return np.where((bits & top) == 0, bits & sign, bits & upper)

    def run(a: Bits) -> Bits:
        value = np.asarray(function(flushed(a).view(np.float64)))
        return np.where(np.isnan(value), np.uint64(0x7FFFFFFF00000000), flushed(value.view(np.uint64)))

    return run


def _whole(function: Callable[[F64], F64]) -> Run:
    """`rsqrt` on float64: refined to all bits but perhaps the last."""
    return lambda a: np.asarray(function(a.view(np.float64))).view(np.uint64)


def divide(form: Form) -> ScalarOp | None:
    """`div.approx` and `div.full`; the first takes divisors beyond 2^126 for infinite."""
    limited = "approx" in form.words
    if not (limited or "full" in form.words):
        return None

    def run(a: Bits, b: Bits) -> Bits:
        if form.ftz:
            a, b = flush32(a), flush32(b)
        top, bottom = a.view(np.float32).astype(np.float64), b.view(np.float32).astype(np.float64)
        if limited:
            bottom = np.where(np.abs(bottom) > _LARGE_DIVISOR, np.copysign(np.inf, bottom), bottom)
        bits = canonical((top / bottom).astype(np.float32))
        return flush32(bits) if form.ftz else bits

    return same(run, "f32", 2)


BUILDERS = {**{opcode: (unary,) for opcode in _FUNCTIONS}, "div": (divide,)}
