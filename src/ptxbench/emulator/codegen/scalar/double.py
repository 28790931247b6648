"""float64 arithmetic where NumPy has none: directed rounding and fused multiply-add, one lane at a time in integers."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ptxbench.emulator.codegen.scalar.rounding import F64

_SMALLEST = -1074
_LARGEST = math.ldexp(1.0 - 2.0**-53, 1024)


def rounded(value: Fraction, mode: str, zero: float = 0.0) -> float:
    """A rational number as float64.

    Args:
        value: Exact.
        mode: `rn`, `rz`, `rm` or `rp`.
        zero: What an exact zero becomes: its sign.
    """
    if not value:
        return zero
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if magnitude < Fraction(2) ** exponent:
        exponent -= 1
    quantum = max(exponent - 52, _SMALLEST)
    scaled = magnitude / Fraction(2) ** quantum
    whole = scaled.numerator // scaled.denominator
    rest = scaled - whole
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1 == 1),
        "rz": False,
        "rm": value < 0 and rest > 0,
        "rp": value > 0 and rest > 0,
    }[mode]
    whole += up
    if whole.bit_length() + quantum > 1024:
        outwards = mode in ("rn", "rp" if value > 0 else "rm")
        made = math.inf if outwards else _LARGEST
    else:
        made = math.ldexp(whole, quantum)
    return -made if value < 0 else made


def _lanes(function: Callable[..., float], count: int) -> Callable[..., F64]:
    each = np.frompyfunc(function, count, 1)

    def run(*values: F64) -> F64:
        return np.asarray(each(*values), np.float64)

    return run


def _sum_zero(a: float, b: float, mode: str) -> float:
    """The sign of an exact zero sum."""
    negative = math.copysign(1, a) < 0, math.copysign(1, b) < 0
    if mode == "rm":
        return -0.0 if any(negative) else 0.0
    return -0.0 if all(negative) else 0.0


def first_nan(*values: float) -> float:
    """The first NaN, quiet: which one an H200 hands on when there are several."""
    return next(value for value in values if math.isnan(value)) + 0.0


def fma(mode: str) -> Callable[..., F64]:
    """a * b + c with one rounding."""

    def one(a: float, b: float, c: float) -> float:
        if math.isnan(a) or math.isnan(b) or math.isnan(c):
            return first_nan(b, c, a)
        if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
            product = np.float64(0) if math.isfinite(a) and math.isfinite(b) else np.float64(a) * np.float64(b)
            return float(product + np.float64(c))
        exact = Fraction(a) * Fraction(b)
        return rounded(exact + Fraction(c), mode, _sum_zero(math.copysign(0.0, math.copysign(1, a) * b), c, mode))

    return _lanes(one, 3)


def _finite(
    native: Callable[[Any, Any], Any], exact: Callable[[Fraction, Fraction], Fraction], mode: str
) -> Callable[..., F64]:
    def one(a: float, b: float) -> float:
        plain = float(native(np.float64(a), np.float64(b)))
        if math.isfinite(a) and math.isfinite(b) and not (b == 0 and native is np.divide):
            return rounded(exact(Fraction(a), Fraction(b)), mode, plain)
        return plain

    return _lanes(one, 2)


def multiply(mode: str) -> Callable[..., F64]:
    """a * b."""
    return _second_nan(np.multiply if mode == "rn" else _finite(np.multiply, lambda a, b: a * b, mode))


def divide(mode: str) -> Callable[..., F64]:
    """a / b."""
    return np.divide if mode == "rn" else _finite(np.divide, lambda a, b: a / b, mode)


def add(mode: str) -> Callable[..., F64]:
    """a + b."""
    if mode == "rn":
        return _second_nan(np.add)

    def one(a: float, b: float) -> float:
        if math.isfinite(a) and math.isfinite(b):
            return rounded(Fraction(a) + Fraction(b), mode, _sum_zero(a, b, mode))
        return float(np.float64(a) + np.float64(b))

    return _second_nan(_lanes(one, 2))


def _second_nan(function: Callable[..., F64]) -> Callable[..., F64]:
    """The function, but of two NaNs the second is handed on, as by an H200."""

    def run(a: F64, b: F64) -> F64:
        made = np.asarray(function(a, b))
        return np.where(np.isnan(b), b + 0.0, made) if np.isnan(b).any() else made

    return run


def square_root(mode: str) -> Callable[..., F64]:
    """The square root of a."""
    if mode == "rn":
        return np.sqrt

    def one(a: float) -> float:
        nearest = float(np.sqrt(np.float64(a)))
        if not math.isfinite(nearest) or nearest == 0:
            return nearest
        error = Fraction(a) - Fraction(nearest) ** 2
        if error > 0 and mode == "rp":
            return math.nextafter(nearest, math.inf)
        if error < 0 and mode in ("rz", "rm"):
            return math.nextafter(nearest, 0.0)
        return nearest

    return _lanes(one, 1)
