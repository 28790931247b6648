"""Lanes read and write memory: address checks, gather and scatter over global, shared, local and generic addresses.

All functions take arrays over lanes and a mask (None: all lanes). Nothing here waits and no order is kept but that of
lanes. Shared addresses are 32 bits: the CTA's rank in its cluster above bit 24, an offset below; the generic windows
put them, and local offsets, beneath a word that no global address has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.memory import BASE, Allocation, DeviceMemory

Lanes = NDArray[Any]
Mask = NDArray[np.bool_] | None
SHARED_WINDOW = 0x7F9D_0000_0000
LOCAL_WINDOW = 0x7F9E_0000_0000
_SHARED_HIGH = SHARED_WINDOW >> 32
_LOCAL_HIGH = LOCAL_WINDOW >> 32
RANK_SHIFT = 24
OFFSET_MASK = (1 << RANK_SHIFT) - 1
DTYPES = {1: np.dtype(np.uint8), 2: np.dtype(np.uint16), 4: np.dtype(np.uint32), 8: np.dtype(np.uint64)}


class Region:
    """Bytes that lanes address by offset: one CTA's shared memory, or a window of global memory.

    Attributes:
        bytes: All bytes.
        views: The same bytes as unsigned integers of 1, 2, 4 and 8 bytes.
        limit: First offset beyond.
    """

    def __init__(self, data: NDArray[np.uint8], limit: int | None = None) -> None:
        self.bytes = data
        whole = data[: data.size // 8 * 8]
        self.views: dict[int, NDArray[Any]] = {
            1: data,
            2: whole.view(np.uint16),
            4: whole.view(np.uint32),
            8: whole.view(np.uint64),
        }
        self.limit = data.size if limit is None else limit


def offsets_fit(offsets: Lanes, limit: int, size: int) -> bool:
    """Whether accesses of `size` bytes at unsigned offsets are aligned and below `limit`; one pass when they are."""
    union = int(np.bitwise_or.reduce(offsets))
    if union & (size - 1):
        return False
    return union + size <= limit or (offsets.size > 0 and int(offsets.max()) + size <= limit)


def complain(offsets: Lanes, limit: int, size: int, what: Callable[[int], str]) -> Fault:
    """The fault of the first lane that `offsets_fit` refuses; `what` names the place of a lane."""
    for lane, offset in enumerate(offsets.tolist()):
        if offset + size > limit:
            return Fault("cudaErrorIllegalAddress", f"{what(lane)} ({size} bytes) is out of bounds")
        if offset % size:
            return Fault("cudaErrorMisalignedAddress", f"{what(lane)} is not aligned to {size} bytes")
    return Fault("cudaErrorIllegalAddress", "no lane")


def read_vector(region: Region, offsets: Lanes, width: int, count: int) -> list[Lanes]:
    """`count` neighbouring elements of `width` bytes at each offset; checked before."""
    view = region.views[width]
    index = (offsets >> offsets.dtype.type(width.bit_length() - 1)).astype(np.intp)
    if count == 1:
        return [view[index]]
    return [view[index + place] for place in range(count)]


def write_vector(region: Region, offsets: Lanes, width: int, values: list[Lanes]) -> None:
    """The opposite of `read_vector`; of lanes that write one place the last wins."""
    view = region.views[width]
    index = (offsets >> offsets.dtype.type(width.bit_length() - 1)).astype(np.intp)
    for place, value in enumerate(values):
        view[index + place if place else index] = value


class GlobalSpace:
    """Global memory as lanes see it; remembers the allocation that was used last."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.memory = memory
        self.latest = Allocation(BASE, BASE)
        self.start = np.uint64(0)
        self.limit = 0
        self.region = Region(memory.bytes[:0])

    def bounds(self, addresses: Lanes, mask: Mask) -> Allocation | None:
        """The allocation that the first active lane uses."""
        lane = 0 if mask is None else int(mask.argmax())
        found = self.memory.find(int(addresses[lane]))
        self.latest = found or self.latest
        return found

    def locate(self, addresses: Lanes, size: int) -> Lanes:
        """Offsets within `self.region`, which is set to the allocation that holds all lanes.

        Raises:
            Fault: A lane is out of bounds or misaligned.
            Scattered: The lanes use several allocations; each must be tried alone.
        """
        offsets = addresses - self.start
        if offsets_fit(offsets, self.limit, size):
            return offsets
        found = self.memory.find(int(addresses[0]))
        if found is None:
            raise self.memory.outside(int(addresses[0]), size)
        self.start = np.uint64(found.start)
        self.limit = found.end - found.start
        first = found.start - BASE
        # Whole words beyond the end belong to the gap, so that the last bytes can be seen as words.
        self.region = Region(self.memory.bytes[first : first + (self.limit + 7) // 8 * 8], self.limit)
        offsets = addresses - self.start
        if offsets_fit(offsets, self.limit, size):
            return offsets
        self._refuse(addresses, size)
        raise Scattered

    def _refuse(self, addresses: Lanes, size: int) -> None:
        for lane, address in enumerate(addresses.tolist()):
            self.memory.check(address, size)
            if address % size:
                raise Fault(
                    "cudaErrorMisalignedAddress",
                    f"global address {address:#x} of active lane {lane} is not {size}-byte aligned",
                )


class Scattered(Exception):  # noqa: N818  (no error: the slow way must be taken)
    """The lanes of one access use several allocations."""


def split_generic(addresses: Lanes) -> str | None:
    """`global`, `shared` or `local` when all generic addresses lie in one space, else None."""
    high = addresses >> np.uint64(32)
    first = int(high[0])
    if first not in (_SHARED_HIGH, _LOCAL_HIGH):
        special = (high == _SHARED_HIGH) | (high == _LOCAL_HIGH)
        return None if special.any() else "global"
    if not (high == first).all():
        return None
    return "shared" if first == _SHARED_HIGH else "local"
