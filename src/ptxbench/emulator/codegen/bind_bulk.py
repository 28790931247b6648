"""Bulk and tensor copies (TMA): who issues them, what they read and write, whom they tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ptxbench.emulator.async_ import copies as boxes_moved
from ptxbench.emulator.async_.boxes import Box, gather_box, im2col_box, tile_box, wide_box
from ptxbench.emulator.async_.bulk import bulk_copy, bulk_size
from ptxbench.emulator.async_.reduce import combine
from ptxbench.emulator.async_.tensormap import from_bytes
from ptxbench.emulator.codegen.op import Op, Source, typed
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.access import peer_of
from ptxbench.emulator.machine.cta import Cta
from ptxbench.emulator.machine.phases import find
from ptxbench.emulator.machine.spaces import OFFSET_MASK, RANK_SHIFT, Lanes
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.machine.work import Copies, Span, Work, in_cluster
from ptxbench.emulator.ptx.ir import Immediate, Instruction, TensorAddress

_OPERATIONS = frozenset(("add", "min", "max", "inc", "dec", "and", "or", "xor"))
_LOW = 0xFFFF_FFFF
_MODES = ("im2col", "im2col_no_offs", "im2col::w", "im2col::w::128", "tile::gather4", "tile::scatter4")
_STORE = "tile store"
Issue = Callable[[Unit, int, list[int]], None]


def bulk(ins: Instruction) -> Op | None:
    """Any `cp.async.bulk` or `cp.reduce.async.bulk`."""
    words = ins.modifiers
    if "prefetch" in words:
        return Op(expression="None")
    if "commit_group" in words:
        return Op(run=lambda unit, mask: Copies.of(unit).commit_bulk(unit.full(mask)), machine=True)
    if "wait_group" in words:
        newest = ins.operands[0]
        assert isinstance(newest, Immediate)
        count, read = newest.value, "read" in words
        return Op(run=lambda unit, mask: Copies.of(unit).wait_bulk(unit.full(mask), count, read), machine=True)
    if "tensor" in words:
        return _tensor(ins)
    return _linear(ins)


def _bound(sources: tuple[tuple[tuple[Source, str], ...], ...], issue: Issue) -> Op:
    """An operation that calls `issue` for each lane with the sums of the groups of sources."""
    sizes = [len(group) for group in sources]

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        for lane in unit.active(mask).tolist():
            values, place = [], 0
            for size in sizes:
                values.append(sum(int(part[lane]) for part in arguments[place : place + size]))
                place += size
            issue(unit, lane, values)

    return Op(tuple(each for group in sources for each in group), run=run, machine=True)


def _operation(ins: Instruction) -> str:
    return next((word for word in ins.modifiers if word in _OPERATIONS), "") if ins.modifiers[0] == "reduce" else ""


def _targets(unit: Unit, address: int, mask: int | None) -> list[tuple[Cta, int]]:
    """The CTAs that a load writes, and the offset there; a multicast mask has a bit per rank."""
    offset = address & OFFSET_MASK
    if mask is None:
        return [(peer_of(unit.cta, (address & _LOW) >> RANK_SHIFT), offset)]
    ranks = [rank for rank in range(16) if mask >> rank & 1]
    return [(peer_of(unit.cta, rank), offset) for rank in ranks]


def _tensor(ins: Instruction) -> Op:
    place = next(i for i, each in enumerate(ins.operands) if isinstance(each, TensorAddress))
    tensor = ins.operands[place]
    assert isinstance(tensor, TensorAddress)
    coordinates = typed((tensor.coordinates,), "b32")
    offsets = typed((tensor.offsets,), "b16") if tensor.offsets is not None else ()
    where = (address_sources(tensor.map, "global"), *((each,) for each in (*coordinates, *offsets)))
    mode = next((word for word in ins.modifiers if word in _MODES), "tile")
    count = len(coordinates)
    if place == 0:
        return _tensor_store(ins, where, mode, count)
    barrier = address_sources(ins.operands[2], "shared")
    multicast = "multicast::cluster" in ins.modifiers
    rest = typed(ins.operands[3:4], "b16") if multicast else ()
    sources = (address_sources(ins.operands[0], "shared"), barrier, *((each,) for each in rest), *where)
    line, paired = ins.line, "cta_group::2" in ins.modifiers

    def issue(unit: Unit, lane: int, values: list[int]) -> None:
        address, signal, *values = values
        mask = values.pop(0) if multicast else None
        box = _box(unit, values, mode, count)
        targets = _targets(unit, address, mask)
        cluster = unit.cta.cluster
        told = [
            find(cluster, unit, _told(cta, signal & _LOW, mask is not None, paired), remote=True) for cta, _ in targets
        ]
        memory = cluster.kernel.memory.view
        if address % 128:
            raise Fault(
                "cudaErrorMisalignedAddress", f"tensor copy: shared address {address:#x} is not a multiple of 128"
            )

        def move() -> None:
            for cta, offset in targets:
                boxes_moved.load_box(box, memory, cta.shared.bytes, offset)

        spans = tuple(Span(cta, offset, box.shared_bytes, box.map.span) for cta, offset in targets)
        for span in spans:
            _inside(span)
        barriers = tuple((phases, box.bytes) for phases in told)
        work = Work(unit, line, move, writes=spans, barriers=barriers, kind="TMA load", lane=lane, outside=box)
        work.size = box.bytes * len(targets)
        work.issue()

    return _bound(sources, issue)


def _told(cta: Cta, signal: int, multicast: bool, paired: bool) -> int:
    """The address of the mbarrier that a destination's bytes are told to.

    With `.cta_group::2` it may lie in the peer of the destination's CTA; a multicast then tells, in each pair, the CTA
    of the parity of the one that the address names.
    """
    rank = signal >> RANK_SHIFT
    if paired and not multicast and rank ^ cta.rank > 1:
        raise Fault(
            "cudaErrorIllegalInstruction", f"a copy of .cta_group::2 into CTA rank {cta.rank} tells rank {rank}"
        )
    if multicast:
        rank = cta.rank & ~1 | rank & 1 if paired else cta.rank
    return rank << RANK_SHIFT | signal & OFFSET_MASK


def _inside(span: Span) -> None:
    if span.start + span.size > span.cta.shared.limit:
        raise Fault(
            "cudaErrorIllegalAddress", f"copy: shared+{span.start:#x} ({span.size} bytes) is beyond the shared memory"
        )


def _box(unit: Unit, values: list[int], mode: str, count: int) -> Box:
    """The box of a tensor copy: map address, coordinates, im2col offsets."""
    record = unit.cta.cluster.kernel.memory.read(values[0], 128)
    tensor_map = from_bytes(record)
    coordinates = tuple(value - (value >> 31 << 32) for value in values[1 : 1 + count])
    offsets = tuple(values[1 + count :])
    rank = 2 if mode in ("tile::gather4", "tile::scatter4") else count
    if tensor_map.rank != rank:
        raise Fault("cudaErrorIllegalInstruction", f"a {rank}-d copy through a map of {tensor_map.rank} dimensions")
    if rank < count:
        return gather_box(tensor_map, coordinates[0], coordinates[1:], store=mode == "tile::scatter4")
    if mode in ("im2col::w", "im2col::w::128"):
        halo, offset = offsets
        return wide_box(tensor_map, coordinates, halo, offset, blocks=mode == "im2col::w::128")
    if mode in ("im2col", "im2col_no_offs"):
        return im2col_box(tensor_map, coordinates, offsets, store=mode == "im2col_no_offs")
    return tile_box(tensor_map, coordinates, store=mode == _STORE)


def _tensor_store(ins: Instruction, where: tuple[Any, ...], mode: str, count: int) -> Op:
    sources = (address_sources(ins.operands[1], "shared"), *where)
    line, operation = ins.line, _operation(ins)
    mode = _STORE if mode == "tile" else mode

    def issue(unit: Unit, lane: int, values: list[int]) -> None:
        address, *values = values
        if address % 128:
            raise Fault(
                "cudaErrorMisalignedAddress", f"tensor copy: shared address {address:#x} is not a multiple of 128"
            )
        box = _box(unit, values, mode, count)
        [(cta, offset)] = _targets(unit, address, None)
        memory = unit.cta.cluster.kernel.memory.view
        start = offset & ~1023
        span = Span(cta, offset, box.shared_bytes, box.map.span, partial=not box.whole)
        _inside(span)

        def fetch() -> Callable[[], None]:
            image = cta.shared.bytes[start : start + (offset - start + box.shared_bytes + 1023 & ~1023)].copy()
            if operation:
                return lambda: boxes_moved.reduce_box(box, memory, image, offset - start, operation)
            return lambda: boxes_moved.store_box(box, memory, image, offset - start)

        kind = "TMA reduction" if operation else "TMA store"
        work = Work(unit, line, reads=(span,), fetch=fetch, kind=kind, size=box.bytes, lane=lane, outside=box)
        Copies.of(unit).add_bulk(lane, work)
        work.issue()

    return _bound(sources, issue)


def _linear(ins: Instruction) -> Op | None:
    """One-dimensional copies: by what stands first and second, shared or global."""
    words = [word.split("::")[0] for word in ins.modifiers if word.split("::")[0] in ("shared", "global")]
    if len(words) < 2:
        return None
    if words[0] == "global":
        return _linear_store(ins)
    from_shared = words[1] == "shared"
    source = address_sources(ins.operands[1], "shared" if from_shared else "global")
    multicast = "multicast::cluster" in ins.modifiers
    rest = typed(ins.operands[4:5], "b16") if multicast else ()
    size = typed(ins.operands[2:3], "b32")
    barrier = address_sources(ins.operands[3], "shared")
    sources = (address_sources(ins.operands[0], "shared"), source, size, barrier, *((each,) for each in rest))
    line, operation, type_ = ins.line, _operation(ins), ins.modifiers[-1]

    def issue(unit: Unit, lane: int, values: list[int]) -> None:
        address, origin, amount, signal, *mask = values
        count = bulk_size(amount, address, origin)
        targets = _targets(unit, address, mask[0] if mask else None)
        cluster = unit.cta.cluster
        told = [
            find(
                cluster,
                unit,
                (cta.rank << RANK_SHIFT | signal & OFFSET_MASK) if mask else signal & _LOW,
                remote=True,
            )
            for cta, _ in targets
        ]
        if from_shared:
            in_cluster(unit)
            [(home, start)] = _targets(unit, origin, None)
            data = home.shared.bytes[start : start + count]
            reads: tuple[Span, ...] = (Span(home, start, count),)
            _inside(reads[0])
        else:
            data, reads = cluster.kernel.memory.view(origin, count), ()
        spans = tuple(Span(cta, offset, count) for cta, offset in targets)
        for span in spans:
            _inside(span)

        def move() -> None:
            for cta, offset in targets:
                place = cta.shared.bytes[offset : offset + count]
                place[:] = combine(operation, type_, place, data) if operation else data

        barriers = tuple((phases, count) for phases in told)
        outside = None if from_shared else (origin, count)
        work = Work(unit, line, move, spans, reads, barriers, kind="bulk copy", lane=lane, outside=outside)
        work.size = count * len(targets)
        work.issue()

    return _bound(sources, issue)


def _linear_store(ins: Instruction) -> Op:
    sources = (
        address_sources(ins.operands[0], "global"),
        address_sources(ins.operands[1], "shared"),
        typed(ins.operands[2:3], "b32"),
        *((each,) for each in typed(ins.operands[-1:], "b16") if "cp_mask" in ins.modifiers),
    )
    line, operation, type_ = ins.line, _operation(ins), ins.modifiers[-1]

    def issue(unit: Unit, lane: int, values: list[int]) -> None:
        address, origin, amount, *chosen = values
        count = bulk_size(amount, address, origin)
        [(cta, start)] = _targets(unit, origin, None)
        target = unit.cta.cluster.kernel.memory.view(address, count)
        span = Span(cta, start, count)
        _inside(span)

        def fetch() -> Callable[[], None]:
            data = cta.shared.bytes[start : start + count].copy()
            if operation:
                return lambda: bulk_copy(target, combine(operation, type_, target, data))
            return lambda: bulk_copy(target, data, *chosen)

        kind, there = "bulk reduction" if operation else "bulk store", None if chosen else (address, count)
        if chosen and unit.cta.cluster.races is not None:
            unit.cta.cluster.races.unknown("which bytes a bulk store with .cp_mask writes is not watched", line)
        work = Work(unit, line, reads=(span,), fetch=fetch, kind=kind, size=count, lane=lane, outside=there)
        Copies.of(unit).add_bulk(lane, work)
        work.issue()

    return _bound(sources, issue)
