"""Integer arithmetic, carries, bit fields and logic against Python's integers, bit by bit where the ISA says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.emulator.codegen.scalar.form import dtype, width
from ptxbench.emulator.codegen.scalar.operations import scalar_operation
from ptxbench.emulator.ptx.ir import Instruction, Register

REGISTER = {8: "%h", 16: "%h", 32: "%r", 64: "%d"}
TYPES = ("u16", "s16", "u32", "s32", "u64", "s64")
EDGES = (
    0,
    1,
    2,
    7,
    0x7F,
    0x80,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x7FFFFFFF,
    0x80000000,
    0xFFFFFFFF,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
words = st.one_of(st.sampled_from(EDGES), st.integers(0, 2**64 - 1))
triples = st.lists(st.tuples(words, words, words), min_size=1, max_size=8)
few = settings(max_examples=12, deadline=None)


def _read(value: int, type_: str) -> int:
    size = width(type_)
    value &= (1 << size) - 1
    return value - (1 << size) if type_[0] == "s" and value >> (size - 1) else value


def _text(mnemonic: str, *types: str) -> str:
    return f"{mnemonic} " + ", ".join(f"{REGISTER[width(each)]}{i + 1}" for i, each in enumerate(types)) + ";"


def _clip(value: int) -> int:
    return max(-(2**31), min(2**31 - 1, value))


def _quotient(a: int, b: int) -> int:
    return -1 if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int) -> int:
    return -1 if b == 0 else a - b * _quotient(a, b)


SAME: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "mad.lo": lambda a, b, c: a * b + c,
    "min": min,
    "max": max,
    "div": _quotient,
    "rem": _remainder,
    "sad": lambda a, b, c: c + abs(a - b),
    "neg": lambda a: -a,
    "abs": abs,
}


def _cases() -> list[tuple[str, str]]:
    return [(name, type_) for name in SAME for type_ in TYPES if not (name in ("neg", "abs") and type_[0] == "u")]


@pytest.mark.parametrize(("name", "type_"), _cases())
def test_arithmetic_wraps_to_the_width(name: str, type_: str, execute: Callable[..., Any]) -> None:
    function = SAME[name]
    arity = {"neg": 1, "abs": 1, "mad.lo": 3, "sad": 3}.get(name, 2)
    size = width(type_)

    @few
    @given(triples)
    def check(rows: list[tuple[int, int, int]]) -> None:
        cut = [tuple(each & ((1 << size) - 1) for each in row[:arity]) for row in rows]
        made = execute(_text(f"{name}.{type_}", *[type_] * (arity + 1)), *zip(*cut, strict=True))
        assert made == [function(*(_read(each, type_) for each in row)) & ((1 << size) - 1) for row in cut]

    check()


@pytest.mark.parametrize("type_", TYPES)
def test_the_upper_half_and_the_whole_product(type_: str, execute: Callable[..., Any]) -> None:
    size = width(type_)

    @few
    @given(triples)
    def check(rows: list[tuple[int, int, int]]) -> None:
        cut = [tuple(each & ((1 << size) - 1) for each in row) for row in rows]
        a, b, c = zip(*cut, strict=True)
        products = [_read(x, type_) * _read(y, type_) for x, y in zip(a, b, strict=True)]
        mask = (1 << size) - 1
        assert execute(_text(f"mul.hi.{type_}", *[type_] * 3), a, b) == [each >> size & mask for each in products]
        high = execute(_text(f"mad.hi.{type_}", *[type_] * 4), a, b, c)
        assert high == [(each >> size) + z & mask for each, z in zip(products, c, strict=True)]
        if size < 64:
            wide = f"{type_[0]}{2 * size}"
            long = [z | z << size for z in c]
            made = execute(_text(f"mad.wide.{type_}", wide, type_, type_, wide), a, b, long)
            assert made == [each + z & (1 << 2 * size) - 1 for each, z in zip(products, long, strict=True)]

    check()


@few
@given(triples)
def test_saturating_forms_clamp_to_32_bits(rows: list[tuple[int, int, int]]) -> None:
    a, b, c = ([each & 0xFFFFFFFF for each in column] for column in zip(*rows, strict=True))
    x, y, z = ([_read(each, "s32") for each in column] for column in (a, b, c))
    assert run("add.sat.s32", a, b) == [_clip(i + j) & 0xFFFFFFFF for i, j in zip(x, y, strict=True)]
    assert run("sub.sat.s32", a, b) == [_clip(i - j) & 0xFFFFFFFF for i, j in zip(x, y, strict=True)]
    made = run("mad.hi.sat.s32", a, b, c)
    assert made == [_clip((i * j >> 32) + k) & 0xFFFFFFFF for i, j, k in zip(x, y, z, strict=True)]


def run(mnemonic: str, *columns: Any) -> Any:
    """The results of a form that takes 32-bit registers only."""

    name, *modifiers = mnemonic.split(".")
    registers = tuple(Register(f"%r{i}", "b32", i) for i in range(len(columns) + 1))
    op = scalar_operation(Instruction(name, tuple(modifiers), registers, None, 0, 1))
    assert op is not None

    with np.errstate(all="ignore"):
        made = op.run(*(np.array(column, np.uint32) for column in columns))
    assert made.dtype == dtype(op.results[0])
    return made.tolist()


@few
@given(triples)
def test_24_bit_products(rows: list[tuple[int, int, int]]) -> None:
    a, b, c = ([each & 0xFFFFFFFF for each in column] for column in zip(*rows, strict=True))
    for type_ in ("u32", "s32"):

        def low(value: int, negative: bool = type_ == "s32") -> int:
            value &= 0xFFFFFF
            return value - 2**24 if negative and value >> 23 else value

        products = [low(x) * low(y) for x, y in zip(a, b, strict=True)]
        assert run(f"mul24.lo.{type_}", a, b) == [each & 0xFFFFFFFF for each in products]
        assert run(f"mul24.hi.{type_}", a, b) == [each >> 16 & 0xFFFFFFFF for each in products]
        sums = [(each >> 16) + z & 0xFFFFFFFF for each, z in zip(products, c, strict=True)]
        assert run(f"mad24.hi.{type_}", a, b, c) == sums


@few
@given(triples)
def test_dot_products_of_bytes_and_halfwords(rows: list[tuple[int, int, int]]) -> None:
    a, b, c = ([each & 0xFFFFFFFF for each in column] for column in zip(*rows, strict=True))
    for first in ("u", "s"):
        for second in ("u", "s"):

            def part(value: int, index: int, size: int, kind: str) -> int:
                return _read(value >> index * size, f"{kind}{size}")

            four = [
                sum(part(x, i, 8, first) * part(y, i, 8, second) for i in range(4)) + z & 0xFFFFFFFF
                for x, y, z in zip(a, b, c, strict=True)
            ]
            assert run(f"dp4a.{first}32.{second}32", a, b, c) == four
            for half, offset in (("lo", 0), ("hi", 2)):
                two = [
                    sum(part(x, i, 16, first) * part(y, i + offset, 8, second) for i in range(2)) + z & 0xFFFFFFFF
                    for x, y, z in zip(a, b, c, strict=True)
                ]
                assert run(f"dp2a.{half}.{first}32.{second}32", a, b, c) == two


def test_packed_halfwords_are_two_operations(execute: Callable[..., Any]) -> None:
    assert execute("add.u16x2 %r1, %r2, %r3;", [0xFFFF0001], [0x00010002]) == [0x00000003]
    assert execute("min.s16x2 %r1, %r2, %r3;", [0x80007FFF], [0x00010001]) == [0x80000001]
    assert execute("max.relu.s16x2 %r1, %r2, %r3;", [0x8000FFFF], [0x80010005]) == [0x00000005]
    assert execute("max.u16x2 %r1, %r2, %r3;", [0x80000005], [0x00010006]) == [0x80000006]


def test_relu_of_a_word_clamps_at_zero(execute: Callable[..., Any]) -> None:
    assert execute("min.relu.s32 %r1, %r2, %r3;", [0xFFFFFFFF, 5], [3, 7]) == [0, 5]


@few
@given(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1))
def test_carries_make_long_sums(a: int, b: int) -> None:
    for add, following, exact in (("add.cc", "addc", a + b), ("sub.cc", "subc", a - b)):
        made, carry = 0, False
        for i in range(4):
            name = f"{add if i == 0 else following + ('.cc' if i < 3 else '')}.u32"
            made_word, carry = _step(name, a >> 32 * i, b >> 32 * i, carry)
            made |= made_word << 32 * i
        assert made == exact % 2**128


def _step(mnemonic: str, a: int, b: int, carry: bool) -> tuple[int, bool]:

    name, *modifiers = mnemonic.split(".")
    register = Register("%r1", "b32", 1)
    op = scalar_operation(Instruction(name, tuple(modifiers), (register,) * 3, None, 0, 1))
    assert op is not None
    arguments = [np.array([each & 0xFFFFFFFF], np.uint32) for each in (a, b)]
    with np.errstate(all="ignore"):
        made = op.run(*arguments, *([np.array([carry])] if op.carry_in else []))
    total, out = made if op.carry_out else (made, np.array([False]))
    return int(total[0]), bool(out[0])


def test_a_product_carries_on(execute: Callable[..., Any]) -> None:
    total, carry = execute("mad.lo.cc.u32 %r1, %r2, %r3, %r4;", [0xFFFFFFFF], [0xFFFFFFFF], [0xFFFFFFFF])
    assert (total, carry) == ([0], [True])
    total, carry = execute("madc.hi.cc.u32 %r1, %r2, %r3, %r4;", [0xFFFFFFFF], [0xFFFFFFFF], [1], [True])
    assert (total, carry) == ([0], [True])
