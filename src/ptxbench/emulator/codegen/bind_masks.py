"""Looks at the membermask of exchanges within a warp; what they exchange is decided elsewhere.

PTX ISA 9.0, 9.7.9 and 9.7.13: `shfl.sync`, `vote.sync`, `match.sync`, `redux.sync`, `elect.sync`, `bar.warp.sync` are
undefined for an executing thread that its membermask does not name.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxbench.emulator.codegen.op import Op
from ptxbench.emulator.machine.spaces import Lanes
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.ptx.ir import Immediate, Instruction

_MASKED = frozenset(("shfl", "vote", "match", "redux", "elect"))
_ALL = 0xFFFFFFFF
_WARP = 32


def may_leave_out(ins: Instruction) -> bool:
    """Whether an instruction has a membermask that is not known to name all lanes; it is the last operand."""
    if ins.opcode not in _MASKED and not (ins.opcode == "bar" and "warp" in ins.modifiers):
        return False
    mask = ins.operands[-1]
    return not (isinstance(mask, Immediate) and mask.value & _ALL == _ALL)


def watched(ins: Instruction, op: Op) -> Op:
    """The instruction with a look at its membermask, the last of its sources, where that may leave lanes out."""
    if not may_leave_out(ins):
        return op
    run, name, line = op.run, ins.name, ins.line

    def both(unit: Unit, executing: Mask | None, *arguments: Lanes) -> object:
        active = unit.full(executing)
        if unit.cta.cluster.observers:
            look(unit, active, arguments[-1], (name, line))
        if run is None:
            return None
        return run(active, *arguments) if op.warp else run(*arguments)

    return replace(op, run=both, expression="", machine=True, warp=False)


def look(unit: Unit, active: Mask, masks: Lanes, what: tuple[str, int]) -> None:
    """Tell the observers of executing lanes that are not in their own mask."""
    if masks.ndim == 0 and int(masks) == _ALL:
        return
    named = np.broadcast_to(masks, active.shape) >> (np.arange(active.size) % _WARP).astype(np.uint32) & 1
    left_out = np.flatnonzero(active & (named == 0))
    if left_out.size:
        for observer in unit.cta.cluster.observers:
            observer.outside_mask(unit, left_out, what)
