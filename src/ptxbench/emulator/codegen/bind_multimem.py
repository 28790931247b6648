"""`multimem`: operations on all devices of a team; here a team of one, so that each is its plain counterpart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ptxbench.emulator.codegen import bind_atomic, bind_memory
from ptxbench.emulator.codegen.op import Op
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.ptx.ir import Instruction

_DROPPED = frozenset(("add", "min", "max", "and", "or", "xor", "ld_reduce", "acc::f32", "acc::f16", "st", "red"))


def _multimem(ins: Instruction, program: Program) -> Op | None:
    kind, words = ins.modifiers[0], ins.modifiers[1:]
    if kind == "red":
        if words[-1] in ("f16", "bf16", "f16x2", "bf16x2"):
            words = (*words[:-1], "noftz", words[-1])
        return bind_atomic.BINDERS["red"](replace(ins, opcode="red", modifiers=words), program)
    plain = tuple(word for word in words if word not in _DROPPED)
    opcode = "ld" if kind == "ld_reduce" else "st"
    return bind_memory.BINDERS[opcode](replace(ins, opcode=opcode, modifiers=plain), program)


BINDERS: dict[str, Callable[[Instruction, Program], Op | None]] = {"multimem": _multimem}
