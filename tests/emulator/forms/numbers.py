"""Floating-point numbers as exact fractions, and their bits in every format of PTX; written from the formats alone."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from math import isqrt

LAYOUT = {
    "f16": (5, 10),
    "bf16": (8, 7),
    "tf32": (8, 10),
    "f32": (8, 23),
    "f64": (11, 52),
    "e4m3": (4, 3),
    "e5m2": (5, 2),
    "e2m3": (2, 3),
    "e3m2": (3, 2),
    "e2m1": (2, 1),
}
"""Exponent and fraction bits."""
LARGEST = {"e4m3": 0x7E, "e2m3": 0x1F, "e3m2": 0x1F, "e2m1": 0x7}
"""The largest number of formats without infinities."""
NAN = -1
"""In place of bits: any NaN."""
ZERO = -2
"""In place of bits: a zero of either sign."""


@dataclass(frozen=True)
class Number:
    """A number with its sign; `size` is None for infinity, and -1 for what is no number."""

    negative: bool
    size: Fraction | None

    @cached_property
    def nan(self) -> bool:
        """Whether it is no number."""
        return self.size is not None and self.size < 0

    @property
    def infinite(self) -> bool:
        """Whether it is an infinity."""
        return self.size is None

    @property
    def zero(self) -> bool:
        """Whether it is +0 or -0."""
        return self.size == 0

    @property
    def value(self) -> Fraction:
        """The signed value of a finite number."""
        assert self.size is not None
        return -self.size if self.negative else self.size

    def signed(self, negative: bool) -> Number:
        """The same size with a sign."""
        return Number(negative, self.size)


NO_NUMBER = Number(False, Fraction(-1))


def finite(value: Fraction | int, zero_negative: bool = False) -> Number:
    """A finite number."""
    exact = Fraction(value)
    return Number(exact < 0 or (exact == 0 and zero_negative), abs(exact))


@lru_cache(maxsize=1 << 16)
def decode(bits: int, format_: str, ftz: bool = False) -> Number:
    """What bits mean; with `ftz` a subnormal number is zero."""
    exponent, fraction = LAYOUT[format_]
    if format_ == "tf32":
        bits >>= 13
    field, low = bits >> fraction & ((1 << exponent) - 1), bits & ((1 << fraction) - 1)
    negative = bool(bits >> (exponent + fraction) & 1)
    top = field == (1 << exponent) - 1
    if format_ == "e4m3" and top and low == 7:
        return NO_NUMBER
    if format_ not in LARGEST and top:
        return NO_NUMBER if low else Number(negative, None)
    if ftz and field == 0:
        return Number(negative, Fraction(0))
    whole = low + ((1 << fraction) if field else 0)
    return Number(negative, Fraction(whole) * Fraction(2) ** (max(field, 1) - smallest(format_) - fraction))


def smallest(format_: str) -> int:
    """Minus the exponent of the smallest normal number, plus one: the bias."""
    return (1 << (LAYOUT[format_][0] - 1)) - 1


@lru_cache(maxsize=1 << 16)
def encode(number: Number, format_: str, mode: str = "rn", ftz: bool = False, satfinite: bool = False) -> int:
    """The bits of a number rounded to a format, or `NAN`."""
    if number.nan:
        return NAN
    exponent, fraction = LAYOUT[format_]
    sign = number.negative << (exponent + fraction)
    infinity = ((1 << exponent) - 1) << fraction
    largest = LARGEST.get(format_, infinity - 1)
    if number.size is None:
        return _placed(sign | (largest if satfinite else infinity), format_)
    bias = smallest(format_)
    place = max(_floor_log2(number.size), 1 - bias) - fraction
    scaled = number.size / Fraction(2) ** place
    code = _rounded(scaled, number.negative, mode) + ((place + fraction - 1 + bias) << fraction)
    if code > largest:
        away = mode in ("rn", "rna", "rm" if number.negative else "rp")
        code = infinity if away and not satfinite else largest
    if ftz and code < 1 << fraction:
        code = 0
    return _placed(sign | code, format_)


def _placed(bits: int, format_: str) -> int:
    return bits << 13 if format_ == "tf32" else bits


def _floor_log2(size: Fraction) -> int:
    if not size:
        return -(1 << 20)
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if Fraction(2) ** guess <= size else guess - 1


def _rounded(exact: Fraction, negative: bool, mode: str) -> int:
    whole, rest = divmod(exact.numerator, exact.denominator)
    twice = 2 * rest - exact.denominator
    up = {
        "rn": twice > 0 or (twice == 0 and whole & 1 == 1),
        "rna": twice >= 0,
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    return whole + up


def to_integer(number: Number, mode: str) -> int:
    """A finite number rounded to an integer; `mode` is `rni`, `rzi`, `rmi` or `rpi`."""
    assert number.size is not None
    whole = _rounded(number.size, number.negative, mode.removesuffix("i"))
    return -whole if number.negative else whole


def add(a: Number, b: Number, mode: str = "rn") -> Number:
    """The exact sum; an exact zero has the sign that IEEE 754 gives it in a rounding mode."""
    if a.nan or b.nan or (a.infinite and b.infinite and a.negative != b.negative):
        return NO_NUMBER
    if a.infinite or b.infinite:
        return a if a.infinite else b
    total = a.value + b.value
    both = a.negative and b.negative
    return finite(total, both or (mode == "rm" and not (a.zero and b.zero and a.negative == b.negative)))


def multiply(a: Number, b: Number) -> Number:
    """The exact product."""
    if a.nan or b.nan or (a.infinite and b.zero) or (a.zero and b.infinite):
        return NO_NUMBER
    negative = a.negative != b.negative
    if a.size is None or b.size is None:
        return Number(negative, None)
    return Number(negative, a.size * b.size)


def divide(a: Number, b: Number) -> Number:
    """The exact quotient."""
    if a.nan or b.nan or (a.infinite and b.infinite) or (a.zero and b.zero):
        return NO_NUMBER
    negative = a.negative != b.negative
    if a.size is None or b.zero:
        return Number(negative, None)
    return Number(negative, Fraction(0) if b.size is None else a.size / b.size)


def root(a: Number) -> Number:
    """The square root, exact where it is a fraction, else a fraction that rounds as the root does."""
    if a.nan or (a.negative and not a.zero):
        return NO_NUMBER
    if a.size is None or a.zero:
        return a
    shift = 1200
    scaled = a.size * 4**shift
    whole = isqrt(int(scaled))
    exact = Fraction(whole) if whole * whole == scaled else Fraction(2 * whole + 1, 2)
    return Number(False, exact / 2**shift)


def negate(a: Number) -> Number:
    """The number with the other sign."""
    return Number(not a.negative, a.size)
