"""Finds the function for a scalar instruction; the functions themselves lie in the modules beside this one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ptxbench.emulator.codegen.scalar import (
    approximate,
    bits,
    carry,
    compare,
    convert,
    convert_packed,
    extremes,
    floating,
    half,
    integer,
    moves,
    warp,
)
from ptxbench.emulator.codegen.scalar.form import Form, ScalarOp
from ptxbench.emulator.ptx.ir import Instruction

Builder = Callable[[Form], ScalarOp | None]

_MODULES: tuple[Mapping[str, tuple[Builder, ...]], ...] = (
    carry.BUILDERS,
    integer.BUILDERS,
    floating.BUILDERS,
    approximate.BUILDERS,
    half.BUILDERS,
    extremes.BUILDERS,
    compare.BUILDERS,
    bits.BUILDERS,
    convert.BUILDERS,
    convert_packed.BUILDERS,
    moves.BUILDERS,
    warp.BUILDERS,
)


def scalar_operation(ins: Instruction) -> ScalarOp | None:
    """The operation of an instruction; None if it is no scalar instruction, or one that is not implemented."""
    form = Form(ins)
    for builders in _MODULES:
        for builder in builders.get(ins.opcode, ()):
            made = builder(form)
            if made is not None:
                return made
    return None
