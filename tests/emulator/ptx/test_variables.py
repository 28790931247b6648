"""Variables have the bytes, addresses, sizes and alignments that their declarations give them."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.emulator.ptx.texts import compiled, module

from ptxbench.emulator.errors import PtxError
from ptxbench.emulator.ptx.ir import Space, Variable
from ptxbench.emulator.ptx.parse import parse


def declared(text: str, name: str = "x") -> Variable:
    return parse(module("ret;", text)).variables[name]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".global .u32 x = 7;", struct.pack("<I", 7)),
        (".global .s16 x[3] = {-1, 2};", struct.pack("<hhh", -1, 2, 0)),
        (".const .b8 x[] = {1, 0xff, 255U};", bytes((1, 255, 255))),
        (".global .f32 x[2] = {1.5, 0f3F800000};", struct.pack("<ff", 1.5, 1.0)),
        (".global .f64 x = 0d3FF0000000000000;", struct.pack("<d", 1.0)),
        (".global .f64 x = 3;", struct.pack("<d", 3.0)),
        (".global .f32 x = 1e60;", struct.pack("<f", float("inf"))),
        (".global .u8 x[2][2] = {{1, 2}, {3, 4}};", bytes((1, 2, 3, 4))),
        (".global .v2 .u16 x[2] = {{1, 2}, {3, 4}};", struct.pack("<HHHH", 1, 2, 3, 4)),
        (".global .u64 x = 1 + 2 * 3;", struct.pack("<Q", 7)),
    ],
)
def test_an_initialiser_gives_the_bytes(text: str, expected: bytes) -> None:
    made = declared(text)
    assert made.initial == expected
    assert made.size == len(expected)


def test_addresses_become_relocations() -> None:
    made = declared(".global .u32 y; .global .u64 x[4] = {generic(y)+4, 3, y, y-8};")
    assert made.initial == struct.pack("<QQQQ", 0, 3, 0, 0)
    assert made.relocations == ((0, "y", 4), (16, "y", 0), (24, "y", -8))


def test_the_bytes_of_an_address_are_joined() -> None:
    masks = ", ".join(f"0xFF{'00' * place}(y)" for place in range(8))
    made = declared(f".global .u32 y; .global .align 1 .b8 x[9] = {{7, {masks}}};")
    assert made.relocations == ((1, "y", 0),)
    assert made.initial == bytes((7, *([0] * 8)))


@pytest.mark.parametrize(
    ("text", "align", "size"),
    [
        (".global .u32 x;", 4, 4),
        (".global .v4 .f32 x;", 16, 16),
        (".global .align 128 .b8 x[100];", 128, 100),
        (".extern .shared .align 16 .b8 x[];", 16, 0),
        (".shared .b64 y, x[3][5];", 8, 120),
    ],
)
def test_size_and_alignment(text: str, align: int, size: int) -> None:
    made = declared(text)
    assert (made.align, made.size, made.initial) == (align, size, None)


def test_a_parameter_may_say_what_it_points_to() -> None:
    text = module("ret;").replace(".param .u64 a", ".param .u64 .ptr .global .align 16 a")
    first = parse(text).functions["k"].parameters[0]
    assert (first.type, first.size, first.align) == ("u64", 8, 8)


def test_the_initialisers_of_a_compiled_text() -> None:
    variables = parse(compiled("language.sm_90a")).variables
    table = variables["table"]
    assert table.space is Space.CONST
    assert np.frombuffer(table.initial or b"", np.float32).tolist() == [1.0, 2.5, -3.0, 1e10, 0.0]
    assert variables["behind"].relocations == ((0, "counter", 4),)
    assert variables["mixed"].relocations == ((0, "counter", 0), (16, "counter", 0))
    assert variables["functions"].relocations == ((0, "_Z8plus_onef", 0), (8, "_Z5twicef", 0))
    assert (variables["$str"].initial or b"").startswith(b"hello\n\0")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (".global .b8 x[2] = {1, 2, 3};", "has 3 bytes for 2"),
        (".global .u32 y; .global .u32 x = y;", "does not fit"),
        (".global .u32 x = 1.5;", "does not fit"),
        (".global .b8 x[];", "has no size"),
        (".global .b8 x[-1];", "dimension"),
        (".global .align 3 .b8 x;", "not an alignment"),
        (".global .b8 x[1000000][1000000][1000000];", "the limit is"),
        (".global .b8 x[300000000] = {1};", "bytes"),
        (".global .u32 x; .global .u32 x;", "declared twice"),
        (".global .u32 y; .global .b8 x[2] = {0xFF(y), 0xFF00(y)};", "do not stand together"),
    ],
)
def test_a_faulty_declaration_is_refused(text: str, message: str) -> None:
    with pytest.raises(PtxError) as caught:
        parse(module("ret;", text))
    assert message in caught.value.message
