"""Reductions against Python's own arithmetic, at the edges that the PTX ISA names."""

from __future__ import annotations

import math
import struct

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.emulator.async_.bulk import bulk_copy, bulk_size
from ptxbench.emulator.async_.reduce import combine
from ptxbench.emulator.errors import Fault

WORDS = st.integers(0, 0xFFFF_FFFF)
LONGS = st.integers(0, (1 << 64) - 1)
HALVES = st.integers(0, 0xFFFF)


def run(operation: str, kind: str, old: int, new: int) -> int:
    size = {"16": 2, "32": 4, "64": 8}[kind[-2:]]
    a, b = (np.frombuffer(value.to_bytes(size, "little"), dtype=np.uint8) for value in (old, new))
    return int.from_bytes(combine(operation, kind, a, b).tobytes(), "little")


def signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


@given(WORDS, WORDS)
def test_words_are_reduced_as_integers(a: int, b: int) -> None:
    assert run("add", "u32", a, b) == run("add", "s32", a, b) == (a + b) % 2**32
    assert run("min", "u32", a, b) == min(a, b)
    assert run("max", "s32", a, b) == max(a, b, key=lambda value: signed(value, 32))
    assert run("inc", "u32", a, b) == (0 if a >= b else a + 1)
    assert run("dec", "u32", a, b) == (b if a == 0 or a > b else a - 1)
    assert (run("and", "b32", a, b), run("or", "b32", a, b), run("xor", "b32", a, b)) == (a & b, a | b, a ^ b)


@given(LONGS, LONGS)
def test_double_words_are_reduced_as_integers(a: int, b: int) -> None:
    assert run("add", "u64", a, b) == (a + b) % 2**64
    assert run("max", "u64", a, b) == max(a, b)
    assert run("min", "s64", a, b) == min(a, b, key=lambda value: signed(value, 64))
    assert (run("and", "b64", a, b), run("or", "b64", a, b), run("xor", "b64", a, b)) == (a & b, a | b, a ^ b)


def half(bits: int, kind: str) -> float:
    if kind == "f16":
        return float(struct.unpack("<e", struct.pack("<H", bits))[0])
    return float(struct.unpack("<f", struct.pack("<I", bits << 16))[0])


def halves(kind: str) -> list[tuple[float, int]]:
    return [(half(bits, kind), bits) for bits in range(1 << 16) if math.isfinite(half(bits, kind))]


@pytest.mark.parametrize(("kind", "dtype"), [("f16", np.float16), ("bf16", ml_dtypes.bfloat16)])
@given(a=HALVES, b=HALVES)
def test_halves_add_with_one_rounding_and_keep_subnormals(kind: str, dtype: type, a: int, b: int) -> None:
    exact = half(a, kind) + half(b, kind)  # fits f64 exactly for f16; for bf16 up to the far end of one operand
    result = run("add", kind, a, b)
    if math.isnan(exact):
        assert result == 0x7FFF
    else:
        with np.errstate(all="ignore"):
            assert half(result, kind) == float(np.float64(exact).astype(dtype))


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@given(a=HALVES, b=HALVES)
def test_the_least_and_the_greatest_half_prefer_numbers_and_order_zeros(kind: str, a: int, b: int) -> None:
    numbers = [bits for bits in (a, b) if not math.isnan(half(bits, kind))]
    order = sorted(numbers, key=lambda bits: (half(bits, kind), -(bits >> 15)))
    assert run("min", kind, a, b) == (order[0] if order else 0x7FFF)
    assert run("max", kind, a, b) == (order[-1] if order else 0x7FFF)


@pytest.mark.parametrize(
    ("a", "b", "total"),
    [
        (0x3F800000, 0x40000000, 0x40400000),
        (0x00000001, 0x00000001, 0x00000002),
        (0x80000001, 0x80000001, 0x80000002),
        (0x00800000, 0x80800001, 0x80000001),
        (0x00400000, 0x3F800000, 0x3F800000),
        (0x7F800000, 0xFF800000, 0x7FFFFFFF),
        (0xFFC00001, 0x3F800000, 0x7FFFFFFF),
        (0x7F7FFFFF, 0x7F7FFFFF, 0x7F800000),
        (0x00000000, 0x80000000, 0x00000000),
    ],
)
def test_words_add_as_floats_and_keep_subnormals(a: int, b: int, total: int) -> None:
    assert run("add", "f32", a, b) == total


def test_double_floats_add_and_let_a_nan_through() -> None:
    assert run("add", "f64", 1, 1) == 2
    assert run("add", "f64", 0x7FF0000000000000, 0xFFF0000000000000) == 0xFFF8000000000000
    assert run("add", "f64", 0x7FF8000000000000, 0x7FF0000000000001) == 0x7FF0000000000001
    assert run("add", "f64", 0xFFF8000000000001, 0x3FF0000000000000) == 0xFFF8000000000001


@pytest.mark.parametrize(
    ("operation", "kind"),
    [("add", "s64"), ("min", "f32"), ("max", "f64"), ("inc", "s32"), ("dec", "u64"), ("and", "u32"), ("xor", "b16")],
)
def test_a_pair_that_does_not_exist_is_an_illegal_instruction(operation: str, kind: str) -> None:
    with pytest.raises(Fault) as caught:
        combine(operation, kind, np.zeros(16, dtype=np.uint8), np.zeros(16, dtype=np.uint8))
    assert caught.value.error == "cudaErrorIllegalInstruction"


@pytest.mark.parametrize(("size", "moved"), [(0, 0), (16, 16), (24, 16), (48, 48), (15, 0)])
def test_a_bulk_size_loses_its_low_bits(size: int, moved: int) -> None:
    assert bulk_size(size, 16, 0x7000_0000_0030) == moved


@pytest.mark.parametrize("address", [8, 4, 0x7000_0000_0001])
def test_a_bulk_address_off_16_bytes_is_misaligned(address: int) -> None:
    with pytest.raises(Fault) as caught:
        bulk_size(16, 16, address)
    assert caught.value.error == "cudaErrorMisalignedAddress"


def test_a_byte_mask_copies_only_its_bytes_of_every_16() -> None:
    source, destination = np.arange(48, dtype=np.uint8), np.full(48, 255, dtype=np.uint8)
    bulk_copy(destination, source, 0x8005)
    for index in range(48):
        assert destination[index] == (index if index % 16 in (0, 2, 15) else 255)
    bulk_copy(destination, source)
    assert destination.tolist() == source.tolist()
