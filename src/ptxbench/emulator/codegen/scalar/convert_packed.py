"""cvt into and out of registers that hold several small numbers, and cvt.pack; one number at a time is in `convert`.

The first operand becomes the upper element (PTX ISA, section cvt).
"""

from __future__ import annotations

import numpy as np

from ptxbench.emulator.codegen.scalar.compare import floats
from ptxbench.emulator.codegen.scalar.convert import clamped, integers, nearest_f16
from ptxbench.emulator.codegen.scalar.form import Bits, Form, Run, ScalarOp, dtype, width
from ptxbench.emulator.codegen.scalar.rounding import nearest_bf16
from ptxbench.emulator.codegen.scalar.small import SMALL, decode, encode, encode_stochastic, to_scale

_PAIRS = {"f16x2": 16, "bf16x2": 16, "e4m3x2": 8, "e5m2x2": 8, "e2m3x2": 8, "e3m2x2": 8, "ue8m0x2": 8, "e2m1x2": 4}

# Where the random bits of each element begin, the lowest element first (PTX ISA, section cvt). Both elements of a pair
# of 8 or 6 bits have the same 16 bits; of 4-bit ones, each half of the word has a byte for one of each pair.
_RANDOM = {
    **{(name, 2): (0, 16) for name in ("f16", "bf16")},
    **{(name, 4): (0, 0, 16, 16) for name in ("e4m3", "e5m2", "e2m3", "e3m2")},
    ("e2m1", 4): (0, 16, 8, 24),
}


def convert(form: Form) -> ScalarOp | None:
    """`cvt` of pairs, and of four numbers with stochastic rounding."""
    if len(form.types) != 2 or "pack" in form.words:
        return None
    to, of = form.types
    if "rs" in form.words:
        return _stochastic(form, to) if of == "f32" else None
    if to in _PAIRS and of == "f32" and len(form.ins.operands) == 3:
        return _from_two(form, to)
    if to in _PAIRS and of in _PAIRS:
        return _between(form, to, of)
    return None


def _register(type_: str) -> str:
    """What a register of a packed type is."""
    return f"b{max(width(type_), 16)}"


def _element(form: Form, to: str) -> Run:
    """float32 bits to one element's code, uint32."""
    name = to.removesuffix("x2")
    mode = form.rounding
    satfinite, relu = "satfinite" in form.words, "relu" in form.words
    if name == "ue8m0":
        return lambda a: to_scale(a, mode, satfinite)
    if mode == "rn" and not (satfinite or relu) and name in ("f16", "bf16"):
        fast = nearest_f16 if name == "f16" else nearest_bf16
        return lambda a: fast(a).astype(np.uint32)
    format_ = SMALL[name]
    return lambda a: encode(a.view(np.float32).astype(np.float64), format_, mode, satfinite, relu)


def _joined(low: Bits, high: Bits, to: str) -> Bits:
    made: Bits = (low | high << np.uint32(_PAIRS[to])).astype(dtype(to))
    return made


def _stochastic(form: Form, to: str) -> ScalarOp:
    """`cvt.rs`: two or four float32 and 32 random bits."""
    name, count = to[:-2], int(to[-1])
    format_, size = SMALL[name], width(to) // count
    satfinite, relu = "satfinite" in form.words, "relu" in form.words
    taken = 13 if name == "f16" else 8 if name == "e2m1" else 16

    def run(*given: Bits) -> Bits:
        *numbers, random = given
        made: Bits = np.zeros(np.broadcast_shapes(*(each.shape for each in given)), np.uint32)
        for place, (bits, low) in enumerate(zip(numbers[::-1], _RANDOM[name, count], strict=True)):
            value = bits.view(np.float32).astype(np.float64)
            chosen = random >> np.uint32(low) & np.uint32((1 << taken) - 1)
            made = made | encode_stochastic(value, format_, (chosen, taken), satfinite, relu) << np.uint32(size * place)
        return made.astype(dtype(to))

    return ScalarOp(run, ("f32",) * count + ("b32",), (_register(to),))


def _from_two(form: Form, to: str) -> ScalarOp:
    element = _element(form, to)
    return ScalarOp(lambda a, b: _joined(element(b), element(a), to), ("f32", "f32"), (_register(to),))


def _between(form: Form, to: str, of: str) -> ScalarOp:
    element = _element(form, to)
    size, name = _PAIRS[of], of.removesuffix("x2")
    mask = np.uint32((1 << size) - 1)

    def single(code: Bits) -> Bits:
        if name in ("f16", "bf16"):
            value = floats(code.astype(np.uint16), name)
        elif name == "ue8m0":
            value = np.where(code == 255, np.nan, np.ldexp(1.0, code.astype(np.int32) - 127)).astype(np.float32)
        else:
            value = decode(code, name).astype(np.float32)
        made: Bits = element(np.asarray(value).view(np.uint32))
        return made

    def run(a: Bits) -> Bits:
        wide = a.astype(np.uint32)
        return _joined(single(wide & mask), single(wide >> np.uint32(size) & mask), to)

    return ScalarOp(run, (_register(of),), (_register(to),))


def pack(form: Form) -> ScalarOp | None:
    """`cvt.pack.sat`: two clamped integers, a above b; narrower than 16 bits they push c upwards."""
    if "pack" not in form.words:
        return None
    to = form.types[0]
    size = width(to)
    mask = np.uint32((1 << size) - 1)

    def run(a: Bits, b: Bits, *c: Bits) -> Bits:
        upper, lower = (
            clamped(integers(each, "s32"), to).astype(np.uint64).astype(np.uint32) & mask for each in (a, b)
        )
        made: Bits = lower | upper << np.uint32(size)
        return made | c[0] << np.uint32(2 * size) if c else made

    third = ("b32",) if len(form.ins.operands) == 4 else ()
    return ScalarOp(run, ("s32", "s32", *third), ("b32",))


BUILDERS = {"cvt": (pack, convert)}
