"""cvt against exact rational numbers, Python's integers and ml_dtypes; what an H200 answered is in `test_hardware`."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest

Execute = Callable[..., Any]
MODES = ("rn", "rz", "rm", "rp")
REGISTER = {"f16": "%h", "bf16": "%h", "f32": "%r", "f64": "%d", "16": "%h", "8": "%h", "32": "%r", "64": "%d"}
INTEGERS = ("u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64")
EDGES = (
    0,
    1,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0x8000,
    0xFFFF,
    2**24 + 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**53 + 1,
    2**63 - 1,
    2**63,
)


def _limits(type_: str) -> tuple[int, int]:
    size = int(type_[1:])
    return (0, 2**size - 1) if type_[0] == "u" else (-(2 ** (size - 1)), 2 ** (size - 1) - 1)


def _read(bits: int, type_: str) -> int:
    size = int(type_[1:])
    value = bits & (2**size - 1)
    return value - 2**size if type_[0] == "s" and value >> (size - 1) else value


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("to", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("of", INTEGERS)
def test_integers_become_the_nearest_numbers_of_a_direction(
    of: str, to: str, mode: str, execute: Execute, reference: Any
) -> None:
    rng = np.random.default_rng(3)
    size = int(of[1:])
    bits = [each & (2**size - 1) for each in (*EDGES, *rng.integers(0, 2**64, 40, dtype=np.uint64).tolist())]
    made = execute(f"cvt.{mode}.{to}.{of} {REGISTER[to]}1, {REGISTER[of[1:]]}2;", bits)
    for got, each in zip(made, bits, strict=True):
        value = _read(each, of)
        assert hex(got) == hex(reference.rounded(Fraction(value), to, mode) if value else 0)


@pytest.mark.parametrize("to", INTEGERS)
@pytest.mark.parametrize("of", INTEGERS)
def test_integers_are_cut_or_clamped(of: str, to: str, execute: Execute) -> None:
    size = int(of[1:])
    bits = [each & (2**size - 1) for each in (*EDGES, *(2**64 - each for each in EDGES))]
    low, high = _limits(to)
    registers = f"{REGISTER[to[1:]]}1, {REGISTER[of[1:]]}2"
    width = max(int(to[1:]), 16)
    plain = [_read(_read(each, of) & (2 ** int(to[1:]) - 1), to) % 2**width for each in bits]
    assert execute(f"cvt.{to}.{of} {registers};", bits) == plain
    clamped = [min(max(_read(each, of), low), high) % 2**width for each in bits]
    assert execute(f"cvt.sat.{to}.{of} {registers};", bits) == clamped


def test_a_wider_register_is_read_in_part_and_extended(execute: Execute) -> None:
    assert execute("cvt.s8.s32 %r1, %r2;", [0x1234_5680]) == [0xFFFFFF80]
    assert execute("cvt.u8.u32 %r1, %r2;", [0x1234_5680]) == [0x80]
    assert execute("cvt.s64.s8 %d1, %r2;", [0x1234_5680]) == [0xFFFFFFFFFFFFFF80]
    assert execute("cvt.rzi.s8.f32 %r1, %r2;", [0xC3000000]) == [0xFFFFFF80]


@pytest.mark.parametrize("mode", ["rni", "rzi", "rmi", "rpi"])
@pytest.mark.parametrize("of", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("to", INTEGERS)
def test_numbers_become_integers_within_the_range(
    to: str, of: str, mode: str, execute: Execute, reference: Any
) -> None:
    bits = reference.numbers(of, 120, 5)
    rounds: Any = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}[mode]
    low, high = _limits(to)
    made = execute(f"cvt.{mode}.{to}.{of} {REGISTER[to[1:]]}1, {REGISTER[of]}2;", bits)
    for got, each in zip(made, bits, strict=True):
        assert got == min(max(rounds(reference.value(each, of)), low), high) % 2 ** max(int(to[1:]), 16)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("to", "of"), [("f32", "f64"), ("f16", "f64"), ("bf16", "f64"), ("bf16", "f16"), ("f16", "bf16")]
)
def test_narrower_formats_round_once(to: str, of: str, mode: str, execute: Execute, reference: Any) -> None:
    bits = reference.numbers(of, 100, 6)
    made = execute(f"cvt.{mode}.{to}.{of} {REGISTER[to]}1, {REGISTER[of]}2;", bits)
    for got, each in zip(made, bits, strict=True):
        value = reference.value(each, of)
        assert value == 0 or hex(got) == hex(reference.rounded(value, to, mode))


def test_wider_formats_are_exact(execute: Execute, reference: Any) -> None:
    for to, of in (("f32", "f16"), ("f32", "bf16"), ("f64", "f32"), ("f64", "f16"), ("f64", "bf16")):
        bits = reference.numbers(of, 200, 7)
        made = execute(f"cvt.{to}.{of} {REGISTER[to]}1, {REGISTER[of]}2;", bits)
        assert all(reference.value(got, to) == reference.value(each, of) for got, each in zip(made, bits, strict=True))


SMALL = {
    "e4m3x2": (ml_dtypes.float8_e4m3fn, 8),
    "e5m2x2": (ml_dtypes.float8_e5m2, 8),
    "e2m3x2": (ml_dtypes.float6_e2m3fn, 8),
    "e3m2x2": (ml_dtypes.float6_e3m2fn, 8),
    "e2m1x2": (ml_dtypes.float4_e2m1fn, 4),
}


@pytest.mark.parametrize("to", SMALL)
def test_small_formats_agree_with_ml_dtypes_within_their_range(to: str, execute: Execute) -> None:
    type_, size = SMALL[to]
    rng = np.random.default_rng(8)
    largest = float(ml_dtypes.finfo(type_).max)
    values = np.concatenate([rng.normal(size=2000) * largest / 4, rng.normal(size=2000) * largest / 4096])
    values = np.clip(values, -largest, largest).astype(np.float32)
    codes = values.astype(type_).view(np.uint8).astype(int)
    bits = values.view(np.uint32).tolist()
    zeros = [0] * len(bits)
    made = execute(f"cvt.rn.satfinite.{to}.f32 %h1, %r2, %r3;", bits, zeros)
    assert made == (codes << size).tolist()
    assert execute(f"cvt.rn.satfinite.{to}.f32 %h1, %r2, %r3;", zeros, bits) == codes.tolist()
    back = execute(f"cvt.rn.f16x2.{to} %r1, %h2;", made)
    assert [each >> 16 for each in back] == codes.astype(np.uint8).view(type_).astype(np.float16).view(
        np.uint16
    ).tolist()


def test_small_formats_without_nan_take_their_largest_number(execute: Execute) -> None:
    nan, infinity, minus = 0x7FC00000, 0x7F800000, 0xFF800000
    for to, largest, sign, size in (("e2m3x2", 0x1F, 0x20, 8), ("e3m2x2", 0x1F, 0x20, 8), ("e2m1x2", 7, 8, 4)):
        made = execute(f"cvt.rn.satfinite.{to}.f32 %h1, %r2, %r3;", [nan, infinity], [infinity, minus])
        assert made == [largest << size | largest, largest << size | largest | sign]


def test_a_scale_is_a_power_of_two(execute: Execute) -> None:
    def powers(mode: str, bits: list[int]) -> list[int]:
        codes: list[int] = execute(f"cvt.{mode}.satfinite.ue8m0x2.f32 %h1, %r2, %r3;", [0] * len(bits), bits)
        return codes

    bits = [0x3F800000, 0x3F800001, 0x3FFFFFFF, 0x00400000, 0x00000001, 0x7F7FFFFF, 0x7F800001]
    assert powers("rz", bits) == [127, 127, 127, 0, 0, 254, 255]
    assert powers("rp", bits) == [127, 128, 128, 0, 0, 254, 255]
    assert execute("cvt.rn.bf16x2.ue8m0x2 %r1, %h2;", [0x7F80, 0xFF00]) == [0x3F804000, 0x7FFF0040]


def test_integral_rounding_keeps_the_type(execute: Execute) -> None:
    bits = [0x3FC00000, 0x40200000, 0xBF000000, 0x7F800000]  # 1.5, 2.5, -0.5, infinity
    assert execute("cvt.rni.f32.f32 %r1, %r2;", bits) == [0x40000000, 0x40000000, 0x80000000, 0x7F800000]
    assert execute("cvt.rpi.f32.f32 %r1, %r2;", bits) == [0x40000000, 0x40400000, 0x80000000, 0x7F800000]
    assert execute("cvt.rmi.f32.f32 %r1, %r2;", bits) == [0x3F800000, 0x40000000, 0xBF800000, 0x7F800000]


def test_sat_clamps_numbers_and_ftz_flushes_them(execute: Execute) -> None:
    assert execute("cvt.sat.f32.f16 %r1, %h2;", [0x4000, 0xBC00, 0x7E00, 0x3800]) == [0x3F800000, 0, 0, 0x3F000000]
    assert execute("cvt.ftz.f64.f32 %d1, %r2;", [0x80000001]) == [1 << 63]
    assert execute("cvt.rn.ftz.f32.f64 %r1, %d2;", [0x3800000000000000]) == [0]


def test_satfinite_has_no_infinities(execute: Execute) -> None:
    bits = [0x7F800000, 0xFF7FFFFF, 0x7FC00000]
    assert execute("cvt.rn.satfinite.bf16.f32 %h1, %r2;", bits) == [0x7F7F, 0xFF7F, 0x7FFF]
    assert execute("cvt.rn.satfinite.f16.f32 %h1, %r2;", bits) == [0x7BFF, 0xFBFF, 0x7FFF]
    assert execute("cvt.rna.satfinite.tf32.f32 %r1, %r2;", bits[:2]) == [0x7F7FE000, 0xFF7FE000]


def test_pack_clamps_two_integers_and_pushes_the_third(execute: Execute) -> None:
    big, small = 70000, -70000 % 2**32
    assert execute("cvt.pack.sat.u16.s32 %r1, %r2, %r3;", [big], [small]) == [0xFFFF0000]
    assert execute("cvt.pack.sat.s16.s32 %r1, %r2, %r3;", [big], [small]) == [0x7FFF8000]
    assert execute("cvt.pack.sat.u8.s32.b32 %r1, %r2, %r3, %r4;", [300], [5], [0xABCD1234]) == [0x1234FF05]
    assert execute("cvt.pack.sat.s4.s32.b32 %r1, %r2, %r3, %r4;", [small], [3], [0xABCD1234]) == [0xCD123483]
