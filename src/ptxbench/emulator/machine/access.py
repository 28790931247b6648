"""Loads and stores of lanes in every space, one instruction at a time; no atomics, no asynchronous copies."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ptxbench.emulator.codegen.lanes import core
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.cta import Cta
from ptxbench.emulator.machine.memory import BASE
from ptxbench.emulator.machine.spaces import (
    DTYPES,
    LOCAL_WINDOW,
    OFFSET_MASK,
    RANK_SHIFT,
    SHARED_WINDOW,
    Lanes,
    Region,
    Scattered,
    complain,
    offsets_fit,
    read_vector,
    split_generic,
    write_vector,
)
from ptxbench.emulator.machine.unit import Mask, Unit

Move = Callable[..., list[Lanes] | None]
"""`Core.gather`, or `Core.scatter` of known values."""
_U32 = np.dtype(np.uint32)
_OFFSET = np.uint32(OFFSET_MASK)

_MOST_LOCAL = 512 << 10
"""Bytes of local memory that a thread can have (CUDA programming guide, technical specifications)."""


def load(unit: Unit, space: str, addresses: Lanes, mask: Mask | None, shape: tuple[int, int]) -> list[Lanes]:
    """What lanes read; zeros for lanes outside the mask.

    Args:
        unit: The lanes.
        space: `global`, `shared`, `local` or `generic`.
        addresses: In that space, over all lanes.
        mask: Lanes that read.
        shape: Bytes of an element, elements per lane.

    Raises:
        Fault: An address is misaligned or nothing is there.
    """
    quick = _quickly(unit, space, addresses, mask, shape, None)
    if quick is not None:
        return quick
    if mask is None:
        return _load(unit, space, addresses, shape, None)
    chosen = unit.active(mask)
    width, count = shape
    made = [np.zeros(unit.lanes, DTYPES[width]) for _ in range(count)]
    if chosen.size:
        parts = _load(unit, space, addresses[chosen], shape, chosen)
        for whole, part in zip(made, parts, strict=True):
            whole[chosen] = part
    return made


def store(
    unit: Unit, space: str, addresses: Lanes, mask: Mask | None, shape: tuple[int, int], values: list[Lanes]
) -> None:
    """Lanes write; of lanes that write one place the highest wins. Arguments and errors as of `load`."""
    chosen = None if mask is None else unit.active(mask)
    if chosen is not None and not chosen.size:
        return
    unit.cta.cluster.changed += 1
    if _quickly(unit, space, addresses, mask, shape, values) is not None:
        return
    if chosen is not None:
        addresses = addresses[chosen]
        values = [value[chosen] for value in values]
    for region, offsets, places in _regions(unit, space, addresses, shape, chosen, write=True):
        part = values if places is None else [value[places] for value in values]
        write_vector(region, offsets, shape[0], part)


def _quickly(
    unit: Unit, space: str, addresses: Lanes, mask: Mask | None, shape: tuple[int, int], values: list[Lanes] | None
) -> list[Lanes] | None:
    """A load, or with `values` a store, by the compiled core; None if there is none, or something is unusual."""
    native = core()
    if native is None or space == "local":
        return None
    move = native.gather if values is None else partial(_scattered, native.scatter, values)
    if space != "shared":
        made = _quickly_global(unit, addresses, mask, shape, move)
        if made is not None or space == "global":
            return made
    cta = unit.cta
    origin = cta.rank << RANK_SHIFT | (SHARED_WINDOW if space == "generic" else 0)
    if cta.cluster.observers:
        offsets = (addresses if mask is None else addresses[unit.active(mask)]) - addresses.dtype.type(origin)
        size = shape[0] * shape[1]
        if not offsets.size or not offsets_fit(offsets, cta.shared.limit, size):
            return None
        for observer in cta.cluster.observers:
            observer.generic_access(unit, cta.shared, offsets.astype(_U32, copy=False), size, values is not None)
    return move(cta.shared.bytes, 0, cta.shared.limit, origin, addresses, mask, *shape)


def _quickly_global(
    unit: Unit, addresses: Lanes, mask: Mask | None, shape: tuple[int, int], move: Move
) -> list[Lanes] | None:
    """A move within the allocation that was used last, or else that of the first active lane."""
    if addresses.dtype.itemsize != 8:
        return None
    space = unit.cta.cluster.kernel.global_space
    for _ in range(2):
        there = space.latest
        low, high = there.start - BASE, there.end - BASE
        made = move(space.memory.bytes, low, high, BASE, addresses, mask, *shape)
        if made is not None or space.bounds(addresses, mask) in (None, there):
            return made
    return None


def _scattered(scatter: Callable[..., bool], values: list[Lanes], *arguments: object) -> list[Lanes] | None:
    return values if scatter(*arguments, values) else None


def read(unit: Unit, space: str, addresses: Lanes, width: int) -> Lanes:
    """Elements of `width` bytes at any number of addresses, for instructions of whole warps."""
    return _load(unit, space, addresses, (width, 1), None)[0]


def write(unit: Unit, space: str, addresses: Lanes, width: int, values: Lanes) -> None:
    """The opposite of `read`."""
    unit.cta.cluster.changed += 1
    for region, offsets, places in _regions(unit, space, addresses, (width, 1), None, write=True):
        write_vector(region, offsets, width, [values if places is None else values[places]])


def _load(unit: Unit, space: str, addresses: Lanes, shape: tuple[int, int], chosen: Lanes | None) -> list[Lanes]:
    found = _regions(unit, space, addresses, shape, chosen, write=False)
    if len(found) == 1 and found[0][2] is None:
        return read_vector(found[0][0], found[0][1], *shape)
    made = [np.zeros(addresses.size, DTYPES[shape[0]]) for _ in range(shape[1])]
    for region, offsets, places in found:
        for whole, part in zip(made, read_vector(region, offsets, *shape), strict=True):
            whole[places] = part
    return made


Found = list[tuple[Region, Lanes, Any]]


def locate(unit: Unit, space: str, addresses: Lanes, shape: tuple[int, int]) -> Found:
    """Where accesses of all these addresses go: region, offsets, and which addresses (None: all)."""
    return _regions(unit, space, addresses, shape, None, write=False)


def _regions(
    unit: Unit, space: str, addresses: Lanes, shape: tuple[int, int], chosen: Lanes | None, *, write: bool
) -> Found:
    """The regions that the lanes touch: region, offsets, and which of the lanes (None: all)."""
    size = shape[0] * shape[1]
    if space == "global":
        return global_regions(unit, addresses, size)
    if space == "shared":
        found = shared_regions(unit, addresses, size)
        observers = unit.cta.cluster.observers
        if observers:
            for region, offsets, _ in found:
                for observer in observers:
                    observer.generic_access(unit, region, offsets, size, write)
        return found
    if space == "local":
        return _local(unit, addresses, size, chosen)
    return _generic(unit, addresses, shape, chosen, write)


def global_regions(unit: Unit, addresses: Lanes, size: int) -> Found:
    """Where lanes find global memory.

    Raises:
        Fault: An address is misaligned or not allocated.
    """
    space = unit.cta.cluster.kernel.global_space
    if addresses.dtype != np.uint64:
        addresses = addresses.astype(np.uint64)
    try:
        offsets = space.locate(addresses, size)
    except Scattered:
        made: Found = []
        for place in range(addresses.size):
            one = space.locate(addresses[place : place + 1], size)
            made.append((space.region, one, slice(place, place + 1)))
        return made
    return [(space.region, offsets, None)]


def shared_regions(unit: Unit, addresses: Lanes, size: int) -> Found:
    """Where lanes find shared memory, their own CTA's or a neighbour's.

    Raises:
        Fault: An address is misaligned, out of bounds, or in a CTA that is not there.
    """
    cta = unit.cta
    if addresses.dtype != _U32:
        addresses = addresses.astype(_U32)
    offsets = addresses - cta.base if cta.rank else addresses
    if offsets_fit(offsets, cta.shared.limit, size):
        return [(cta.shared, offsets, None)]
    ranks = addresses >> np.uint32(RANK_SHIFT)
    if (ranks == cta.rank).all():
        raise complain(offsets, cta.shared.limit, size, lambda lane: f"shared+{int(offsets[lane]):#x}")
    made: Found = []
    for rank in np.unique(ranks).tolist():
        places = np.flatnonzero(ranks == rank)
        peer = peer_of(cta, rank)
        local = addresses[places] & _OFFSET
        if not offsets_fit(local, peer.shared.limit, size):
            where = [f"shared+{offset:#x} of CTA rank {rank}" for offset in local.tolist()]
            raise complain(local, peer.shared.limit, size, where.__getitem__)
        made.append((peer.shared, local, places))
    return made


def peer_of(cta: Cta, rank: int) -> Cta:
    """The CTA of that rank in the cluster.

    Raises:
        Fault: There is none, or it has exited.
    """
    ctas = cta.cluster.ctas
    if rank >= len(ctas):
        raise Fault("cudaErrorLaunchFailure", f"rank {rank} in a cluster of {len(ctas)} CTAs")
    if rank != cta.rank and ctas[rank].done:
        raise Fault("cudaErrorLaunchFailure", f"CTA rank {rank} has exited, its shared memory is gone")
    return ctas[rank]


def _local(unit: Unit, addresses: Lanes, size: int, chosen: Lanes | None) -> Found:
    pitch = (unit.cta.cluster.kernel.program.local_bytes + 15) // 16 * 16
    if pitch > _MOST_LOCAL:
        raise Fault("cudaErrorMemoryAllocation", f"{pitch} bytes of local memory, a thread can have {_MOST_LOCAL}")
    if unit.local is None:
        unit.local = Region(np.zeros(pitch * unit.lanes, np.uint8))
    offsets = addresses.astype(np.uint64) & np.uint64(0xFFFF_FFFF)
    if not offsets_fit(offsets, pitch, size):
        raise complain(offsets, pitch, size, lambda lane: f"local+{int(offsets[lane]):#x}")
    lanes = np.arange(unit.lanes, dtype=np.uint64) if chosen is None else chosen.astype(np.uint64)
    return [(unit.local, offsets + lanes * np.uint64(pitch), None)]


def _generic(unit: Unit, addresses: Lanes, shape: tuple[int, int], chosen: Lanes | None, write: bool) -> Found:
    one = split_generic(addresses)
    if one == "global":
        return global_regions(unit, addresses, shape[0] * shape[1])
    if one is not None:
        return _regions(unit, one, addresses, shape, chosen, write=write)
    made: Found = []
    high = addresses >> np.uint64(32)
    shared, local = high == SHARED_WINDOW >> 32, high == LOCAL_WINDOW >> 32
    for space, places in (("shared", shared), ("local", local), ("global", ~(shared | local))):
        index = np.flatnonzero(places)
        if index.size:
            lanes = index if chosen is None else chosen[index]
            for region, offsets, inner in _regions(unit, space, addresses[index], shape, lanes, write=write):
                made.append((region, offsets, index if inner is None else index[inner]))
    return made
