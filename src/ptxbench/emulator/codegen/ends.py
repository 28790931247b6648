"""What happens at the end of a block: branches, exits, and instructions that may have to wait for others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ptxbench.emulator.codegen import waits
from ptxbench.emulator.codegen.op import Source
from ptxbench.emulator.codegen.program import Block, Program
from ptxbench.emulator.errors import Fault, Unsupported
from ptxbench.emulator.machine.cta import Cta
from ptxbench.emulator.machine.unit import WARP, Answer, Mask, Unit
from ptxbench.emulator.ptx.ir import Guard, Instruction, Negated, Register

Run = Callable[[Unit, Mask | None, Any], int]


@dataclass(frozen=True)
class End:
    """The last instruction of a block.

    Attributes:
        run: Called with the unit, the mask and the block's answer; the next block of all these lanes, or -1 when it
            has put them elsewhere itself.
        branch: The predicate that the block answers.
        sources: Or the operands that it answers, as a tuple of arrays.
        reads: Registers that `run` itself reads or writes.
    """

    run: Run
    branch: Guard | None = None
    sources: tuple[tuple[Source, str], ...] = ()
    reads: set[int] = field(default_factory=set)


def is_end(ins: Instruction) -> bool:
    """Whether the instruction ends its block in another way than by going on."""
    return ins.opcode in _ENDS or waits.waiter_of(ins) is not None


def end_of(ins: Instruction, block: Block, program: Program) -> End | None:
    """How a block ends; None for a plain jump."""
    maker = _ENDS.get(ins.opcode)
    if maker is not None:
        return maker(ins, block)
    return _waiting(ins, block, program)


def leave(unit: Unit, mask: Mask | None) -> None:
    """Lanes exit; barriers that wait for all are told."""
    if unit.copies is not None and (mask is None or not (unit.live & ~mask).any()):
        unit.copies.exit(unit)
    gone = unit.full(mask)
    unit.leave(mask)
    cluster = unit.cta.cluster
    cluster.changed += 1
    for observer in cluster.observers:
        observer.exited(unit)
    if cluster.races is not None:
        cluster.races.exited(unit, gone)
    if unit.cta.tensor is not None and unit.cta.done:
        unit.cta.tensor.left_behind(unit)
    cluster.barrier.exited(unit, gone)
    for barrier in list(unit.cta.named.values()):
        barrier.settle()


def _split(unit: Unit, mask: Mask | None, taken: Mask, ways: tuple[int, int], number: int) -> int:
    """Send `taken` lanes one way and the others another; answers the way that all go, or -1.

    `number` is the instruction's, whose guard is true for the taken ones.
    """
    there, other = ways
    yes = taken if mask is None else mask & taken
    count = int(np.count_nonzero(yes))
    guarded = unit.cta.cluster.kernel.guarded
    guarded[number] = guarded.get(number, 0) + count
    if count == 0:
        return other
    total = unit.lanes if mask is None else np.count_nonzero(mask)
    if count == total:
        return there
    unit.add(other, ~taken if mask is None else mask & ~taken)
    unit.add(there, yes)
    return -1


def _branch(ins: Instruction, block: Block) -> End | None:
    if ins.guard is None:
        return None
    ways, number = (block.targets[0], block.next), ins.index

    def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        return _split(unit, mask, answer, ways, number)

    return End(run, ins.guard)


def _switch(ins: Instruction, block: Block) -> End:
    targets = block.targets
    index = ins.operands[0]
    assert isinstance(index, Register)
    if ins.guard is not None:
        raise Unsupported(ins.name, ins.line, "a guarded table branch")

    def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        lanes, places = unit.full(mask), answer[0]
        if (places[lanes] >= len(targets)).any():
            raise Fault("cudaErrorIllegalInstruction", "brx.idx: an index beyond the list of targets")
        for place in np.unique(places[lanes]).tolist():
            unit.add(targets[place], lanes & (places == place))
        return -1

    return End(run, sources=((index, "u32"),))


class _Once:
    """Counts a warp at its unconditional exit once, whenever its lanes come: hardware has brought them together."""

    def __init__(self, block: int) -> None:
        self.block = block
        self.there: WeakKeyDictionary[Cta, dict[int, Mask]] = WeakKeyDictionary()

    def count(self, unit: Unit, mask: Mask) -> None:
        """Some lanes are at the exit, and have been counted; take back what others of their warps had counted."""
        warps: Mask = np.asarray(mask.reshape(-1, WARP).any(axis=1))
        units = self.there.setdefault(unit.cta, {})
        before = units.get(unit.index)
        if before is not None:
            unit.cta.cluster.kernel.code(self.block).warps -= int(np.count_nonzero(warps & before))
            warps = np.logical_or(warps, before)
        units[unit.index] = warps


def _exit(ins: Instruction, block: Block) -> End | None:
    if not block.leaves:
        return _branch(ins, block)
    other, number, once = block.next, ins.index, _Once(block.index)

    def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        if answer is not None:
            unit.tally(number, mask, answer)
        elif mask is not None:
            once.count(unit, mask)
        gone = mask if answer is None else (answer if mask is None else mask & answer)
        if gone is not None and not gone.any():
            return other
        stay = None if answer is None else unit.full(mask) & ~answer
        leave(unit, gone)
        if stay is not None and stay.any():
            unit.add(other, stay)
        return -1

    return End(run, ins.guard)


def _trap(ins: Instruction, block: Block) -> End:
    other, line, number = block.next, ins.line, ins.index

    def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        if answer is not None:
            unit.tally(number, mask, answer)
        stopped = unit.full(mask) if answer is None else unit.full(mask) & answer
        if stopped.any():
            unit.line = line
            raise Fault("cudaErrorLaunchFailure", "the kernel executed `trap`")
        return other

    return End(run, ins.guard)


def _waiting(ins: Instruction, block: Block, program: Program) -> End | None:
    found = waits.waiter_of(ins)
    assert found is not None
    wait = found(ins, block, program)
    if wait is None:
        return None
    guard, following, line, number = ins.guard, block.next, ins.line, ins.index
    if guard is None:

        def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
            unit.line = line
            return wait.run(unit, mask, answer)

        return End(run, sources=wait.sources, reads=set(wait.writes))
    sources = (*wait.sources, (Negated(guard.register) if guard.negated else guard.register, "pred"))

    def guarded(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        unit.line = line
        *operands, chosen = answer
        unit.tally(number, mask, chosen)
        lanes = unit.full(mask)
        inside, outside = lanes & chosen, lanes & ~chosen
        if not inside.any():
            return following
        if not outside.any():
            return wait.run(unit, mask, tuple(operands))
        unit.add(following, outside)
        where = wait.run(unit, inside, tuple(operands))
        if where >= 0:
            unit.add(where, inside)
        return -1

    return End(guarded, sources=sources, reads=set(wait.writes))


_ENDS: dict[str, Callable[[Instruction, Block], End | None]] = {
    **{"bra": _branch, "brx": _switch, "exit": _exit, "ret": _exit, "trap": _trap},
}
