"""Literals and constant expressions have the values of the PTX ISA, and hostile ones end quickly."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.emulator.errors import PtxError
from ptxbench.emulator.ptx.constants import evaluate, integer
from ptxbench.emulator.ptx.ir import Immediate


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("42", 42),
        ("-42", -42),
        ("0x1f", 31),
        ("0XffU", 255),
        ("017", 15),
        ("0b101", 5),
        ("10U", 10),
        ("0xffffffffffffffff", 2**64 - 1),
        ("-9223372036854775808", -(2**63)),
        ("WARP_SZ", 32),
        ("WARP_SZ-1", 31),
        ("~0", -1),
        ("!5", 0),
        ("+-4", -4),
        ("2+3*4", 14),
        ("(2+3)*4", 20),
        ("7/2", 3),
        ("-7/2", -3),
        ("-7%3", -1),
        ("5 % 3", 2),
        ("5%3", 2),
        ("1<<4|1", 17),
        ("-8>>1", -4),
        ("6&3^1", 3),
        ("1==1", 1),
        ("2<1", 0),
        ("1 ? 5 : 6", 5),
        ("0 ? 5 : 1 ? 7 : 8", 7),
        ("1 && 0 || 1", 1),
        ("(.u64)-1", 2**64 - 1),
        ("(.s64)0xffffffffffffffff", -1),
    ],
)
def test_an_integer_expression_is(text: str, value: int) -> None:
    assert evaluate(text, 1) == Immediate(value, "int")
    assert integer(text, 1) == value


@pytest.mark.parametrize(
    ("text", "bits", "kind"),
    [
        ("0f3F800000", 0x3F800000, "f32"),
        ("0F7fffffff", 0x7FFFFFFF, "f32"),
        ("-0f3F800000", 0xBF800000, "f32"),
        ("0d4000000000000000", 0x4000000000000000, "f64"),
        ("1.5", 0x3FF8000000000000, "f64"),
        ("-0.5", 0xBFE0000000000000, "f64"),
        (".5", 0x3FE0000000000000, "f64"),
        ("1e3", 0x408F400000000000, "f64"),
        ("0.5*4", 0x4000000000000000, "f64"),
        ("1.0/4", 0x3FD0000000000000, "f64"),
    ],
)
def test_a_floating_expression_has_these_bits(text: str, bits: int, kind: str) -> None:
    assert evaluate(text, 1) == Immediate(bits, kind)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), st.sampled_from("+-*&|^"))
def test_signed_arithmetic_wraps_at_64_bits(left: int, right: int, sign: str) -> None:
    exact = {"+": left + right, "-": left - right, "*": left * right}.get(sign)
    if exact is None:
        exact = {"&": left & right, "|": left | right, "^": left ^ right}[sign]
    wrapped = int.from_bytes((exact % 2**64).to_bytes(8, "little"), "little", signed=True)
    assert integer(f"({left}){sign}({right})", 1) == wrapped


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_decimal_floats_keep_all_bits(value: float) -> None:
    text = repr(value)
    if "." in text or "e" in text:
        assert evaluate(text, 1).value == int.from_bytes(struct.pack("<d", value), "little")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "1 2",
        "1/0",
        "5 % 0",
        "(1",
        "1)",
        "08",
        "0x",
        "1 ?",
        "1.5 & 2",
        "~1.5",
        "18446744073709551616",
        "1.0/0.0",
    ],
)
def test_what_is_no_constant_is_refused(text: str) -> None:
    with pytest.raises(PtxError):
        evaluate(text, 3)


@pytest.mark.parametrize("text", ["(" * 100_000, "-" * 2_000 + "1", "1?" * 1_000 + "1", "9" * 4_000, "9" * 100_000])
def test_hostile_expressions_are_refused_quickly(text: str) -> None:
    with pytest.raises(PtxError):
        evaluate(text, 1)
