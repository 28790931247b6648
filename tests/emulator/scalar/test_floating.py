"""Floating-point arithmetic against exact rational numbers, in every rounding mode and width."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

MODES = ("rn", "rz", "rm", "rp")
COUNT = {"f32": 200, "f64": 60}
REGISTER = {"f32": "%r", "f64": "%d", "f16": "%h", "bf16": "%h"}
BINARY: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
}


def _text(opcode: str, type_: str, count: int) -> str:
    return f"{opcode}.{type_} " + ", ".join(f"{REGISTER[type_]}{i + 1}" for i in range(count + 1)) + ";"


def _compare(mine: list[int], exact: list[Fraction | None], type_: str, mode: str, reference: Any) -> None:
    for got, value in zip(mine, exact, strict=True):
        if value is not None and value != 0:
            assert hex(got) == hex(reference.rounded(value, type_, mode))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type_", ["f32", "f64"])
@pytest.mark.parametrize("name", BINARY)
def test_a_binary_operation_rounds_the_exact_result(
    name: str, type_: str, mode: str, execute: Callable[..., Any], reference: Any
) -> None:
    a, b = reference.numbers(type_, COUNT[type_], 1), reference.numbers(type_, COUNT[type_], 2)
    exact = [
        None
        if name == "div" and not reference.value(y, type_)
        else BINARY[name](reference.value(x, type_), reference.value(y, type_))
        for x, y in zip(a, b, strict=True)
    ]
    _compare(execute(_text(f"{name}.{mode}", type_, 2), a, b), exact, type_, mode, reference)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_fma_rounds_once(type_: str, mode: str, execute: Callable[..., Any], reference: Any) -> None:
    a, b, c = (reference.numbers(type_, COUNT[type_], seed) for seed in (3, 4, 5))
    exact: list[Fraction | None] = [
        reference.value(x, type_) * reference.value(y, type_) + reference.value(z, type_)
        for x, y, z in zip(a, b, c, strict=True)
    ]
    _compare(execute(_text(f"fma.{mode}", type_, 3), a, b, c), exact, type_, mode, reference)


def test_fma_on_a_midpoint_follows_the_part_that_float64_loses(execute: Callable[..., Any]) -> None:
    """97 * 172961 * 2^-24 is 1 + 2^-24, halfway between two float32; adding 2^-80 is beyond float64."""
    a, b = (struct.unpack("<I", struct.pack("<f", each))[0] for each in (97.0, 172961.0 * 2.0**-24))
    tiny = 0x17800000
    made = execute("fma.rn.f32 %r1, %r2, %r3, %r4;", [a] * 3, [b] * 3, [tiny, 0, tiny | 1 << 31])
    assert made == [0x3F800001, 0x3F800000, 0x3F800000]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_square_roots_and_reciprocals_are_correctly_rounded(
    type_: str, mode: str, execute: Callable[..., Any], reference: Any
) -> None:
    sign = 1 << (31 if type_ == "f32" else 63)
    bits = [each & (sign - 1) for each in reference.numbers(type_, COUNT[type_], 6) if each & (sign - 1)]
    inverse: list[Fraction | None] = [1 / reference.value(each, type_) for each in bits]
    _compare(execute(_text(f"rcp.{mode}", type_, 1), bits), inverse, type_, mode, reference)
    for got, each in zip(execute(_text(f"sqrt.{mode}", type_, 1), bits), bits, strict=True):
        exact, root = reference.value(each, type_), reference.value(got, type_)
        before, after = reference.value(got - 1, type_), reference.value(got + 1, type_)
        if mode == "rn":
            assert ((before + root) / 2) ** 2 <= exact <= ((root + after) / 2) ** 2
        elif mode == "rp":
            assert before**2 < exact <= root**2
        else:
            assert root**2 <= exact < after**2


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("type_", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "sub", "mul", "fma"])
def test_half_precision_rounds_once(
    name: str,
    type_: str,
    packed: bool,
    execute: Callable[..., Any],
    reference: Any,
) -> None:
    columns = [reference.numbers(type_, 400, seed) for seed in (7, 8, 9)[: 3 if name == "fma" else 2]]
    exact: list[Fraction | None] = []
    for row in zip(*columns, strict=True):
        values = [reference.value(each, type_) for each in row]
        exact.append(values[0] * values[1] + values[2] if name == "fma" else BINARY[name](values[0], values[1]))
    opcode = "fma.rn" if name == "fma" else name
    if not packed:
        _compare(execute(_text(opcode, type_, len(columns)), *columns), exact, type_, "rn", reference)
        return
    words = [[each | each << 16 for each in column] for column in columns]
    text = f"{opcode}.{type_}x2 " + ", ".join(f"%r{i + 1}" for i in range(len(columns) + 1)) + ";"
    made = execute(text, *words)
    assert all(each >> 16 == each & 0xFFFF for each in made)
    _compare([each & 0xFFFF for each in made], exact, type_, "rn", reference)


def _signed_zero_sum(x: int, y: int, mode: str) -> int:
    """Sign of an exact zero sum (IEEE 754, section 6.3)."""
    same = x >> 31 == y >> 31
    return x >> 31 if same else int(mode == "rm")


@pytest.mark.parametrize("mode", MODES)
def test_an_exact_zero_sum_has_the_sign_of_the_rounding_mode(mode: str, execute: Callable[..., Any]) -> None:
    pairs = [(0, 0), (0, 1 << 31), (1 << 31, 0), (1 << 31, 1 << 31), (0x3F800000, 0xBF800000), (0x80000001, 1)]
    a, b = (list(column) for column in zip(*pairs, strict=True))
    made = execute(f"add.{mode}.f32 %r1, %r2, %r3;", a, b)
    assert made == [_signed_zero_sum(x, y, mode) << 31 for x, y in pairs]
    fused = execute(f"fma.{mode}.f32 %r1, %r2, %r3, %r4;", a, [0x3F800000] * len(a), b)
    assert fused == made


def test_ftz_flushes_operands_and_results(execute: Callable[..., Any]) -> None:
    tiny, smallest, half = 0x80400000, 0x00800000, 0x3F000000
    assert execute("add.ftz.f32 %r1, %r2, %r3;", [tiny], [0x80000000]) == [0x80000000]
    assert execute("mul.ftz.f32 %r1, %r2, %r3;", [smallest], [half]) == [0]
    assert execute("mul.f32 %r1, %r2, %r3;", [smallest], [half]) == [0x00400000]
    assert execute("fma.rn.ftz.f32 %r1, %r2, %r3, %r4;", [smallest], [half], [0x00400000]) == [0]


def test_sat_clamps_to_the_unit_interval(execute: Callable[..., Any]) -> None:
    two, minus, nan, third = 0x40000000, 0xBF800000, 0x7FC00000, 0x3EAAAAAB
    made = execute("mul.sat.f32 %r1, %r2, %r3;", [two, minus, nan, third], [0x3F800000] * 4)
    assert made == [0x3F800000, 0, 0, third]


def test_f32x2_is_two_float32_operations(execute: Callable[..., Any], reference: Any) -> None:
    a, b, c = (reference.numbers("f32", 100, seed) for seed in (11, 12, 13))
    single = execute("fma.rz.f32 %r1, %r2, %r3, %r4;", a, b, c)
    packed = execute(
        "fma.rz.f32x2 %d1, %d2, %d3, %d4;", *([each << 32 | each for each in column] for column in (a, b, c))
    )
    assert packed == [each << 32 | each for each in single]


def test_infinities_and_nans_follow_ieee_in_float64(execute: Callable[..., Any]) -> None:
    inf, one, zero = 0x7FF0000000000000, 0x3FF0000000000000, 0
    for mode in MODES:
        made = execute(
            f"fma.{mode}.f64 %d1, %d2, %d3, %d4;", [inf, one, inf, zero], [one, one, zero, inf], [one, inf, one, one]
        )
        assert made[:2] == [inf, inf]
        assert all(each & (inf - 1) and each & inf == inf for each in made[2:])
        quotient = execute(f"div.{mode}.f64 %d1, %d2, %d3;", [one, one | 1 << 63, one], [zero, zero, inf])
        assert quotient == [inf, inf | 1 << 63, zero]


def test_testp_tells_kinds_of_numbers_apart(execute: Callable[..., Any]) -> None:
    bits = [0, 1, 0x00800000, 0x7F800000, 0xFF800000, 0x7F800001]
    expected = {
        "finite": [True, True, True, False, False, False],
        "infinite": [False, False, False, True, True, False],
        "number": [True] * 5 + [False],
        "notanumber": [False] * 5 + [True],
        "normal": [True, False, True, False, False, False],  # an H200 takes zero for normal
        "subnormal": [False, True, False, False, False, False],
    }
    for name, answers in expected.items():
        assert execute(f"testp.{name}.f32 %p1, %r1;", bits) == answers


@pytest.mark.parametrize("function", ["ex2", "lg2", "rcp", "rsqrt", "sqrt", "tanh"])
def test_approximations_stay_near_the_function(function: str, execute: Callable[..., Any], reference: Any) -> None:
    bits = list(range(0x3C000000, 0x41800000, 0x7FF31))
    made = execute(f"{function}.approx.f32 %r1, %r2;", bits)
    functions: dict[str, Callable[[float], float]] = {
        "ex2": lambda x: 2.0**x,
        "lg2": math.log2,
        "rcp": lambda x: 1 / x,
        "rsqrt": lambda x: 1 / math.sqrt(x),
        "sqrt": math.sqrt,
        "tanh": math.tanh,
    }
    for got, each in zip(made, bits, strict=True):
        exact = functions[function](float(reference.value(each, "f32")))
        assert float(reference.value(got, "f32")) == pytest.approx(exact, rel=2.0**-23, abs=2.0**-24)
