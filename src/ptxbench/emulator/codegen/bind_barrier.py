"""Barriers and fences that make no lane wait: mbarrier operations, arrivals, fences, register hand-over."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxbench.emulator.async_ import mbarrier
from ptxbench.emulator.codegen.bind_masks import watched
from ptxbench.emulator.codegen.op import Op, Source, typed
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.codegen.values import address_sources, uniform_groups
from ptxbench.emulator.machine.phases import Phases, find, initialise
from ptxbench.emulator.machine.spaces import Lanes
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.ptx.ir import Address, Instruction, Register

Change = Callable[[mbarrier.Barrier], mbarrier.Barrier]


def _mbarrier(ins: Instruction, program: Program) -> Op | None:
    maker = _MBARRIER.get(ins.modifiers[0])
    return maker(ins) if maker else None


def _sum(parts: tuple[Lanes, ...]) -> Lanes:
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _init(ins: Instruction) -> Op:
    address = address_sources(ins.operands[0], "shared")

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        for (where, count), _ in uniform_groups(unit, mask, _sum(arguments[:-1]), arguments[-1]):
            made = initialise(unit.cta, where, count)
            for observer in unit.cta.cluster.observers:
                observer.initialised(made, unit)

    return Op((*address, *typed(ins.operands[1:], "b32")), run=run, machine=True)


def _inval(ins: Instruction) -> Op:
    def run(unit: Unit, mask: Mask | None, *address: Lanes) -> None:
        for (where,), _ in uniform_groups(unit, mask, _sum(address)):
            phases = find(unit.cta.cluster, unit, where, remote=False)
            unit.cta.shared.views[8][phases.offset // 8] = mbarrier.to_bits(phases.state)
            del unit.cta.mbarriers[phases.offset]
            for observer in unit.cta.cluster.observers:
                observer.generic_access(unit, unit.cta.shared, np.array([phases.offset]), mbarrier.BYTES, write=True)

    return Op(address_sources(ins.operands[0], "shared"), run=run, machine=True)


def _arrive(ins: Instruction) -> Op:
    """`arrive`, `arrive_drop`, `arrive.expect_tx`, `arrive.noComplete`: with a token or without."""
    words = ins.modifiers
    drop, expects = words[0] == "arrive_drop", "expect_tx" in words
    operands = list(ins.operands)
    target = operands.pop(0) if not isinstance(operands[0], Address) else None
    wants_token = isinstance(target, Register)
    address = address_sources(operands[0], "shared")
    values = typed(tuple(operands[1:2]), "b32")

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> Lanes | None:
        lanes = unit.full(mask)
        where = _sum(arguments[: len(address)])
        tokens = np.zeros(unit.lanes, np.uint64) if wants_token else None
        for (place, *counts), chosen in uniform_groups(unit, lanes, where, *arguments[len(address) :]):
            phases = find(unit.cta.cluster, unit, place & 0xFFFF_FFFF, remote=True)
            for observer in unit.cta.cluster.observers:
                observer.arrived(phases, unit)
            if unit.cta.cluster.races is not None:
                unit.cta.cluster.races.arrived(phases, unit, chosen)
            if expects:
                _one_by_one(phases, chosen, _then(mbarrier.arrive_expect_tx, counts[0], drop=drop), tokens)
            else:
                _arrivals(phases, chosen, counts[0] if counts else 1, drop, tokens)
        return tokens

    sources: tuple[tuple[Source, str], ...] = (*address, *values)
    return Op(sources, ((target, "b64"),) if wants_token and target is not None else (), run=run, machine=True)


def _arrivals(phases: Phases, lanes: Mask, count: int, drop: bool, tokens: Lanes | None) -> None:
    """Equal arrivals of many lanes; all at once where that is the same as one after the other."""
    total = count * int(np.count_nonzero(lanes))
    if tokens is None and 0 < total <= phases.state.pending and not phases.state.reserved:
        phases.change(mbarrier.arrive(phases.state, total, drop=drop))
        return
    _one_by_one(phases, lanes, _then(mbarrier.arrive, count, drop=drop), tokens)


def _then(function: Callable[..., mbarrier.Barrier], count: int, **how: bool) -> Change:
    return lambda state: function(state, count, **how)


def _one_by_one(phases: Phases, lanes: Mask, change: Change, tokens: Lanes | None) -> None:
    for lane in np.flatnonzero(lanes).tolist():
        if tokens is not None:
            tokens[lane] = mbarrier.token(phases.state)
        phases.change(change(phases.state))


def _tx(ins: Instruction) -> Op:
    """`expect_tx` and `complete_tx`."""
    function = mbarrier.expect_tx if ins.modifiers[0] == "expect_tx" else mbarrier.complete_tx
    address = address_sources(ins.operands[0], "shared")

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        for (place, count), lanes in uniform_groups(unit, mask, _sum(arguments[:-1]), arguments[-1]):
            phases = find(unit.cta.cluster, unit, place & 0xFFFF_FFFF, remote=True)
            _one_by_one(phases, lanes, _then(function, count), None)

    return Op((*address, *typed(ins.operands[1:], "b32")), run=run, machine=True)


def _pending_count(ins: Instruction) -> Op:
    """Arrivals that were missing before the arrive that made the token."""
    text = "(((1 << 20) - (({0} >> 43) & 1048575)) & 1048575).astype('u4')"
    return Op(typed(ins.operands[1:], "b64"), typed(ins.operands[:1], "b32"), expression=text)


_MBARRIER: dict[str, Callable[[Instruction], Op]] = {
    **{"init": _init, "inval": _inval, "arrive": _arrive, "arrive_drop": _arrive},
    **{"expect_tx": _tx, "complete_tx": _tx, "pending_count": _pending_count},
}


def _bar(ins: Instruction, program: Program) -> Op | None:
    """`bar.arrive`, `bar.warp.sync`, `barrier.cluster.arrive`; the waiting forms end their blocks."""
    words = ins.modifiers
    if "warp" in words:
        return watched(ins, Op(typed(ins.operands, "b32"), expression="None"))
    if "cluster" in words:
        return Op(run=lambda unit, mask: unit.cta.cluster.barrier.arrive(unit, unit.full(mask)), machine=True)
    if "arrive" not in words:
        return None

    def run(unit: Unit, mask: Mask | None, numbers: Lanes, counts: Lanes) -> None:
        for (number, count), lanes in uniform_groups(unit, mask, numbers, counts):
            unit.cta.named_barrier(number).arrive(unit, lanes, count, None)

    return Op(typed(ins.operands, "b32"), run=run, machine=True)


def _fence(ins: Instruction, program: Program) -> Op:
    """Fences order what this machine keeps in order; the checks are told of them."""
    words = ins.modifiers

    def run(unit: Unit, mask: Mask | None, *_: object) -> None:
        for observer in unit.cta.cluster.observers:
            observer.fence(unit, words, mask)

    return Op(run=run, machine=True)


def _nothing(ins: Instruction, program: Program) -> Op:
    return Op(expression="None")


BINDERS: dict[str, Callable[[Instruction, Program], Op | None]] = {
    **{"mbarrier": _mbarrier, "bar": _bar, "barrier": _bar, "fence": _fence, "membar": _fence},
    **{"griddepcontrol": _nothing},
}
