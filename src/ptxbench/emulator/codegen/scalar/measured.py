"""Approximations as an H200 computes them, bit for bit: which instructions these are; the tables lie beside this."""

from __future__ import annotations

from dataclasses import replace

from ptxbench.emulator.codegen.op import Op
from ptxbench.emulator.codegen.scalar.exponential import exponential
from ptxbench.emulator.codegen.scalar.logarithm import logarithm
from ptxbench.emulator.machine.unit import Lanes, Mask, Unit
from ptxbench.emulator.ptx.ir import Instruction

_FUNCTIONS = {"ex2": exponential, "lg2": logarithm}


def exactly(ins: Instruction, op: Op) -> Op:
    """The instruction as the device computes it, if it is one of these; else as it is."""
    function = _FUNCTIONS.get(ins.opcode)
    if function is None or ins.modifiers[-1] != "f32":
        return op
    ftz = "ftz" in ins.modifiers

    def run(unit: Unit, mask: Mask | None, value: Lanes) -> Lanes:
        return function(value, ftz=ftz)

    return replace(op, run=run, machine=True)
