"""Every instruction form of the tables for sm_90a becomes code."""

from __future__ import annotations

import pytest
from tests.emulator.ptx.samples import instructions, text

from ptxbench.emulator.codegen.bind import bind
from ptxbench.emulator.codegen.compile import Compiled
from ptxbench.emulator.codegen.ends import is_end
from ptxbench.emulator.ptx.parse import parse

TARGET = "sm_90a"
FORMS = [line for _, line in instructions(TARGET, False)]


def test_every_form_becomes_code() -> None:
    assert [line for line in FORMS if not _supported(line)] == []


def _supported(line: str) -> bool:
    kernel = parse(text(TARGET, [line])[0]).functions["kernel"]
    program = Compiled(parse(text(TARGET, [])[0]), kernel).program
    first = next(ins for block in kernel.blocks for ins in block.instructions)
    return is_end(first) or not bind(first, program).refused


@pytest.mark.parametrize("part", range(8))
def test_each_form_is_written_for_all_lanes_and_for_some(part: int) -> None:
    for line in FORMS[part::8]:
        module = parse(text(TARGET, [line])[0])
        compiled = Compiled(module, module.functions["kernel"])
        for place in range(len(compiled.program.blocks)):
            makers = compiled.block(place).makers
            assert callable(makers.full()), line
            assert callable(makers.masked()), line
