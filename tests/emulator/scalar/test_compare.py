"""set, setp, selp, slct, and floating-point min and max against Python's comparisons."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from typing import Any

import pytest

Execute = Callable[..., Any]
ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}
UNSIGNED = {"lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge}
FLOATS = (0, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 1, 0x80000001)
PAIRS = [(a, b) for a in FLOATS for b in FLOATS]


def _f32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _float_answer(name: str, a: float, b: float) -> bool:
    unordered = math.isnan(a) or math.isnan(b)
    if name in ("num", "nan"):
        return unordered == (name == "nan")
    return name.endswith("u") if unordered else ORDER[name[:2]](a, b)


@pytest.mark.parametrize("name", [*ORDER, *(f"{each}u" for each in ORDER), "num", "nan"])
def test_float_comparisons_know_the_unordered(name: str, execute: Execute) -> None:
    a, b = (list(column) for column in zip(*PAIRS, strict=True))
    expected = [_float_answer(name, _f32(x), _f32(y)) for x, y in PAIRS]
    assert execute(f"setp.{name}.f32 %p1, %r1, %r2;", a, b) == expected
    both = execute(f"setp.{name}.f32 %p1|%p2, %r1, %r2;", a, b)
    assert both == [expected, [not each for each in expected]]
    halves = ([each >> 16 for each in column] for column in (a, b))
    exact = [_float_answer(name, _f32(x & 0xFFFF0000), _f32(y & 0xFFFF0000)) for x, y in PAIRS]
    assert execute(f"setp.{name}.bf16 %p1, %h1, %h2;", *halves) == exact


@pytest.mark.parametrize("name", [*ORDER, *UNSIGNED])
def test_integer_comparisons_know_signs(name: str, execute: Execute) -> None:
    values = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
    pairs = [(a, b) for a in values for b in values]
    a, b = (list(column) for column in zip(*pairs, strict=True))
    compare = {**ORDER, **UNSIGNED}[name]
    assert execute(f"setp.{name}.u32 %p1, %r1, %r2;", a, b) == [compare(x, y) for x, y in pairs]
    if name in ORDER:
        signed = [(x - 2**32 if x >> 31 else x, y - 2**32 if y >> 31 else y) for x, y in pairs]
        assert execute(f"setp.{name}.s32 %p1, %r1, %r2;", a, b) == [compare(x, y) for x, y in signed]


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_a_third_predicate_joins_both_answers(name: str, execute: Execute) -> None:
    join: Callable[[bool, bool], bool] = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}[name]
    third = [False, True, False, True]
    p, q = execute(f"setp.lt.{name}.u32 %p1|%p2, %r1, %r2, %p3;", [1, 1, 2, 2], [2, 2, 1, 1], third)
    assert p == [join(less, each) for less, each in zip([True, True, False, False], third, strict=True)]
    assert q == [join(not less, each) for less, each in zip([True, True, False, False], third, strict=True)]


def test_packed_comparisons_answer_for_each_half(execute: Execute) -> None:
    assert execute("setp.gt.f16x2 %p1|%p2, %r1, %r2;", [0x3C004000], [0x40003C00]) == [[True], [False]]
    assert execute("set.gt.f16x2.f16x2 %r3, %r1, %r2;", [0x3C004000], [0x40003C00]) == [0x00003C00]
    assert execute("set.gt.u32.f16x2 %r3, %r1, %r2;", [0x3C004000], [0x40003C00]) == [0x0000FFFF]
    assert execute("set.gt.bf16x2.bf16x2 %r3, %r1, %r2;", [0x40004000], [0x3F803F80]) == [0x3F803F80]


def test_set_writes_ones_of_the_result_type(execute: Execute) -> None:
    assert execute("set.lt.u32.s32 %r3, %r1, %r2;", [0xFFFFFFFF, 1], [0, 0]) == [0xFFFFFFFF, 0]
    assert execute("set.lt.f32.u32 %r3, %r1, %r2;", [1, 3], [2, 2]) == [0x3F800000, 0]
    assert execute("set.lt.and.s32.f32 %r3, %r1, %r2, %p1;", [0, 0], [0x3F800000] * 2, [True, False]) == [0xFFFFFFFF, 0]


def test_ftz_makes_subnormal_numbers_equal_zero(execute: Execute) -> None:
    assert execute("setp.eq.f32 %p1, %r1, %r2;", [1], [0]) == [False]
    assert execute("setp.eq.ftz.f32 %p1, %r1, %r2;", [1], [0x80000001]) == [True]


def test_selections(execute: Execute) -> None:
    assert execute("selp.b64 %d1, %d2, %d3, %p1;", [1, 1], [2, 2], [True, False]) == [1, 2]
    assert execute("slct.b32.s32 %r1, %r2, %r3, %r4;", [1, 1], [2, 2], [0, 0xFFFFFFFF]) == [1, 2]
    minus_zero, nan, minus = 0x80000000, 0x7FC00000, 0x80000001
    assert execute("slct.u64.f32 %d1, %d2, %d3, %r4;", [1] * 3, [2] * 3, [minus_zero, nan, minus]) == [1, 2, 2]
    assert execute("slct.ftz.f32.f32 %r1, %r2, %r3, %r4;", [1], [2], [minus]) == [1]


def _extremum(smaller: bool, a: int, b: int) -> int:
    """min or max by the ISA's rules, on float32 bits."""
    x, y = _f32(a), _f32(b)
    if math.isnan(x) or math.isnan(y):
        return 0x7FFFFFFF if math.isnan(x) and math.isnan(y) else a if math.isnan(y) else b
    first, second = (x, math.copysign(1, x)), (y, math.copysign(1, y))
    return a if (first <= second) == smaller else b


@pytest.mark.parametrize("name", ["min", "max"])
def test_extremes_of_floats(name: str, execute: Execute) -> None:
    a, b = (list(column) for column in zip(*PAIRS, strict=True))
    expected = [_extremum(name == "min", x, y) for x, y in PAIRS]
    assert execute(f"{name}.f32 %r1, %r2, %r3;", a, b) == expected
    strict = [
        0x7FFFFFFF if any(math.isnan(_f32(each)) for each in pair) else best
        for pair, best in zip(PAIRS, expected, strict=True)
    ]
    assert execute(f"{name}.NaN.f32 %r1, %r2, %r3;", a, b) == strict
    three = execute(f"{name}.f32 %r1, %r2, %r3, %r4;", a, b, [0x3F000000] * len(a))
    assert three == [_extremum(name == "min", each, 0x3F000000) for each in expected]


def test_xorsign_takes_magnitudes_and_both_signs(execute: Execute) -> None:
    a, b = [0xC0000000, 0x40000000, 0xC0000000], [0x3F800000, 0x3F800000, 0xBF800000]
    assert execute("min.xorsign.abs.f32 %r1, %r2, %r3;", a, b) == [0xBF800000, 0x3F800000, 0x3F800000]
    assert execute("max.NaN.xorsign.abs.f32 %r1, %r2, %r3;", a, b) == [0xC0000000, 0x40000000, 0x40000000]
