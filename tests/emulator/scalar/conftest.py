"""One instruction's text to its operation, run on plain lists of bits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    arrays = [np.asarray(column).astype(dtype(type_)) for column, type_ in zip(columns, carried, strict=True)]
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
