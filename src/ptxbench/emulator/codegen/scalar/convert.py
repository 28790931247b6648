"""cvt between integers and floating-point numbers, one to a register; pairs are in `convert_packed`.

PTX ISA, section cvt; results that it leaves open as measured on an H200.
"""

from __future__ import annotations

import numpy as np

from ptxbench.emulator.codegen.scalar.compare import floats
from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp, dtype, width
from ptxbench.emulator.codegen.scalar.integer import is_integer
from ptxbench.emulator.codegen.scalar.rounding import (
    F64,
    add_exactly,
    canonical,
    flush32,
    nearest_bf16,
    odd,
    saturate,
    to_f32,
    to_integral,
)
from ptxbench.emulator.codegen.scalar.small import SMALL, encode

_FLOATS = ("f16", "bf16", "f32", "f64")
_ROUNDS = ("rni", "rzi", "rmi", "rpi")
_CANONICAL = np.uint64(0x7FFFFFFFE0000000).view(np.float64)
"""The float32 NaN of arithmetic, as float64."""
_NOT_PLAIN = {"rz", "rm", "rp", "relu", "satfinite", "sat", "ftz"}


def convert(form: Form) -> ScalarOp | None:
    """`cvt` with one operand between scalar types."""
    if len(form.types) != 2 or "pack" in form.words or len(form.ins.operands) != 2:
        return None
    to, of = form.types
    if is_integer(to) and is_integer(of):
        run = _between_integers(form, to, of)
    elif is_integer(to) and of in _FLOATS:
        run = _to_integer(form, to, of)
    elif is_integer(of) and to in _FLOATS:
        run = _from_integer(form, to, of)
    elif of in _FLOATS and (to in _FLOATS or to == "tf32"):
        run = _between_floats(form, to, of)
    else:
        return None
    source = form.register_type(1, of) if is_integer(of) else of
    target = form.register_type(0, to) if is_integer(to) else "b32" if to == "tf32" else to
    return ScalarOp(run, (source,), (target,))


def integers(bits: Bits, type_: str) -> Bits:
    """Registers (as wide as the type or wider) as int64, or uint64 for u64."""
    size = width(type_)
    if type_ == "u64":
        return bits.astype(np.uint64)
    if type_[0] == "u":
        return bits.astype(np.int64) & ((1 << size) - 1)
    return bits.astype(np.uint64).astype(np.int64) << (64 - size) >> (64 - size)


def limits(type_: str) -> tuple[int, int]:
    """The smallest and the largest integer of a type."""
    size = width(type_)
    return (0, (1 << size) - 1) if type_[0] == "u" else (-(1 << (size - 1)), (1 << (size - 1)) - 1)


def clamped(values: Bits, type_: str) -> Bits:
    """int64 or uint64 within the range of a type."""
    low, high = limits(type_)
    if values.dtype == np.uint64:
        return np.minimum(values, np.uint64(high))
    return np.clip(values, max(low, -(1 << 63)), min(high, (1 << 63) - 1))


def _stored(values: Bits, type_: str, register: str) -> Bits:
    """64-bit integers cut to a type, then extended to the register that takes them."""
    name = dtype(register)
    if width(type_) == 64:
        return values.astype(np.uint64).astype(name)
    return integers(values.astype(np.uint64), type_).astype(np.uint64).astype(name)


def _between_integers(form: Form, to: str, of: str) -> Run:
    register, sat = form.register_type(0, to), "sat" in form.words

    def run(a: Bits) -> Bits:
        values = integers(a, of)
        return _stored(clamped(values, to) if sat else values, to, register)

    return run


def _to_integer(form: Form, to: str, of: str) -> Run:
    register, mode, ftz = form.register_type(0, to), form.one_of(*_ROUNDS) or "rzi", form.ftz
    low, high = limits(to)
    nan = 0 if width(to) < 64 and of != "f64" else 1 << (width(to) - 1)

    def run(a: Bits) -> Bits:
        value = to_integral(floats(a, of, ftz).astype(np.float64), mode)
        over, under = value >= float(high), value <= float(low)
        inside = np.where(over | under | np.isnan(value), 0.0, value)
        whole = inside.astype(np.uint64) if to == "u64" else inside.astype(np.int64).view(np.uint64)
        whole = np.where(over, np.uint64(high), np.where(under, np.uint64(low & 0xFFFFFFFFFFFFFFFF), whole))
        return _stored(np.where(np.isnan(value), np.uint64(nan), whole), to, register)

    return run


def _exactly(values: Bits) -> tuple[F64, F64]:
    """64-bit integers as a float64 and what it lacks."""
    thirty_two = values.dtype.type(32)
    upper = np.ldexp((values >> thirty_two).astype(np.float64), 32)
    return add_exactly(upper, (values & values.dtype.type(0xFFFFFFFF)).astype(np.float64))


def _from_integer(form: Form, to: str, of: str) -> Run:
    mode = form.rounding

    def run(a: Bits) -> Bits:
        nearest, error = _exactly(integers(a, of))
        if to == "f64":
            made = np.asarray(directed(nearest, error, mode))
            return np.asarray(saturate(made) if "sat" in form.words else made).view(np.uint64)
        return _narrowed(odd(nearest, error), to, mode, form)

    return run


def directed(nearest: F64, error: F64, mode: str) -> F64:
    """nearest + error (finite) as float64 in a rounding mode."""
    if mode == "rn":
        return nearest
    if mode == "rz":
        wrong, towards = (error > 0) == (nearest < 0), 0.0
        return np.where(wrong & (error != 0), np.nextafter(nearest, towards), nearest)
    if mode == "rm":
        return np.where(error < 0, np.nextafter(nearest, -np.inf), nearest)
    return np.where(error > 0, np.nextafter(nearest, np.inf), nearest)


def _narrowed(value: F64, to: str, mode: str, form: Form) -> Bits:
    """float64 (exact, or rounded to odd) as bits of a type, with `.sat`, `.ftz`, `.relu` and `.satfinite`."""
    if "sat" in form.words:
        value = saturate(np.asarray(value))
    if to == "f32":
        bits = canonical(to_f32(value, mode))
        return flush32(bits) if form.ftz else bits
    code = encode(value, SMALL[to], mode, "satfinite" in form.words, "relu" in form.words)
    return code if to == "tf32" else code.astype(np.uint16)


def _between_floats(form: Form, to: str, of: str) -> Run:
    whole = form.one_of(*_ROUNDS)
    mode = "rna" if "rna" in form.words else form.rounding
    if to == "tf32" and mode == "rna":
        return _tie_away_finite if "satfinite" in form.words else _tie_away
    if (to, of) == ("f32", "f32") and not form.words & {*_ROUNDS, "sat", "ftz"}:
        return lambda a: a
    if (to, of) == ("f32", "bf16") and not form.words & {"sat", "ftz"}:
        return lambda a: a.astype(np.uint32) << np.uint32(16)
    if of == "f32" and to in ("f16", "bf16") and not form.words & _NOT_PLAIN:
        return nearest_f16 if to == "f16" else nearest_bf16

    ftz = form.ftz and of != "f16"  # it concerns float32 alone; a subnormal float16 is a normal float32
    if to == "f16" and mode in ("rm", "rp"):
        ftz = False  # the device has no such instruction with .ftz

    keeps = of == "f64" and "sat" not in form.words

    def run(a: Bits) -> Bits:
        value = floats(a, of, ftz).astype(np.float64)
        if whole:
            value = to_integral(value, whole)
        if to != "f64":
            made = _narrowed(value, to, mode, form)
            return np.where(np.isnan(value), _nan(a, to), made) if keeps and np.isnan(value).any() else made
        if ftz:
            value = np.where(np.isnan(value), _CANONICAL, value)
        return np.asarray(saturate(np.asarray(value)) if "sat" in form.words else value).view(np.uint64)

    return run


def _nan(bits: Bits, to: str) -> Bits:
    """float64 NaNs cut to a narrower format, and quiet."""
    size, fraction = {"f32": (32, 23), "f16": (16, 10), "bf16": (16, 7)}[to]
    sign = (bits >> np.uint64(63)) << np.uint64(size - 1)
    top = ((1 << (size - 1 - fraction)) - 1) << fraction | 1 << (fraction - 1)
    payload = (bits >> np.uint64(52 - fraction)) & np.uint64((1 << fraction) - 1)
    made: Bits = (sign | np.uint64(top) | payload).astype(f"u{size // 8}")
    return made


def nearest_f16(a: Bits) -> Bits:
    """float32 bits to float16 bits, to nearest even."""
    return canonical(np.asarray(a.view(np.float32)).astype(np.float16))


def _tie_away(a: Bits) -> Bits:
    """`cvt.rna.tf32.f32`; infinities and NaNs only lose their low bits."""
    finite = (a & np.uint32(0x7F800000)) != np.uint32(0x7F800000)
    made: Bits = np.where(finite, a + np.uint32(0x1000), a) & np.uint32(0xFFFFE000)
    return made


def _tie_away_finite(a: Bits) -> Bits:
    """`cvt.rna.satfinite.tf32.f32`: what is not finite after rounding, NaNs too, loses one unit of the last place."""
    made = _tie_away(a)
    beyond = (made & np.uint32(0x7FFFFFFF)) >= np.uint32(0x7F800000)
    return np.where(beyond, made - np.uint32(0x2000), made)


BUILDERS = {"cvt": (convert,)}
