"""Asynchronous copies bound to the machine: cp.async, bulk and tensor copies, reductions, and their groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxbench.emulator.async_ import mbarrier
from ptxbench.emulator.codegen import bind_bulk
from ptxbench.emulator.codegen.op import Op, Source, bits_of, typed
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.codegen.values import address_sources, uniform_groups
from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.machine import access
from ptxbench.emulator.machine.phases import Phases, find
from ptxbench.emulator.machine.spaces import RANK_SHIFT, Lanes, Region
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.machine.work import Copies, Span, Work, in_cluster
from ptxbench.emulator.ptx.ir import Immediate, Instruction, Operand, Register

_WORDS = {4: (4, 1), 8: (8, 1), 16: (8, 2)}


def _copy(ins: Instruction, program: Program) -> Op | None:
    words = ins.modifiers
    if words[0] == "reduce" or "bulk" in words:
        return bind_bulk.bulk(ins)
    if words[:1] != ("async",):
        return None
    if words[1] == "mbarrier":
        return _arrive_later(ins)
    if words[1] == "commit_group":
        return Op(run=lambda unit, mask: Copies.of(unit).commit_plain(unit.full(mask)), machine=True)
    if words[1] == "wait_all":
        return Op(run=lambda unit, mask: Copies.of(unit).wait_plain(unit.full(mask), None), machine=True)
    if words[1] == "wait_group":
        newest = _literal(ins.operands[0])
        return Op(run=lambda unit, mask: Copies.of(unit).wait_plain(unit.full(mask), newest), machine=True)
    return _plain(ins)


def _literal(operand: Operand) -> int:
    assert isinstance(operand, Immediate)
    return operand.value


def _plain(ins: Instruction) -> Op:
    """`cp.async.ca/cg.shared.global [dst], [src], bytes{, source bytes | ignore}`."""
    size = _literal(ins.operands[2])
    if size not in _WORDS:
        raise Unsupported(ins.name, ins.line, f"copies of {size} bytes")
    rest = ins.operands[3:]
    policy = "L2::cache_hint" in ins.modifiers
    extra = rest[: len(rest) - policy]
    ignores = bool(extra) and isinstance(extra[0], Register) and extra[0].type == "pred"
    target, source = address_sources(ins.operands[0], "shared"), address_sources(ins.operands[1], "global")
    split, line = len(target), ins.line
    shape = _WORDS[size]

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        there = _sum(arguments[:split])
        here = _sum(arguments[split : split + len(source)])
        limit = arguments[split + len(source)] if extra else None
        if limit is not None:
            limit = np.where(limit, 0, size) if ignores else limit

        def move(lanes: Mask) -> None:
            waiting, unit.line = unit.line, line  # what lands is the store of this instruction
            _move_plain(unit, lanes, (here, there), shape, limit)
            unit.line = waiting

        lanes = unit.full(mask)
        _check_plain(unit, lanes, (here, there), shape, limit)
        Copies.of(unit).add_plain(lanes, move, line, size)

    sources: tuple[tuple[Source, str], ...] = (*target, *source, *typed(extra, "pred" if ignores else "b32"))
    return Op(sources, run=run, machine=True)


def _sum(parts: tuple[Lanes, ...]) -> Lanes:
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _check_plain(unit: Unit, lanes: Mask, ends: tuple[Any, Any], shape: tuple[int, int], limit: Lanes | None) -> None:
    """Refuse bad addresses where the instruction is, not where the bytes land."""
    size = shape[0] * shape[1]
    if lanes.any():
        access.shared_regions(unit, ends[1][lanes], size)
    read = lanes if limit is None else lanes & (limit > 0)
    if read.any() and limit is None:
        access.global_regions(unit, ends[0][read], size)


def _move_plain(unit: Unit, lanes: Mask, ends: tuple[Any, Any], shape: tuple[int, int], limit: Lanes | None) -> None:
    """Bytes beyond the limit (the source size) are zeros, and are not read."""
    source, target = ends
    size = shape[0] * shape[1]
    if limit is None or (limit[lanes] >= size).all():
        parts = access.load(unit, "global", source, lanes, shape)
    else:
        parts = [np.zeros(unit.lanes, f"u{shape[0]}") for _ in range(shape[1])]
        for count in np.unique(limit[lanes]).tolist():
            chosen = lanes & (limit == count)
            if count > 0:
                _partial(unit, chosen, source, min(count, size), parts)
    access.store(unit, "shared", target, lanes, shape, parts)


def _partial(unit: Unit, lanes: Mask, source: Lanes, count: int, parts: list[Any]) -> None:
    """Read the first `count` bytes of each lane into `parts`."""
    places = np.flatnonzero(lanes)
    size = parts[0].dtype.itemsize * len(parts)
    data = np.zeros((places.size, size), np.uint8)
    for row, lane in enumerate(places.tolist()):
        data[row, :count] = unit.cta.cluster.kernel.memory.view(int(source[lane]), count)
    words = data.view(parts[0].dtype)
    for place, part in enumerate(parts):
        part[places] = words[:, place]


def _arrive_later(ins: Instruction) -> Op:
    """`cp.async.mbarrier.arrive`: an arrival once the lane's earlier copies have landed."""
    keeps_count, line = "noinc" not in ins.modifiers, ins.line

    def run(unit: Unit, mask: Mask | None, *address: Lanes) -> None:
        copies = Copies.of(unit)
        for (where,), lanes in uniform_groups(unit, mask, _sum(address)):
            phases = find(unit.cta.cluster, unit, where & 0xFFFF_FFFF, remote=False)
            count = int(np.count_nonzero(lanes))
            if keeps_count:
                for _ in range(count):
                    phases.change(mbarrier.copies_arrive_later(phases.state))

            def move(lanes: Mask = lanes, phases: Phases = phases, count: int = count) -> None:
                copies.wait_plain(lanes, None)
                for observer in unit.cta.cluster.observers:
                    observer.arrived(phases, unit)
                if unit.cta.cluster.races is not None:
                    unit.cta.cluster.races.arrived(phases, unit, lanes, copies=True)
                for _ in range(count):
                    after = mbarrier.complete_tx(phases.state, 1) if keeps_count else mbarrier.arrive(phases.state)
                    phases.change(after)

            Work(unit, line, move, barriers=((phases, 0),), kind="cp.async arrive").issue()

    return Op(address_sources(ins.operands[0], "shared"), run=run, machine=True)


def store_async(ins: Instruction, program: Program) -> Op | None:
    """`st.async`: a store to a CTA of the cluster that tells an mbarrier there."""
    if ins.modifiers[:1] != ("async",) or "mbarrier::complete_tx::bytes" not in ins.modifiers:
        return None
    type_ = ins.modifiers[-1]
    width = bits_of(type_) // 8
    target, barrier = address_sources(ins.operands[0], "shared"), address_sources(ins.operands[2], "shared")
    values = typed(ins.operands[1:2], type_)
    line = ins.line

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        there = _sum(arguments[: len(target)])
        data = arguments[len(target) : len(target) + len(values)]
        signal = _sum(arguments[len(target) + len(values) :])
        in_cluster(unit)
        cluster, size = unit.cta.cluster, width * len(values)
        for lane in np.flatnonzero(unit.full(mask)).tolist():
            phases = find(cluster, unit, int(signal[lane]), remote=True)
            place = np.asarray(there[lane : lane + 1])
            [(region, offset, _)] = access.shared_regions(unit, place, size)
            target_cta = access.peer_of(unit.cta, int(there[lane]) >> RANK_SHIFT)
            spans = (Span(target_cta, int(offset[0]), size),)
            raw = b"".join(value[lane].tobytes() for value in data)

            def move(region: Region = region, start: int = int(offset[0]), raw: bytes = raw) -> None:
                region.bytes[start : start + len(raw)] = np.frombuffer(raw, np.uint8)

            told = ((phases, size),)
            Work(unit, line, move, writes=spans, barriers=told, kind="st.async", size=size, lane=lane).issue()

    return Op((*target, *values, *barrier), run=run, machine=True)


BINDERS: dict[str, Callable[[Instruction, Program], Op | None]] = {"cp": _copy}
