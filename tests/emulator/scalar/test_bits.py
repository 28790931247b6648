"""Logic, shifts, bit fields, counts and byte permutations, each against its definition on single bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

word = st.one_of(st.integers(0, 2**32 - 1), st.sampled_from((0, 1, 31, 32, 33, 255, 256, 0x80000000, 0xFFFFFFFF)))
few = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
Execute = Callable[..., Any]


def _bit(value: int, index: int) -> int:
    return value >> index & 1


@pytest.mark.parametrize("table", range(256))
def test_lop3_is_its_table(table: int, execute: Execute) -> None:
    a, b, c = 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA
    expected = sum(_bit(table, 4 * _bit(a, i) + 2 * _bit(b, i) + _bit(c, i)) << i for i in range(32))
    assert execute(f"lop3.b32 %r1, %r2, %r3, %r4, {table};", [a], [b], [c], [table]) == [expected]


def test_lop3_joins_a_predicate(execute: Execute) -> None:
    text = "lop3.{}.b32 %r1|%p1, %r2, %r3, %r4, 0x80, %p2;"
    columns = [[1, 1, 0], [1, 1, 1], [1, 1, 1], [0x80] * 3, [True, False, True]]
    assert execute(text.format("and"), *columns) == [[1, 1, 0], [True, False, False]]
    assert execute(text.format("or"), *columns) == [[1, 1, 0], [True, True, True]]


def test_logic_on_predicates_is_boolean(execute: Execute) -> None:
    assert execute("not.pred %p1, %p2;", [True, False]) == [False, True]
    assert execute("xor.pred %p1, %p2, %p3;", [True, True], [True, False]) == [False, True]
    assert execute("cnot.b32 %r1, %r2;", [0, 5]) == [1, 0]


@few
@given(word, word)
def test_shifts_beyond_the_width_leave_zero_or_the_sign(execute: Execute, a: int, amount: int) -> None:
    for size, register in ((16, "%h"), (32, "%r"), (64, "%d")):
        value = (a * 0x100000001) & ((1 << size) - 1)
        signed = value - (1 << size) if value >> (size - 1) else value
        shift = min(amount, size)
        one = f"{register}1, {register}2, %r3;"
        assert execute(f"shl.b{size} {one}", [value], [amount]) == [value << shift & (1 << size) - 1]
        assert execute(f"shr.u{size} {one}", [value], [amount]) == [value >> shift]
        assert execute(f"shr.s{size} {one}", [value], [amount]) == [signed >> shift & (1 << size) - 1]


def test_a_constant_shift_is_the_same(execute: Execute) -> None:
    assert execute("shl.b32 %r1, %r2, 5;", [0x80000001], [5]) == [0x20]
    assert execute("shr.u64 %d1, %d2, 63;", [1 << 63], [63]) == [1]
    assert execute("shr.s32 %r1, %r2, 40;", [1 << 31], [40]) == [0xFFFFFFFF]


@few
@given(word, word, word)
def test_a_funnel_shift_cuts_a_double_word(execute: Execute, a: int, b: int, c: int) -> None:
    both = b << 32 | a
    for mode, n in (("clamp", min(c, 32)), ("wrap", c & 31)):
        left = execute(f"shf.l.{mode}.b32 %r1, %r2, %r3, %r4;", [a], [b], [c])
        right = execute(f"shf.r.{mode}.b32 %r1, %r2, %r3, %r4;", [a], [b], [c])
        assert (left, right) == ([(both << n) >> 32 & 0xFFFFFFFF], [both >> n & 0xFFFFFFFF])


@few
@given(st.integers(0, 2**64 - 1), word, word)
def test_bit_fields_are_taken_and_put_bit_by_bit(execute: Execute, a: int, position: int, length: int) -> None:
    for size, register in ((32, "%r"), (64, "%d")):
        # An H200 takes the low 8 bits of both for a field of 32 bits, and all for one of 64.
        pos, count = (position & 255, length & 255) if size == 32 else (position, length)
        value = a & ((1 << size) - 1)
        for kind in "us":
            sign = _bit(value, min(pos + count - 1, size - 1)) if kind == "s" and count else 0
            bits = [_bit(value, pos + i) if i < count and pos + i < size else sign for i in range(size)]
            text = f"bfe.{kind}{size} {register}1, {register}2, %r3, %r4;"
            assert execute(text, [value], [position], [length]) == [sum(bit << i for i, bit in enumerate(bits))]
        base = 0x5A5AA5A5DEADBEEF & ((1 << size) - 1)
        inside = [pos <= i < pos + count for i in range(size)]
        expected = sum((_bit(value, i - pos) if put else _bit(base, i)) << i for i, put in enumerate(inside))
        text = f"bfi.b{size} {register}1, {register}2, {register}3, %r4, %r5;"
        assert execute(text, [value], [base], [position], [length]) == [expected]


@few
@given(st.integers(0, 2**64 - 1))
def test_counts_and_reversal(execute: Execute, a: int) -> None:
    for size, register in ((32, "%r"), (64, "%d")):
        value = a & ((1 << size) - 1)
        assert execute(f"popc.b{size} %r1, {register}2;", [value]) == [value.bit_count()]
        assert execute(f"clz.b{size} %r1, {register}2;", [value]) == [size - value.bit_length()]
        assert execute(f"brev.b{size} {register}1, {register}2;", [value]) == [int(f"{value:0{size}b}"[::-1], 2)]
        for kind in "us":
            searched = value ^ ((1 << size) - 1) if kind == "s" and value >> (size - 1) else value
            found = searched.bit_length() - 1
            assert execute(f"bfind.{kind}{size} %r1, {register}2;", [value]) == [found & 0xFFFFFFFF]
            shift = size - 1 - found if found >= 0 else 0xFFFFFFFF
            assert execute(f"bfind.shiftamt.{kind}{size} %r1, {register}2;", [value]) == [shift]


@few
@given(word, st.integers(0, 31), st.integers(-33, 33))
def test_fns_finds_the_nth_set_bit(execute: Execute, mask: int, base: int, offset: int) -> None:
    ups = [i for i in range(base, 32) if _bit(mask, i)]
    downs = [i for i in range(base, -1, -1) if _bit(mask, i)]
    if offset == 0:
        expected = base if _bit(mask, base) else 0xFFFFFFFF
    else:
        order = ups if offset > 0 else downs
        expected = order[abs(offset) - 1] if abs(offset) <= len(order) else 0xFFFFFFFF
    assert execute("fns.b32 %r1, %r2, %r3, %r4;", [mask], [base], [offset & 0xFFFFFFFF]) == [expected]


@few
@given(word, word)
def test_masks_and_extensions(execute: Execute, a: int, b: int) -> None:
    for mode in ("clamp", "wrap"):
        start, count = (a, min(b, 32)) if mode == "clamp" else (a & 31, b & 31)
        ones = sum(1 << i for i in range(32) if start <= i < start + count)
        assert execute(f"bmsk.{mode}.b32 %r1, %r2, %r3;", [a], [b]) == [ones]
        kept = a & ((1 << count) - 1)
        negative = 0 < count < 32 and _bit(a, count - 1)
        filled = kept | (0xFFFFFFFF >> count << count if negative else 0)
        assert execute(f"szext.{mode}.u32 %r1, %r2, %r3;", [a], [b]) == [kept]
        assert execute(f"szext.{mode}.s32 %r1, %r2, %r3;", [a], [b]) == [filled]


@few
@given(word, word, st.integers(0, 0xFFFF))
def test_prmt_chooses_bytes_and_signs(execute: Execute, a: int, b: int, selector: int) -> None:
    source = (b << 32 | a).to_bytes(8, "little")

    def byte(nibble: int) -> int:
        chosen = source[nibble & 7]
        return (0xFF if chosen & 0x80 else 0) if nibble & 8 else chosen

    expected = sum(byte(selector >> 4 * i & 15) << 8 * i for i in range(4))
    assert execute("prmt.b32 %r1, %r2, %r3, %r4;", [a], [b], [selector]) == [expected]
    assert execute(f"prmt.b32 %r1, %r2, %r3, {selector};", [a], [b], [selector]) == [expected]
