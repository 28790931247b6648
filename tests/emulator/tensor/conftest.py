"""Instructions from text, for the tests of tensor operations."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.ptx.parse import parse

_TEXT = """.version 9.0
.target {target}
.address_size 64
.visible .entry k()
{{
  .reg .pred %p<4>;
  .reg .b32 %r<300>;
  .reg .b64 %d<32>;
  {text}
  ret;
}}
"""


@pytest.fixture(scope="session")
def instruction() -> Callable[..., Instruction]:
    """The instruction of one line; registers %p (pred), %r (b32), %d (b64)."""

    def read(text: str, target: str = "sm_90a") -> Instruction:
        module = parse(_TEXT.format(text=text, target=target))
        return module.functions["k"].blocks[0].instructions[0]

    return read
