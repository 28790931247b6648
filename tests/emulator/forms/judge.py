"""Compares an answer's bits with what a model expects; knows no instruction."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from tests.emulator.forms.floats import Expected, Near
from tests.emulator.forms.numbers import LAYOUT, NAN, ZERO, decode, encode, finite


def agrees(got: int, expected: Expected, format_: str) -> bool:
    """Whether bits are what is expected; `format_` is that of a floating-point result."""
    if isinstance(expected, Near):
        return _near(got, expected)
    if expected == NAN:
        return decode(got, format_).nan
    if expected == ZERO:
        return got & ((1 << sum(LAYOUT[format_])) - 1) == 0
    return got == expected


def _near(got: int, expected: Near) -> bool:
    number = decode(got, expected.format)
    if number.nan or number.size is None:
        return False
    exact = Fraction(expected.value)
    code = encode(finite(exact), expected.format, "rz")
    fraction = LAYOUT[expected.format][1]
    field = code >> fraction & ((1 << LAYOUT[expected.format][0]) - 1)
    bias = (1 << (LAYOUT[expected.format][0] - 1)) - 1
    ulp = Fraction(2) ** (max(field, 1) - bias - fraction)
    allowed = Fraction(expected.ulps) * ulp + Fraction(expected.absolute)
    return abs(number.value - exact) <= allowed


def parts(got: int, count: int, size: int) -> list[int]:
    """A register's bits in equal parts, the lowest first."""
    return [got >> size * i & ((1 << size) - 1) for i in range(count)]


def mismatch(got: Sequence[int], expected: Sequence[Expected], size: int, format_: str) -> bool:
    """Whether a lane's results differ: as many registers as expectations, or one register in parts."""
    if len(got) == 1 and len(expected) > 1:
        got = parts(got[0], len(expected), size)
    return len(got) != len(expected) or not all(map(agrees, got, expected, [format_] * len(got)))
