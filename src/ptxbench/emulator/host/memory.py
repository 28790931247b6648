"""Which device addresses exist, whose they are, and which of them stand in some bytes; holds no contents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Literal

import numpy as np

from ptxbench.emulator.host.record import Blob, Relocation, TensorArgument

BASE = 0x2000_0000_0000
"""Where made-up addresses begin; the host process has nothing there, so that touching them faults."""

WINDOW = 1 << 40
PAGE = 4096
_ALIGNMENT = 512

Kind = Literal["argument", "allocation", "stale"]


class AddressMap:
    """The arguments' ranges and the candidate's allocations."""

    def __init__(self, arguments: Sequence[TensorArgument]) -> None:
        self._next = BASE + PAGE
        self.used = 0
        self._starts: list[int] = []
        self._ranges: dict[int, tuple[int, Kind, int]] = {}
        for index, argument in enumerate(arguments):
            self._add(argument.address, argument.size, "argument", index)
        self._allocations = 0

    def arguments(self, arguments: Sequence[TensorArgument]) -> None:
        """The next call's arguments take the place of the last one's, whose addresses are then numbers like others."""
        for start, (size, kind, index) in self._ranges.items():
            if kind == "argument":
                self._ranges[start] = (size, "stale", index)
        for index, argument in enumerate(arguments):
            if argument.address in self._ranges:
                self._ranges[argument.address] = (argument.size, "argument", index)
            else:
                self._add(argument.address, argument.size, "argument", index)

    def allocate(self, size: int) -> tuple[int, int]:
        """(number, address) of `size` fresh bytes."""
        index, address = self._allocations, self._next
        self._allocations += 1
        self._next += -(-size // _ALIGNMENT) * _ALIGNMENT + _ALIGNMENT  # a gap, so that neighbours are not one range
        self._add(address, size, "allocation", index)
        self.used += size
        return index, address

    def room(self, size: int) -> bool:
        """Whether addresses for `size` more bytes are left."""
        return self._next + size + 2 * _ALIGNMENT <= BASE + WINDOW

    def free(self, address: int) -> bool:
        """Whether `address` was an allocation, which is then gone."""
        found = self._ranges.get(address)
        if found is None or found[1] != "allocation":
            return False
        self.used -= found[0]
        del self._ranges[address]
        self._starts.remove(address)
        return True

    def holds(self, address: int, size: int) -> bool:
        """Whether all bytes from `address` on lie in one range."""
        found = self._find(address)
        return found is not None and address + size <= found + self._ranges[found][0]

    def blob(self, data: bytes) -> Blob:
        """`data` with the addresses in it."""
        words = np.frombuffer(data, dtype="<u8", count=len(data) // 8)
        starts = np.array(self._starts, dtype=np.uint64)
        ends = np.array([start + self._ranges[start][0] for start in self._starts], dtype=np.uint64)
        nearest = np.searchsorted(starts, words, side="right") - 1
        relocations = []
        for at in np.flatnonzero((nearest >= 0) & (words <= ends[nearest])) if self._starts else ():
            start = self._starts[nearest[at]]
            _, kind, index = self._ranges[start]
            addend = int(words[at]) - start
            if kind == "stale":
                continue
            relocations.append(Relocation(offset=8 * int(at), of=kind, index=index, addend=addend))
        return Blob(data=data, relocations=tuple(relocations))

    def _find(self, address: int) -> int | None:
        """Start of the range that `address` lies in (or just behind: a pointer to the end is one of it)."""
        position = bisect_right(self._starts, address) - 1
        if position < 0:
            return None
        start = self._starts[position]
        return start if address <= start + self._ranges[start][0] else None

    def _add(self, address: int, size: int, kind: Kind, index: int) -> None:
        position = bisect_right(self._starts, address)
        self._starts.insert(position, address)
        self._ranges[address] = (size, kind, index)


def reserved_ranges(arguments: Sequence[TensorArgument]) -> list[tuple[int, int]]:
    """(start, size) of whole, disjoint pages that hold all device addresses, for the host process to close off."""
    pages = [(BASE, BASE + WINDOW)]
    for argument in arguments:
        if argument.size:
            end = -(-(argument.address + argument.size) // PAGE) * PAGE
            pages.append((argument.address // PAGE * PAGE, end))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(pages):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return [(start, end - start) for start, end in merged]
