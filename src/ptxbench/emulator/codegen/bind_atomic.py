"""`atom` and `red` bound to the machine, scalar, packed and vector forms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxbench.emulator.codegen.bind_memory import space_of
from ptxbench.emulator.codegen.op import Op, bits_of, items, typed
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.machine import access
from ptxbench.emulator.machine.atomics import atomic, update_of
from ptxbench.emulator.machine.phases import find
from ptxbench.emulator.machine.spaces import RANK_SHIFT, Lanes, Region, split_generic
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.machine.work import Span, Work, in_cluster
from ptxbench.emulator.ptx.ir import Instruction, Operand

_OPERATIONS = ("add", "min", "max", "and", "or", "xor", "inc", "dec", "exch", "cas")


def _atomic(ins: Instruction, program: Program) -> Op | None:
    words = ins.modifiers
    if words[:1] == ("async",):
        return _reduce_async(ins)
    operation = next((word for word in words if word in _OPERATIONS), "")
    type_, space = words[-1], space_of(ins)
    if bits_of(type_) == 128:
        return _wide(ins, operation, space)
    if not operation:
        return None
    operands = list(ins.operands)
    target = items(operands.pop(0)) if ins.opcode == "atom" else ()
    address = address_sources(operands.pop(0), space)
    count = len(items(operands[0]))
    arguments: list[Operand] = operands[: 2 if operation == "cas" else 1]
    element = type_.removesuffix("x2")
    packed = type_.endswith("x2")
    if element[0] == "b" and element[1:].isdecimal() and operation in ("add", "min", "max"):
        return None
    split = len(address)

    def run(unit: Unit, mask: Mask | None, *given: Lanes) -> Lanes | list[Lanes]:
        addresses = given[0] if split == 1 else given[0] + given[1]
        update = update_of(operation, element, flush=_flushes(unit, space, addresses, mask))
        values = [list(given[split + place :: count]) for place in range(count)]
        if packed:
            plain = update
            update = lambda old, new, rest: plain(old.view("u2"), new.view("u2"), rest).view(old.dtype)  # noqa: E731
        old = atomic(unit, space, addresses, mask, update, values)
        unit.polled = unit.polled or operation == "cas"
        return old if len(old) > 1 else old[0]

    sources = (*address, *typed(tuple(arguments), type_))
    results = tuple((each, type_) for each in target)
    if not results:
        return Op(sources, run=run, machine=True)
    return Op(sources, results, run=run, machine=True)


def _wide(ins: Instruction, operation: str, space: str) -> Op:
    """`atom.exch.b128` and `atom.cas.b128`, lane after lane."""
    address = address_sources(ins.operands[1], space)
    split = len(address)

    def run(unit: Unit, mask: Mask | None, *given: Lanes) -> Lanes:
        addresses = given[0] if split == 1 else given[0] + given[1]
        made = np.zeros((unit.lanes, 2), np.uint64)
        for lane in unit.active(mask).tolist():
            chosen = np.arange(unit.lanes) == lane
            low, high = access.load(unit, space, addresses, chosen, (8, 2))
            made[lane] = low[lane], high[lane]
            if operation == "exch" or (made[lane] == given[split][lane]).all():
                new = given[-1]
                access.store(unit, space, addresses, chosen, (8, 2), [new[:, 0], new[:, 1]])
        return made

    sources = (*address, *typed(ins.operands[2 : 4 if operation == "cas" else 3], "b128"))
    return Op(sources, typed(ins.operands[:1], "b128"), run=run, machine=True)


def _flushes(unit: Unit, space: str, addresses: Lanes, mask: Mask | None) -> bool:
    """`add.f32` flushes subnormals in global memory only."""
    if space != "generic":
        return space == "global"
    lanes = unit.full(mask)
    return not lanes.any() or split_generic(addresses[lanes][:1]) == "global"


def _reduce_async(ins: Instruction) -> Op | None:
    """`red.async`: a reduction in a neighbour's shared memory that tells an mbarrier there."""
    operation = next((word for word in ins.modifiers if word in _OPERATIONS), "")
    type_ = ins.modifiers[-1]
    target, barrier = address_sources(ins.operands[0], "shared"), address_sources(ins.operands[2], "shared")
    value = typed(ins.operands[1:2], type_)
    line, update, width = ins.line, update_of(operation, type_, flush=False), bits_of(type_) // 8

    def run(unit: Unit, mask: Mask | None, *given: Lanes) -> None:
        there = given[0] if len(target) == 1 else given[0] + given[1]
        data = given[len(target)]
        rest = given[len(target) + 1 :]
        signal = rest[0] if len(rest) == 1 else rest[0] + rest[1]
        in_cluster(unit)
        for lane in np.flatnonzero(unit.full(mask)).tolist():
            phases = find(unit.cta.cluster, unit, int(signal[lane]), remote=True)
            [(region, offset, _)] = access.shared_regions(unit, np.asarray(there[lane : lane + 1]), width)
            target_cta = access.peer_of(unit.cta, int(there[lane]) >> RANK_SHIFT)
            word = slice(int(offset[0]), int(offset[0]) + width)
            spans = (Span(target_cta, word.start, width),)

            def move(region: Region = region, word: slice = word, new: Lanes = data[lane : lane + 1]) -> None:
                old = region.bytes[word].view(new.dtype)
                old[:] = update(old, new, None)

            told = ((phases, width),)
            Work(unit, line, move, writes=spans, barriers=told, kind="red.async", size=width, lane=lane).issue()

    return Op((*target, *value, *barrier), run=run, machine=True)


BINDERS: dict[str, Callable[[Instruction, Program], Op | None]] = {"atom": _atomic, "red": _atomic}
