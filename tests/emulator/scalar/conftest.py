"""One instruction's text to its operation, run on plain lists of bits."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from ptxbench.emulator.codegen.scalar.form import ScalarOp, dtype
from ptxbench.emulator.codegen.scalar.operations import scalar_operation
from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.ptx.parse import parse

_TEXT = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k()
{{
  .reg .pred %p<16>;
  .reg .b16 %h<16>;
  .reg .b32 %r<64>;
  .reg .b64 %d<16>;
  .reg .b128 %q<4>;
  {text}
  ret;
}}
"""


def read(text: str) -> Instruction:
    """The instruction of one line; registers %p (pred), %h (b16), %r (b32), %d (b64), %q (b128)."""
    module = parse(_TEXT.format(text=text))
    return module.functions["k"].blocks[0].instructions[0]


@pytest.fixture(name="instruction", scope="session")
def _instruction() -> Callable[[str], Instruction]:
    return read


@pytest.fixture(scope="session")
def operation() -> Callable[[str], ScalarOp]:
    def made(text: str) -> ScalarOp:
        found = scalar_operation(read(text))
        assert found is not None, text
        return found

    return made


def run(op: ScalarOp, *columns: Any, active: Any = None) -> Any:
    """Results of an operation on columns of integers (one per source), as lists of integers."""
    carried = [*op.sources, *(["pred"] if op.carry_in else [])]
    assert len(columns) == len(carried), (columns, carried)
    arrays = [np.array(column, np.uint64).astype(dtype(type_)) for column, type_ in zip(columns, carried, strict=True)]
    if op.warp:
        arrays.insert(0, np.asarray(active, np.bool_))
    with np.errstate(all="ignore"):
        made = op.run(*arrays)
    several = made if isinstance(made, tuple) else (made,)
    expected = [*op.results, *(["pred"] if op.carry_out else [])]
    assert len(several) == len(expected)
    for array, type_ in zip(several, expected, strict=True):
        assert np.asarray(array).dtype == np.dtype(dtype(type_)), (array, type_)
    lists = [np.asarray(each).tolist() for each in several]
    return lists[0] if len(lists) == 1 else lists


@pytest.fixture(scope="session")
def execute(operation: Callable[[str], ScalarOp]) -> Callable[..., Any]:
    """`execute(text, column, ...)`: the results of one line of PTX."""

    def made(text: str, *columns: Sequence[int], active: Any = None) -> Any:
        return run(operation(text), *columns, active=active)

    return made


FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "e4m3": (4, 3), "e5m2": (5, 2)}


def value_of(code: int, format_: str) -> Fraction:
    """The number that finite bits mean, by the definition of the format."""
    exponent_bits, mantissa_bits = FORMATS[format_]
    sign = -1 if code >> (exponent_bits + mantissa_bits) else 1
    field = code >> mantissa_bits & ((1 << exponent_bits) - 1)
    fraction = Fraction(code & ((1 << mantissa_bits) - 1), 1 << mantissa_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    scale = Fraction(2) ** (max(field, 1) - bias)
    return sign * scale * (fraction + (1 if field else 0))


def rounded(exact: Fraction, format_: str, mode: str) -> int:
    """The bits of an exact number, not zero, found by bisection over all codes (overflow goes to infinity or not)."""
    exponent_bits, mantissa_bits = FORMATS[format_]
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    sign = 1 << (exponent_bits + mantissa_bits) if exact < 0 else 0
    magnitude = abs(exact)
    low, high = 0, infinity - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if value_of(middle, format_) <= magnitude else (low, middle - 1)
    below = value_of(low, format_)
    if below == magnitude:
        return sign | low
    above = value_of(low, format_) + (
        value_of(low, format_) - value_of(low - 1, format_) if low else value_of(1, format_)
    )
    if low + 1 < infinity:
        above = value_of(low + 1, format_)
    if mode == "rn":
        distance = (magnitude - below) - (above - magnitude)
        up = distance > 0 or (distance == 0 and low & 1 == 1)
    else:
        up = {"rz": False, "rm": exact < 0, "rp": exact > 0}[mode]
    return sign | (low + up)


def numbers(format_: str, count: int, seed: int) -> list[int]:
    """Finite bits, half of them with exponents near those of their neighbours."""
    rng = random.Random(seed)
    exponent_bits, mantissa_bits = FORMATS[format_]
    top = (1 << exponent_bits) - 1
    found = []
    for i in range(count):
        field = rng.randrange(top) if i % 2 else (top // 2 + rng.randrange(-3, 4))
        field = rng.choice((0, 1, top - 1)) if i % 7 == 0 else field
        fraction = rng.getrandbits(mantissa_bits) & rng.choice((-1, -1, ~0xFF, 0, 1))
        found.append(rng.getrandbits(1) << (exponent_bits + mantissa_bits) | field << mantissa_bits | fraction)
    return found


@dataclass(frozen=True)
class Reference:
    """Exact arithmetic to compare with."""

    numbers: Callable[[str, int, int], list[int]] = numbers
    value: Callable[[int, str], Fraction] = value_of
    rounded: Callable[[Fraction, str, str], int] = rounded


@pytest.fixture(scope="session")
def reference() -> Reference:
    return Reference()
