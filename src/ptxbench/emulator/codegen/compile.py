"""A kernel's blocks, bound and analysed once, and turned into functions when they first run; knows no launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from ptxbench.emulator.codegen.bind import bind
from ptxbench.emulator.codegen.bind_masks import may_leave_out
from ptxbench.emulator.codegen.bind_stack import STACK_BYTES
from ptxbench.emulator.codegen.block import BlockWriter, Constants, Step, slots_of, uses
from ptxbench.emulator.codegen.contract import contracted
from ptxbench.emulator.codegen.contract import uses as uses_of
from ptxbench.emulator.codegen.ends import End, end_of, is_end, leave
from ptxbench.emulator.codegen.liveness import live_out
from ptxbench.emulator.codegen.op import Op
from ptxbench.emulator.codegen.program import Block, Program, flatten
from ptxbench.emulator.machine.blocks import RunBlock
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.ptx.ir import Function, Guard, Instruction, Module

_WARP_WIDE = frozenset(("shfl", "vote", "match", "redux", "elect", "ldmatrix", "stmatrix", "movmatrix", "mma"))
_GROUP_WIDE = ("mma_async",)
_WARPGROUP = 128
_WARP = 32
_MOST_LANES = 1024
Watch = Callable[[Instruction, Op], Op]
"""Adds something to how an instruction is executed."""


class Compiled:
    """A kernel ready to run.

    Attributes:
        collective: Blocks with instructions for whole warps (32) or warpgroups (128).
        gathering: Those of them that wait for all lanes, as no mask names fewer.
        constants: What units must provide; grows as blocks are compiled.
    """

    def __init__(
        self, module: Module, kernel: Function, watch: Watch | None = None, *, contracts: bool = False
    ) -> None:
        self._watch = watch
        self.program: Program = flatten(module, kernel)
        # One more register for the carry flag of add.cc and its kin.
        self.program.types.append("pred")
        if any(ins.opcode in ("alloca", "stacksave") for block in self.program.blocks for ins in block.instructions):
            self.program.local_bytes = (self.program.local_bytes + 15) // 16 * 16 + STACK_BYTES
        self.constants = Constants()
        self.collective: dict[int, int] = {}
        self.gathering: set[int] = set()
        self.uses_wgmma = False
        self.uses_tensor_memory = False
        self.uses_masks = False
        self.by_warpgroups = False
        self.waits = False
        self._steps: list[list[Step]] = []
        self._ends: list[End | None] = []
        self._made: dict[int, RunBlock] = {}
        named = uses_of(self.program) if contracts else None
        for block in self.program.blocks:
            self._bind(block, named)
        used = [self._used(place) for place in range(len(self._steps))]
        self._live = live_out(used, [block.successors for block in self.program.blocks])

    def unit_lanes(self, threads: int) -> int:
        """Lanes of a unit: a warpgroup when its instructions are used, a warp when warps wait apart, else the CTA."""
        if self.by_warpgroups:
            return _WARPGROUP
        if self.waits:
            return _WARP
        return min(-(-threads // _WARP) * _WARP, _MOST_LANES)

    def _bind(self, block: Block, named: Counter[int] | None) -> None:
        instructions = block.instructions
        end: End | None = None
        ends = bool(instructions) and is_end(instructions[-1])
        if ends:
            end = end_of(instructions[-1], block, self.program)
        body = instructions[:-1] if ends else instructions
        bound = [(each, bind(each, self.program)) for each in body]
        steps = [Step(each, self._watch(each, op) if self._watch else op) for each, op in bound]
        self._steps.append(steps if named is None else contracted(steps, named))
        self._ends.append(end)
        for each in instructions:
            self._note(block, each)

    def _note(self, block: Block, ins: Instruction) -> None:
        self.uses_masks = self.uses_masks or may_leave_out(ins)
        if ins.opcode == "setmaxnreg":
            self.by_warpgroups = True
        elif ins.opcode == "wgmma":
            self.uses_wgmma = self.by_warpgroups = True
            if ins.modifiers[0] in _GROUP_WIDE:
                self.collective[block.index] = _WARPGROUP
                self.gathering.add(block.index)
        elif ins.opcode == "tcgen05":
            self.uses_tensor_memory = self.waits = True
            if "sync" in ins.modifiers:
                self.collective.setdefault(block.index, _WARP)
                self.gathering.add(block.index)
        elif ins.opcode in _WARP_WIDE or (ins.opcode == "bar" and "warp" in ins.modifiers):
            self.collective.setdefault(block.index, _WARP)
        elif ins.opcode == "mbarrier" and ins.modifiers[0] in ("try_wait", "test_wait"):
            self.waits = True

    def _used(self, place: int) -> tuple[set[int], set[int]]:
        """Slots read before they are written in a block, and those written."""
        read: set[int] = set()
        written: set[int] = set()
        for step in self._steps[place]:
            first, then = uses(step.op, step.instruction.guard)
            read |= first - written
            written |= then
        end = self._ends[place]
        if end is not None:
            answered = {slot for operand, _ in end.sources for slot in slots_of(operand)}
            branch = {end.branch.register.slot} if end.branch is not None else set()
            read |= (end.reads | answered | branch) - written
        return read, written

    def block(self, pc: int) -> RunBlock:
        """A block as a launch has it, compiled once for all launches."""
        found = self._made.get(pc)
        if found is None:
            found = self._made[pc] = self._compile(pc)
        return replace(found)

    def _compile(self, pc: int) -> RunBlock:
        block, steps, end = self.program.blocks[pc], self._steps[pc], self._ends[pc]
        kept = self._live[pc] | (end.reads if end is not None else set())
        guard: Guard | None = end.branch if end is not None else None
        code = BlockWriter(self.program.types, self.constants, kept).write(steps, guard, end.sources if end else ())
        following = block.next
        if end is None and block.targets:
            following = block.targets[0]
        return RunBlock(
            index=pc,
            makers=code,
            end=end.run if end is not None else (None if following >= 0 else _fall_off),
            next=following,
            length=len(block.instructions),
            slots=frozenset(_slots(steps)),
            written=frozenset(slot for each in steps for x, _ in each.op.results for slot in slots_of(x)),
            constants=len(self.constants.specs),
            line=block.instructions[0].line if block.instructions else 0,
        )


def _slots(steps: Sequence[Step]) -> set[int]:
    """Registers that a block uses, those of asynchronous products left out: they are used later."""
    found: set[int] = set()
    for step in steps:
        read, written = uses(step.op, step.instruction.guard)
        found |= (read | written) - set(step.op.touches)
    return found


def _fall_off(unit: Unit, mask: Mask | None, _: object) -> int:
    leave(unit, mask)
    return -1
