"""Finds for each instruction how it is executed: inlined text, a scalar operation, or a part of the machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ptxbench.emulator.codegen import (
    bind_async,
    bind_atomic,
    bind_barrier,
    bind_cancel,
    bind_maps,
    bind_matrix,
    bind_memory,
    bind_multimem,
    bind_stack,
    bind_tcgen05,
)
from ptxbench.emulator.codegen.bind_masks import watched
from ptxbench.emulator.codegen.inline import inline
from ptxbench.emulator.codegen.op import Op, items, unsupported
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.codegen.quick import quick
from ptxbench.emulator.codegen.scalar.operations import scalar_operation
from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Instruction, Operand, Register

Binder = Callable[[Instruction, Program], Op | None]


def _store(ins: Instruction, program: Program) -> Op | None:
    return bind_async.store_async(ins, program) or bind_memory.BINDERS["st"](_at_once(ins), program)


def _reduce(ins: Instruction, program: Program) -> Op | None:
    return bind_atomic.BINDERS["red"](_at_once(ins), program)


def _at_once(ins: Instruction) -> Instruction:
    """`st.async` and `red.async` to global memory tell no mbarrier: nobody could see that they were done later."""
    if ins.modifiers[:1] != ("async",) or "release" not in ins.modifiers:
        return ins
    return replace(ins, modifiers=tuple(word for word in ins.modifiers if word not in ("async", "mmio")))


_MACHINE: dict[str, Binder] = {
    **bind_memory.BINDERS,
    "st": _store,
    **bind_atomic.BINDERS,
    "red": _reduce,
    **bind_multimem.BINDERS,
    **bind_maps.BINDERS,
    **bind_stack.BINDERS,
    **bind_barrier.BINDERS,
    **bind_cancel.BINDERS,
    **bind_async.BINDERS,
    **bind_matrix.BINDERS,
    **bind_tcgen05.BINDERS,
}
# Hints and markers: nothing that a functional machine could show.
_SILENT = frozenset(("pragma", "prefetchu", "applypriority", "discard", "pmevent"))


def bind(ins: Instruction, program: Program) -> Op:
    """How the instruction is executed; what is not implemented refuses when lanes reach it."""
    if ins.opcode in _SILENT:
        return Op(expression="None", machine=False)
    try:
        binder = _MACHINE.get(ins.opcode)
        if binder is not None:
            return binder(ins, program) or unsupported(ins)
        return inline(ins) or _scalar(ins, program) or unsupported(ins)
    except Unsupported as reason:
        return unsupported(ins, reason.reason)


def _scalar(ins: Instruction, program: Program) -> Op | None:
    found = scalar_operation(ins)
    if found is None:
        return None
    operands: list[Operand] = [item for operand in ins.operands for item in items(operand)]
    carry = Register("%CC", "pred", len(program.types) - 1)
    count = len(found.results)
    results = [*zip(operands[:count], found.results, strict=False)]
    sources = [*zip(operands[count:], found.sources, strict=False)]
    if found.carry_in:
        sources.append((carry, "pred"))
    if found.carry_out:
        results.append((carry, "pred"))
    made = Op(tuple(sources), tuple(results), run=quick(ins, found), warp=found.warp)
    return watched(ins, made)
