"""Instructions at which lanes may have to wait: mbarrier tests, CTA and cluster barriers, sleeping."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxbench.emulator.codegen.block import slots_of
from ptxbench.emulator.codegen.op import Source, typed
from ptxbench.emulator.codegen.program import Block, Program
from ptxbench.emulator.codegen.values import address_sources, uniform_groups
from ptxbench.emulator.machine import dependence
from ptxbench.emulator.machine.named import Waiting
from ptxbench.emulator.machine.phases import Phases, PhaseWait, find
from ptxbench.emulator.machine.pool import RegisterWait
from ptxbench.emulator.machine.spaces import Lanes
from ptxbench.emulator.machine.tensor_alloc import Request, ask
from ptxbench.emulator.machine.unit import WARP, Answer, Mask, Unit
from ptxbench.emulator.ptx.ir import Immediate, Instruction, Operand, Register


@dataclass(frozen=True)
class Wait:
    """A waiting instruction: as `ends.End`, with the registers that it writes when the lanes go on."""

    run: Callable[[Unit, Mask | None, Any], int]
    sources: tuple[tuple[Source, str], ...] = ()
    writes: tuple[int, ...] = ()


Maker = Callable[[Instruction, Block, Program], Wait | None]


def waiter_of(ins: Instruction) -> Maker | None:
    """What makes the wait of an instruction, if it may wait."""
    words = ins.modifiers
    if ins.opcode == "mbarrier" and words[0] in ("try_wait", "test_wait"):
        return _phase
    if ins.opcode in ("bar", "barrier"):
        if "cluster" in words:
            return _cluster if "wait" in words else None
        return _barrier if ("sync" in words or "red" in words) and "warp" not in words else None
    if ins.opcode == "tcgen05":
        return _tensor_memory if words[0] in ("alloc", "dealloc") else None
    if ins.opcode == "griddepcontrol":
        return _dependence if words[0] == "wait" else None
    return {"nanosleep": _sleep, "setmaxnreg": _registers}.get(ins.opcode)


def _phase(ins: Instruction, block: Block, program: Program) -> Wait:
    """`mbarrier.try_wait` blocks until the phase is over; `test_wait` answers at once.

    A `try_wait` may answer false at any time (PTX ISA 9.0, 9.7.13.15.16): it always does if nobody reads the answer.
    """
    target, address, value = ins.operands[:3]
    words = ins.modifiers
    blocks, token = words[0] == "try_wait", "parity" not in words
    slot = target.slot if isinstance(target, Register) else -1
    idle = blocks and not _is_read(slot, block, program)
    following, line = block.next, ins.line

    def finish(unit: Unit, lanes: Mask, answer: bool) -> None:
        if slot >= 0:
            unit.registers[slot] = np.where(lanes, answer, unit.registers[slot])

    def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        lanes = unit.full(mask)
        conditions = list(_conditions(unit, lanes, *answer))
        if idle:
            return following
        wait = PhaseWait(unit, lanes, line, following, conditions, token, finish, words)
        if not blocks:
            for phases, wanted, chosen in conditions:
                done = wait.holds(phases, wanted)
                finish(unit, chosen, done)
                unit.polled = unit.polled or not done
                if done:
                    wait.observe([phases])
            return following
        if wait.satisfied():
            finish(unit, lanes, True)
            wait.observe([phases for phases, _, _ in conditions])
            return following
        wait.park()
        return -1

    sources = (*address_sources(address, "shared"), (value, "b64" if token else "b32"))
    return Wait(run, sources, (slot,) if slot >= 0 else ())


def _is_read(slot: int, block: Block, program: Program) -> bool:
    """Whether anything but the waits that write a register has it as guard or operand; `block` is where to begin."""
    for other in (*program.blocks[block.index :], *program.blocks[: block.index]):
        for each in other.instructions:
            own = each.opcode == "mbarrier" and each.modifiers[0] in ("try_wait", "test_wait")
            operands = each.operands[1:] if own else each.operands
            if each.guard is not None and each.guard.register.slot == slot:
                return True
            if any(slot in slots_of(operand) for operand in operands):
                return True
    return False


def _conditions(unit: Unit, lanes: Mask, addresses: Lanes, *rest: Lanes) -> Iterator[tuple[Phases, int, Mask]]:
    *offset, values = rest
    if offset:
        addresses = addresses + offset[0]
    cta = unit.cta
    for (address, value), chosen in uniform_groups(unit, lanes, addresses, values):
        yield find(cta.cluster, unit, address & 0xFFFF_FFFF, remote=False), value, chosen


def _barrier(ins: Instruction, block: Block, program: Program) -> Wait:
    """`bar.sync`, `barrier.sync`, `bar.red`."""
    words = ins.modifiers
    reduces = "red" in words
    operands = list(ins.operands)
    target = operands.pop(0) if reduces else None
    predicate = operands.pop() if reduces else None
    count: Operand | None = operands[1] if len(operands) > 1 else None
    kind = next((word for word in words if word in ("popc", "and", "or")), "")
    slot = target.slot if isinstance(target, Register) else -1
    following, line = block.next, ins.line

    def result(unit: Unit, lanes: Mask, answer: Answer) -> None:
        if slot >= 0:
            old = unit.registers[slot]
            unit.registers[slot] = np.where(lanes, old.dtype.type(answer), old)

    def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        lanes = unit.full(mask)
        values = answer[:-1] if reduces else answer
        for (number, *counts), chosen in uniform_groups(unit, lanes, *values):
            barrier = unit.cta.named_barrier(number)
            if reduces:
                barrier.kind = kind
                barrier.values.append((unit, answer[-1] & chosen))
                barrier.total += int(np.count_nonzero(chosen))
            for part in _parts(unit, chosen, counts):
                wait = Waiting(unit, part, line, following, barrier, result if reduces else None)
                barrier.arrive(unit, part, counts[0] if counts else None, wait)
        return -1

    sources = typed((operands[0],) if count is None else (operands[0], count), "b32")
    if predicate is not None:
        sources = (*sources, (predicate, "pred"))
    return Wait(run, sources, (slot,) if slot >= 0 else ())


def _parts(unit: Unit, lanes: Mask, counts: list[int]) -> Iterator[Mask]:
    """The lanes together, or warp by warp when they are more warps than the barrier lets pass at once."""
    if not counts or unit.warps_of(lanes) * WARP <= counts[0]:
        yield lanes
        return
    warp = np.arange(unit.lanes) // WARP
    for number in np.unique(warp[lanes]).tolist():
        yield lanes & (warp == number)


def _cluster(ins: Instruction, block: Block, program: Program) -> Wait:
    following, line = block.next, ins.line

    def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        lanes = unit.full(mask)
        barrier = unit.cta.cluster.barrier
        if barrier.ready(unit, lanes):
            barrier.passed(unit, lanes)
            return following
        wait = Waiting(unit, lanes, line, following, barrier)
        barrier.waiting.append(wait)
        unit.waits.append(wait)
        return -1

    return Wait(run)


def _registers(ins: Instruction, block: Block, program: Program) -> Wait:
    """`setmaxnreg`: a decrease gives registers to the CTA's pool, an increase waits until the pool has them."""
    wanted = ins.operands[0]
    assert isinstance(wanted, Immediate)
    value, following, line = wanted.value, block.next, ins.line

    def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        if not unit.cta.cluster.kernel.shape.registers:
            return following
        wait = RegisterWait(unit.full(mask), line, following, value)
        if wait.take(unit):
            return following
        unit.waits.append(wait)
        return -1

    return Wait(run)


def _tensor_memory(ins: Instruction, block: Block, program: Program) -> Wait:
    """`tcgen05.alloc` waits for room, and with `.cta_group::2` as `tcgen05.dealloc` for the peer CTA."""
    frees, group = ins.modifiers[0] == "dealloc", 2 if "cta_group::2" in ins.modifiers else 1
    target = (ins.operands[0], "b32") if frees else None
    address = (target,) if target else address_sources(ins.operands[0], "shared")
    following, line = block.next, ins.line

    def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        lanes = unit.full(mask)
        place = answer[0] if len(answer) == 2 else answer[0] + answer[1]
        for warp in range(unit.lanes // WARP):
            inside = lanes & (np.arange(unit.lanes) // WARP == warp)
            for (where, columns), chosen in uniform_groups(unit, inside, place, answer[-1]):
                if ask(unit, chosen, Request(frees, group, where, columns, line), following):
                    unit.add(following, chosen)
        return -1

    return Wait(run, (*address, (ins.operands[1], "b32")))


def _dependence(ins: Instruction, block: Block, program: Program) -> Wait:
    """`griddepcontrol.wait` waits for the kernel in front, if this one began before that ended."""
    following, line = block.next, ins.line
    return Wait(lambda unit, mask, answer: dependence.wait(unit, mask, line, following))


def _sleep(ins: Instruction, block: Block, program: Program) -> Wait:
    following = block.next

    def run(unit: Unit, mask: Mask | None, answer: Answer) -> int:
        unit.polled = True
        return following

    return Wait(run)
