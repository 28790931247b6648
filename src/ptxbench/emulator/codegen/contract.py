"""Products and sums of float32 that the assembler makes one fma of, for runs with the device's bits; knows no launch.

PTX ISA, section add: without a rounding modifier `mul` and `add` may be fused. ptxas does so where a product has no
other use; which of two products it takes into one sum is not known, and here it is the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ptxbench.emulator.codegen.block import Step, slots_of
from ptxbench.emulator.codegen.op import Op
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.codegen.scalar.operations import scalar_operation
from ptxbench.emulator.machine.unit import Lanes, Mask, Unit
from ptxbench.emulator.ptx.ir import Instruction, Register
from ptxbench.emulator.ptx.registers import slots

_SIGN = np.uint32(1 << 31)
_FREE = (("f32",), ("ftz", "f32"))
"""Modifiers that leave the assembler free to fuse."""


def uses(program: Program) -> Counter[int]:
    """How often each register is named."""
    found: Counter[int] = Counter()
    for block in program.blocks:
        for ins in block.instructions:
            for operand in ins.operands:
                found.update(slots(operand))
    return found


def contracted(steps: Sequence[Step], named: Counter[int]) -> list[Step]:
    """The steps of a block, with sums of products as one fma where the assembler makes one."""
    made: list[Step] = []
    products: dict[int, Step] = {}
    for step in steps:
        ins, op = step.instruction, step.op
        if ins.opcode in ("add", "sub") and ins.modifiers in _FREE and ins.guard is None:
            op = _fused(step, products)
        made.append(Step(ins, op))
        changed = {slot for operand, _ in op.results for slot in slots_of(operand)} | set(op.touches)
        products = {slot: each for slot, each in products.items() if changed.isdisjoint(_inputs(each) | {slot})}
        if ins.opcode == "mul" and ins.modifiers in _FREE and ins.guard is None:
            target = ins.operands[0]
            if isinstance(target, Register) and named[target.slot] == 2:
                products[target.slot] = step
    return made


def _inputs(step: Step) -> set[int]:
    return {slot for operand, _ in step.op.sources for slot in slots_of(operand)}


def _fused(step: Step, products: dict[int, Step]) -> Op:
    """The sum as an fma, if one of its operands is a product that nobody else uses."""
    ins, op = step.instruction, step.op
    for place, other in ((1, 2), (2, 1)):
        operand = ins.operands[place]
        found = products.get(operand.slot) if isinstance(operand, Register) else None
        if found is not None and found.instruction.modifiers == ins.modifiers:
            a, b = found.instruction.operands[1:3]
            text = replace(
                ins,
                opcode="fma",
                modifiers=("rn", *ins.modifiers),
                operands=(ins.operands[0], a, b, ins.operands[other]),
            )
            # Of a difference the product or the other operand changes its sign.
            return _signed(op, text, None if ins.opcode == "add" else 2 if place == 1 else 0)
    return op


def _signed(op: Op, text: Instruction, negated: int | None) -> Op:
    function = scalar_operation(text)
    assert function is not None
    compute = function.run

    def run(unit: Unit, mask: Mask | None, *values: Lanes) -> Lanes:
        made: Lanes = compute(*(each ^ _SIGN if place == negated else each for place, each in enumerate(values)))
        return made

    sources = tuple((operand, "f32") for operand in text.operands[1:])
    return replace(op, sources=sources, run=run, expression="", machine=True)
