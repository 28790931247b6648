"""`alloca`, `stacksave`, `stackrestore`: a stack in each lane's local memory, above its variables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxbench.emulator.codegen.op import Op, typed
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.unit import Lanes, Mask, Unit
from ptxbench.emulator.ptx.ir import Immediate, Instruction

STACK_BYTES = 16384
"""Room that a kernel with such instructions gets in each lane."""


def _top(unit: Unit) -> Lanes:
    if unit.stack is None:
        unit.stack = np.full(unit.lanes, unit.cta.cluster.kernel.program.local_bytes - STACK_BYTES, np.uint64)
    made: Lanes = unit.stack
    return made


def _alloca(ins: Instruction, program: Program) -> Op:
    align = ins.operands[2].value if len(ins.operands) > 2 and isinstance(ins.operands[2], Immediate) else 16

    def run(unit: Unit, mask: Mask | None, sizes: Lanes) -> Lanes:
        lanes = unit.full(mask)
        start = (_top(unit) + np.uint64(align - 1)) & np.uint64((1 << 64) - align)
        end = start + sizes.astype(np.uint64)
        if (end[lanes] > unit.cta.cluster.kernel.program.local_bytes).any() or (end[lanes] < start[lanes]).any():
            raise Fault("cudaErrorIllegalAddress", f"alloca: a lane's stack of {STACK_BYTES} bytes is used up")
        unit.stack = np.where(lanes, end, unit.stack)
        return start

    return Op(typed(ins.operands[1:2], "b64"), typed(ins.operands[:1], "b64"), run=run, machine=True)


def _save(ins: Instruction, program: Program) -> Op:
    return Op((), typed(ins.operands[:1], "b64"), run=lambda unit, mask: _top(unit), machine=True)


def _restore(ins: Instruction, program: Program) -> Op:
    def run(unit: Unit, mask: Mask | None, tops: Lanes) -> None:
        unit.stack = np.where(unit.full(mask), tops, _top(unit))

    return Op(typed(ins.operands[:1], "b64"), run=run, machine=True)


BINDERS: dict[str, Callable[[Instruction, Program], Op | None]] = {
    **{"alloca": _alloca, "stacksave": _save, "stackrestore": _restore},
}
