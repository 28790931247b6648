"""Floating-point instructions on exact numbers, one lane at a time, from the text of the PTX ISA and measured rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tests.emulator.forms.numbers import (
    LAYOUT,
    NAN,
    ZERO,
    Number,
    add,
    decode,
    divide,
    encode,
    finite,
    multiply,
    negate,
    root,
)

OUTSIDE = (0x7FF7, 0xFFF7)
"""What a tensor copy leaves outside of a tensor when told to; as a factor of `fma.oob` it makes a zero (H200)."""
MODES = ("rn", "rz", "rm", "rp")


@dataclass(frozen=True)
class Near:
    """An approximate result: a value, and how far from it an answer may be.

    Attributes:
        ulps: Of the value.
        absolute: Beside that.
    """

    value: float
    format: str
    ulps: float
    absolute: float = 0.0


Expected = int | Near
Model = Callable[[Sequence[str], Sequence[int]], Sequence[Expected]]


def mode_of(words: Sequence[str]) -> str:
    """The rounding mode; to nearest if none is named."""
    return next((word for word in words if word in MODES), "rn")


def ones(format_: str) -> int:
    """The bits of 1.0."""
    return encode(finite(1), format_)


def _result(words: Sequence[str], number: Number, format_: str) -> int:
    """Rounded, flushed, saturated and clamped as the modifiers say."""
    made = encode(number, format_, mode_of(words), "ftz" in words)
    if "sat" in words:
        if number.nan:
            return 0
        if number.negative or made == 0:
            return ZERO
        return min(made, ones(format_))
    if "relu" in words and number.negative:
        return 0
    return made


def _arithmetic(compute: Callable[[Sequence[str], Sequence[Number]], Number]) -> Model:
    """One operation on one or two packed numbers."""

    def element(words: Sequence[str], given: Sequence[int], format_: str) -> int:
        if "oob" in words and set(OUTSIDE) & set(given[:2]):
            return 0
        numbers = [decode(each, format_, "ftz" in words) for each in given]
        return _result(words, compute(words, numbers), format_)

    return _packed(element)


def _packed(element: Callable[[Sequence[str], Sequence[int], str], Expected]) -> Model:
    """An operation for each number of a register; `each part is its own expectation`."""

    def model(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
        format_ = words[-1]
        if not format_.endswith("x2"):
            return (element(words, given, format_),)
        one = format_.removesuffix("x2")
        size = sum(LAYOUT[one]) + 1
        mask = (1 << size) - 1
        return tuple(element(words, [each >> size * i & mask for each in given], one) for i in (0, 1))

    return model


def _add(words: Sequence[str], given: Sequence[Number]) -> Number:
    return add(given[0], given[1], mode_of(words))


def _sub(words: Sequence[str], given: Sequence[Number]) -> Number:
    return add(given[0], negate(given[1]), mode_of(words))


def _mul(words: Sequence[str], given: Sequence[Number]) -> Number:
    return multiply(given[0], given[1])


def _fma(words: Sequence[str], given: Sequence[Number]) -> Number:
    return add(multiply(given[0], given[1]), given[2], mode_of(words))


def mixed(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
    """add, sub, fma of float32 with narrower operands: `add.f32.f16 d, a, c`."""
    narrow = words[-1]
    formats = [narrow, narrow, "f32"] if words[0] == "fma" else [narrow, "f32"]
    numbers = [decode(bits, format_) for bits, format_ in zip(given, formats, strict=True)]
    compute = {"add": _add, "sub": _sub, "fma": _fma}[words[0]]
    return (_result(words, compute(words, numbers), "f32"),)


def _extreme(words: Sequence[str], given: Sequence[int], format_: str) -> Expected:
    """min and max of two or three numbers."""
    top = 1 << sum(LAYOUT[format_])
    if "ftz" in words:
        given = [_flushed(each, format_) for each in given]
    sign = 0
    if "abs" in words:
        sign = (sum(each & top for each in given) & top) if "xorsign" in words else 0
        given = [each & (top - 1) for each in given]
    numbers = [decode(each, format_) for each in given]
    if any(each.nan for each in numbers) and ("NaN" in words or all(each.nan for each in numbers)):
        return NAN
    kept = [(_order(bits, top), bits) for bits, number in zip(given, numbers, strict=True) if not number.nan]
    return (min(kept) if words[0] == "min" else max(kept))[1] | sign


def _flushed(bits: int, format_: str) -> int:
    fraction = LAYOUT[format_][1]
    size = bits & ((1 << sum(LAYOUT[format_])) - 1)
    return bits if size >> fraction else bits & (1 << sum(LAYOUT[format_]))


def _order(bits: int, top: int) -> int:
    """Numbers in their order, -0 below +0."""
    return -(bits & (top - 1)) - 1 if bits & top else bits


def _sign(words: Sequence[str], given: Sequence[int], format_: str) -> Expected:
    """neg, abs: NaN stays some NaN."""
    top = 1 << sum(LAYOUT[format_])
    if decode(given[0], format_).nan:
        return NAN
    bits = _flushed(given[0], format_) if "ftz" in words else given[0]
    return bits ^ top if words[0] == "neg" else bits & (top - 1)


def _copysign(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
    top = 1 << sum(LAYOUT[words[-1]])
    return (given[1] & (top - 1) | given[0] & top,)


def _testp(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
    format_ = words[-1]
    number = decode(given[0], format_)
    small = _flushed(given[0], format_) != given[0]
    usual = not number.nan and not number.infinite
    return (
        int(
            {
                "finite": usual,
                "infinite": number.infinite,
                "number": not number.nan,
                "notanumber": number.nan,
                "normal": usual and not small,  # a zero too, on an H200
                "subnormal": small,
            }[words[1]]
        ),
    )


def _exact_or_near(exact: Callable[[Sequence[Number]], Number]) -> Model:
    """div, rcp and sqrt: correctly rounded in a mode, else near."""

    def model(words: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
        format_ = words[-1]
        ftz = "ftz" in words
        if words[0] == "div" and "approx" in words and decode(given[1], format_).size not in (None, -1):
            size = decode(given[1], format_, ftz).size
            if size is not None and size > Fraction(2) ** 126:  # the ISA: 0, or NaN for an infinite dividend
                top = decode(given[0], format_)
                return (NAN if top.nan or top.infinite else ZERO,)
        if format_ == "f64" and "approx" in words:
            given = [each >> 32 << 32 for each in given]
        number = exact([decode(each, format_, ftz) for each in given])
        if not {"approx", "full"} & set(words):
            return (_result(words, number, format_),)
        return (_near(words, number, format_),)

    return model


def _near(words: Sequence[str], number: Number, format_: str) -> Expected:
    if number.nan:
        return NAN
    if format_ == "f64":  # rcp.approx.ftz.f64: 2^-23 relative; results below the normal numbers are zero
        bits = encode(number, format_)
        if bits & 0x7FFFFFFFFFFFFFFF < 1 << 52:
            return ZERO
        return bits if number.size is None else Near(_float(number), format_, 2.0**33)
    bits = encode(number, format_, "rn", "ftz" in words)
    magnitude = bits & 0x7FFFFFFF
    if number.size is None or magnitude in (0, 0x7F800000):
        return bits
    return Near(_float(number), format_, 2.0)


def _float(number: Number) -> float:
    return -math.inf if number.size is None and number.negative else float(number.value) if number.size else math.inf


BOUNDS = {"ex2": 2.4, "lg2": 2.31, "rsqrt": 1.52, "tanh": 135.0, "sin": 0.0, "cos": 0.0}
"""ulps that the full scans of an H200 showed, and a little more."""
ABSOLUTE = {"lg2": 2.0**-22, "sin": 2.0**-14.7, "cos": 2.0**-14.7}
_NARROW = {"ex2": 1.01, "tanh": 1.01}


def _function(words: Sequence[str], given: Sequence[int], format_: str) -> Expected:
    """ex2, lg2, sin, cos, tanh, rsqrt."""
    name = words[0]
    upper = format_ == "f64" and "ftz" in words  # the other half of the operand is not looked at
    number = decode(given[0] >> 32 << 32 if upper else given[0], format_, "ftz" in words and name != "tanh")
    special = _special(name, number)
    if special is not None:
        return special if special in (NAN, ZERO) else encode(_SPECIAL_NUMBERS[special], format_)
    x = float(number.value)
    if name in ("sin", "cos") and abs(x) > 100 * math.pi:
        return Near(0.0, format_, 0.0, 1.0)
    value = {
        "ex2": lambda: 2.0 ** min(max(x, -2000.0), 1023.0),
        "lg2": lambda: math.log2(x),
        "sin": lambda: math.sin(x),
        "cos": lambda: math.cos(x),
        "tanh": lambda: math.tanh(x),
        "rsqrt": lambda: 1 / math.sqrt(x),
    }[name]()
    if format_ == "f64":
        return Near(value, format_, 2.0**33)
    bits = encode(finite(Fraction(value)), format_, "rn", "ftz" in words)
    if bits & ((1 << sum(LAYOUT[format_])) - 1) == 0 or decode(bits, format_).infinite:
        return bits
    bound = _NARROW[name] if format_ in ("f16", "bf16") else BOUNDS[name]
    return Near(value, format_, bound, ABSOLUTE.get(name, 0.0))


_SPECIAL_NUMBERS = {-10: Number(False, None), -11: Number(True, None), -12: finite(1), -13: finite(-1), -14: finite(0)}
_PLUS, _MINUS, _ONE, _LESS, _NOTHING = -10, -11, -12, -13, -14


def _special(name: str, x: Number) -> int | None:
    """The table of special values; None where the function has an ordinary value."""
    if x.nan:
        return NAN
    if x.zero:
        return {"ex2": _ONE, "lg2": _MINUS, "sin": ZERO, "cos": _ONE, "tanh": ZERO}.get(
            name, _MINUS if x.negative else _PLUS
        )
    if x.infinite:
        low = {"ex2": _NOTHING, "tanh": _LESS}.get(name, NAN)
        high = {"ex2": _PLUS, "lg2": _PLUS, "tanh": _ONE, "rsqrt": _NOTHING}.get(name, NAN)
        return low if x.negative else high
    return NAN if x.negative and name in ("lg2", "rsqrt") else None


FLOATS: dict[str, Model] = {
    **{"add": _arithmetic(_add), "sub": _arithmetic(_sub), "mul": _arithmetic(_mul)},
    **{"fma": _arithmetic(_fma), "mad": _arithmetic(_fma)},
    **{"min": _packed(_extreme), "max": _packed(_extreme), "neg": _packed(_sign), "abs": _packed(_sign)},
    **{"copysign": _copysign, "testp": _testp},
    "div": _exact_or_near(lambda given: divide(given[0], given[1])),
    "rcp": _exact_or_near(lambda given: divide(finite(1), given[0])),
    "sqrt": _exact_or_near(lambda given: root(given[0])),
    **dict.fromkeys(("ex2", "lg2", "sin", "cos", "tanh", "rsqrt"), _packed(_function)),
}
