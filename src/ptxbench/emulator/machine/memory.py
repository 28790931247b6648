"""Global memory: an arena of fake addresses with gaps between allocations, exact to the byte; no lanes.

Addresses begin at `BASE`, so that host code which reads a device pointer fails as it would on a machine. An address is
never given out twice, so that a use after free is found.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault

BASE = 0x2000_0000_0000
"""The host's stub runtime gives out addresses from here on too: an address means the same to host and kernel."""

_ALIGN = 512
_GAP = 1 << 16
_NORESERVE = 0x4000


@dataclass(frozen=True)
class Allocation:
    """Bytes from `start` up to `end`."""

    start: int
    end: int


Snapshot = tuple[tuple[Allocation, NDArray[np.uint8]], ...]
"""Allocations with copies of their bytes."""


class DeviceMemory:
    """The global memory of one device; constants and kernel parameters lie here too.

    Args:
        capacity: Greatest sum of allocations and gaps in bytes; only touched pages take memory of this machine.
        reserved: Bytes from `BASE` on that `allocate` leaves to `place`.
    """

    def __init__(self, capacity: int = 1 << 33, reserved: int = 0) -> None:
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _NORESERVE
        self._map = mmap.mmap(-1, capacity, flags=flags)
        self.capacity = capacity
        self.bytes: NDArray[np.uint8] = np.frombuffer(self._map, np.uint8)
        self._starts: list[int] = []
        self._allocations: list[Allocation] = []
        self._reserved = reserved
        self._next = BASE + reserved + _GAP

    def allocate(self, size: int, align: int = _ALIGN) -> int:
        """Room for `size` bytes, zeroed; the answer is its address.

        Raises:
            Fault: cudaErrorMemoryAllocation, when the capacity is used up.
        """
        align = max(align, _ALIGN)
        start = (self._next + align - 1) // align * align
        end = start + size
        if size < 0 or end + _GAP - BASE > self.capacity:
            raise Fault("cudaErrorMemoryAllocation", f"{size} bytes do not fit the device's {self.capacity} bytes")
        self._next = end + _GAP
        self._starts.append(start)
        self._allocations.append(Allocation(start, end))
        return start

    def place(self, address: int, size: int) -> None:
        """Room for `size` zeroed bytes at an address in the reserved part, which others gave out.

        Raises:
            Fault: cudaErrorMemoryAllocation, when they do not lie in the reserved part.
        """
        if not BASE <= address <= address + size <= BASE + self._reserved:
            raise Fault("cudaErrorMemoryAllocation", f"{size} bytes at {address:#x} do not fit the emulated memory")
        where = bisect_left(self._starts, address)
        self._starts.insert(where, address)
        self._allocations.insert(where, Allocation(address, address + size))

    def free(self, address: int) -> None:
        """Give back an allocation; its address is not used again.

        Raises:
            Fault: cudaErrorInvalidValue, when nothing was allocated there.
        """
        place = bisect_right(self._starts, address) - 1
        if place < 0 or self._starts[place] != address:
            raise Fault("cudaErrorInvalidValue", f"{address:#x} is not the start of an allocation")
        gone = self._allocations.pop(place)
        self._starts.pop(place)
        first = -(-(gone.start - BASE) // mmap.PAGESIZE) * mmap.PAGESIZE
        size = (gone.end - BASE - first) // mmap.PAGESIZE * mmap.PAGESIZE
        if size > 0:
            self._map.madvise(mmap.MADV_REMOVE, first, size)

    def find(self, address: int) -> Allocation | None:
        """The allocation that has this address."""
        place = bisect_right(self._starts, address) - 1
        if place < 0 or address >= self._allocations[place].end:
            return None
        return self._allocations[place]

    def check(self, address: int, size: int) -> None:
        """Make sure that these bytes lie in one allocation.

        Raises:
            Fault: cudaErrorIllegalAddress, which says where the nearest allocation is.
        """
        found = self.find(address)
        if found is None or address + size > found.end:
            raise self.outside(address, size)

    def outside(self, address: int, size: int) -> Fault:
        """The fault for an access that no allocation holds, with its distance from the nearest one below."""
        place = bisect_right(self._starts, address) - 1
        near = "no allocation lies below"
        if place >= 0:
            found = self._allocations[place]
            near = f"{address + size - found.end} bytes beyond the end of the {found.end - found.start} bytes at "
            near += f"{found.start:#x}"
        return Fault("cudaErrorIllegalAddress", f"global address {address:#x} ({size} bytes): {near}")

    def view(self, address: int, size: int) -> NDArray[np.uint8]:
        """The bytes themselves, writable.

        Raises:
            Fault: They do not lie in one allocation.
        """
        if size:
            self.check(address, size)
        return self.bytes[address - BASE : address - BASE + size]

    def read(self, address: int, size: int) -> bytes:
        """A copy of the bytes.

        Raises:
            Fault: They do not lie in one allocation.
        """
        return self.view(address, size).tobytes()

    def write(self, address: int, data: bytes | memoryview) -> None:
        """Put bytes there.

        Raises:
            Fault: They do not fit one allocation.
        """
        self.view(address, len(data))[:] = np.frombuffer(data, np.uint8)

    def snapshot(self) -> Snapshot:
        """Copies of all allocations, for `restore`."""
        return tuple((each, self.view(each.start, each.end - each.start).copy()) for each in self._allocations)

    def restore(self, saved: Snapshot) -> None:
        """Put back what `snapshot` took, as far as it is still allocated."""
        for each, data in saved:
            if self.find(each.start) == each and data.size:
                self.view(each.start, data.size)[:] = data
