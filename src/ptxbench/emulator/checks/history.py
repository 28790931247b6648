"""What is remembered of a stretch of memory: the last write of each place, and the reads since; judges nothing.

A place is as many bytes as the smallest access that the kernel has, so that neighbours are told apart. Accesses of one
warp at one time by one instruction share an entry; which of its lanes did it is kept with the place. Reads by warps of
the cluster have a row each; other reads share a few rows, and where those do not suffice the place is `crowded`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.checks.clocks import NEVER, WARP, Clocks, Ints

Places = Ints | slice
SLOTS = 4
_MOST_WAITING = 1 << 22
"""Places of reads that are kept as they came before they are sorted in."""
_MOST_ENTRIES = 1 << 25
_MOST_KNOWN = 4096
_ARRAYS = ("column", "time", "kind", "cluster", "owner", "scope", "engine")


@dataclass(frozen=True)
class Kind:
    """What an access is, for whoever reads of it.

    Attributes:
        name: Such as `st.shared`.
        line: PTX line.
        scope: 0 for weak accesses; of strong ones 1 `.cta`, 2 `.cluster`, 3 `.gpu`, 4 `.sys`.
        engine: Whether an asynchronous engine does it, through the async proxy.
        atomic: Whether it reads and writes in one.
    """

    name: str
    line: int
    scope: int = 0
    engine: bool = False
    atomic: bool = False


class Entries:
    """Accesses by number; 0 stands for none, which lies in everybody's past.

    Attributes:
        column: Of the first lane: whose time tells that it is over.
        time: When; `NEVER` while it is not over.
        kind: Number of its kind in `kinds`.
        scope: As `Kind.scope`.
        engine: As `Kind.engine`, as a bool.
        cluster: Number of the cluster.
        owner: The thread that did or issued it; of a warp its first.
        full: Whether there are too many; what comes then is not remembered.
    """

    def __init__(self) -> None:
        self.count = 1
        self.kinds: list[Kind] = [Kind("nothing", 0)]
        self.full = False
        self._numbers: dict[Kind, int] = {}
        self._latest: dict[tuple[int, int, int, int], int] = {}
        self.column: Ints
        self.time: Ints
        self.kind: Ints
        self.cluster: Ints
        self.owner: Ints
        self.scope: Ints
        self.engine: NDArray[np.bool_]
        for name in _ARRAYS:
            setattr(self, name, np.zeros(1024, np.bool_ if name == "engine" else np.int32))

    def add(self, kind: Kind, cluster: int, column: int, time: int, owner: int) -> int:
        """The number of an access, new or that of an equal one."""
        number = self._numbers.get(kind)
        if number is None:
            number = self._numbers[kind] = len(self.kinds)
            self.kinds.append(kind)
        key = (number, cluster, column, time)
        if time != NEVER:
            known = self._latest.get(key)
            if known is not None:
                return known
        if self.count >= _MOST_ENTRIES:
            self.full = True
            return 0
        if self.count == self.column.size:
            for name in _ARRAYS:
                old = getattr(self, name)
                setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        place = self.count
        self.count += 1
        self.column[place], self.time[place], self.kind[place] = column, time, number
        self.cluster[place], self.scope[place], self.owner[place] = cluster, kind.scope, owner
        self.engine[place] = kind.engine
        if len(self._latest) > _MOST_KNOWN:
            self._latest.clear()
        self._latest[key] = place
        return place


@dataclass(eq=False)
class Waiting:
    """Reads of memory that nobody has written in this launch, as they came."""

    reads: list[tuple[Places, int, Any]] = field(default_factory=list)
    size: int = 0


class History:
    """Memory as places 0 to `size` - 1.

    Attributes:
        name: For reports: the start of it, such as `shared` of a CTA.
        writer: Entry of the last ordinary write of each place.
        lane: Its lane.
        strong: Entry of the last strong write since then, and its lane; None before the first one.
        reader: Entries of reads: a row for each warp, then `SLOTS` for others.
        mask: Lanes of each of these.
        crowded: Places of which some read was not kept.
        writes: How many writes were remembered.
    """

    def __init__(self, name: str, size: int, rows: int, entries: Entries) -> None:
        self.name = name
        self.rows = rows
        self.entries = entries
        self.writer: Ints = np.zeros(size, np.int32)
        self.lane: NDArray[np.uint8] = np.zeros(size, np.uint8)
        self.strong: tuple[Ints, NDArray[np.uint8]] | None = None
        self.reader: Ints = np.zeros((rows + SLOTS, size), np.int32)
        self.mask: NDArray[np.uint32] = np.zeros((rows + SLOTS, size), np.uint32)
        self.crowded: NDArray[np.bool_] = np.zeros(size, np.bool_)
        self.read_by: set[int] = set()
        self.written = rows > 0
        self.writes = 0
        self.waiting = Waiting()

    # Reads.

    def read_by_lanes(self, places: Ints, threads: Ints, numbers: Ints, clocks: Clocks) -> None:
        """Remember reads of lanes of the cluster: one place, thread and entry each, by ascending threads."""
        if not self.rows or self.entries.scope[numbers].any():
            self.read_by_few(places, threads, numbers)
            return
        rows, bits = threads // WARP, np.uint32(1) << (threads % WARP).astype(np.uint32)
        self.read_by.update(range(int(rows[0]), int(rows[-1]) + 1))
        old = self.reader[rows, places]
        if not (old == numbers).all():
            times = self.entries.time
            stale = times[old] < times[numbers]
            if stale.any():
                self._supersede((rows, places, stale), old, bits, clocks)
            self.reader[rows, places] = numbers
        np.bitwise_or.at(self.mask, (rows, places), bits)

    def _supersede(
        self, where: tuple[Ints, Ints, NDArray[np.bool_]], old: Ints, bits: NDArray[np.uint32], clocks: Clocks
    ) -> None:
        """Later reads take the places of earlier ones of their warps, where those cannot matter any more."""
        rows, places, stale = where
        before = self.mask[rows, places]
        self.mask[rows[stale], places[stale]] = 0
        np.bitwise_or.at(self.mask, (rows, places), bits)
        lost = before & ~self.mask[rows, places]
        lost[~stale] = 0
        for at in np.flatnonzero(lost).tolist():
            row, place, first = int(rows[at]), int(places[at]), int(rows[at]) * WARP
            reader, time = int(bits[at]).bit_length() - 1 + first, int(self.entries.time[old[at]])
            if int(clocks.least(int(clocks.of[reader]))[row]) >= time:
                continue
            for lane in range(WARP):
                if int(lost[at]) >> lane & 1 == 0 or clocks.knows_of(reader, 1, (clocks.number, first + lane, time)):
                    continue
                if clocks.released[first + lane] < time:  # nobody can know it yet: it may count as of now
                    self.mask[row, place] |= np.uint32(1 << lane)
                else:
                    self.crowded[place] = True

    def read_by_few(self, places: Ints, threads: Ints, numbers: Ints) -> None:
        """Remember reads of lanes for which no row is kept: of global memory, strong ones, those of copies."""
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            there, inverse = np.unique(places[chosen], return_inverse=True)
            mask = np.zeros(there.size, np.uint32)
            np.bitwise_or.at(mask, inverse, np.uint32(1) << (threads[chosen] % WARP).astype(np.uint32))
            self.read(there, number, mask)

    def read(self, places: Places, number: int, mask: NDArray[np.uint32] | int = 1) -> None:
        """Remember a read of different places that has no row of its own."""
        if self.written:
            self._keep(places, number, mask)
            return
        self.waiting.reads.append((places, number, mask))
        self.waiting.size += places.stop - places.start if isinstance(places, slice) else places.size
        if self.waiting.size > _MOST_WAITING:
            self.begin_writes()

    def begin_writes(self) -> None:
        """Somebody writes: from now on reads are sorted in as they come."""
        if self.written:
            return
        self.written = True
        reads, self.waiting = self.waiting.reads, Waiting()
        for places, number, mask in reads:
            self._keep(places, number, mask)

    def _keep(self, places: Places, number: int, mask: NDArray[np.uint32] | int) -> None:
        left = np.arange(places.start, places.stop) if isinstance(places, slice) else places
        masks = np.broadcast_to(np.asarray(mask, np.uint32), left.shape)
        column, cluster, scope = self.entries.column, self.entries.cluster, self.entries.scope
        for row in range(self.rows, self.rows + SLOTS):
            old = self.reader[row, left]
            # Of one column the last read stands for all: they end in order, or in a warp none of them was forgotten.
            same = (column[old] == column[number]) & (cluster[old] == cluster[number])
            same &= (scope[old] > 0) == (scope[number] > 0)
            earlier = same & (self.entries.time[old] < self.entries.time[number])
            free = (old == 0) | same
            here = left[free]
            if here.size:
                self.read_by.add(row)
                kept = np.where(earlier[free] | (old[free] == 0), np.uint32(0), self.mask[row, here])
                lost = np.where(earlier[free], self.mask[row, here] & ~masks[free], np.uint32(0))
                self.crowded[here[lost != 0]] = True
                self.reader[row, here] = number
                self.mask[row, here] = kept | masks[free]
            left, masks = left[~free], masks[~free]
            if not left.size:
                return
        self.crowded[left] = True

    def reads(self, places: Places) -> tuple[Ints, Ints, NDArray[np.uint32]]:
        """Which of these places were read: index among them, entry, lanes; several for one place if several read."""
        rows = np.asarray(sorted(self.read_by), np.intp)
        if not rows.size:
            empty = np.zeros(0, np.int32)
            return empty, empty, np.zeros(0, np.uint32)
        found = self.reader[rows, places] if isinstance(places, slice) else self.reader[np.ix_(rows, places)]
        at, index = np.nonzero(found)
        lines = rows[at]
        where = index + places.start if isinstance(places, slice) else places[index]
        return index, found[at, index], self.mask[lines, where]

    # Writes.

    def write_strong(self, places: Places, numbers: Ints | int, lanes: Ints | int) -> None:
        """Remember strong writes: what others may race with for all that stays."""
        self.writes += 1
        if self.strong is None:
            self.strong = (np.zeros_like(self.writer), np.zeros_like(self.lane))
        self.strong[0][places] = numbers
        self.strong[1][places] = lanes

    def write(self, places: Places, numbers: Ints | int, lanes: Ints | int, *, read: bool) -> None:
        """Remember ordinary writes: what came before is in their past, or was found to race with them.

        Args:
            places: Where.
            numbers: Entries.
            lanes: Lanes.
            read: Whether any of the places was read since its last write.
        """
        self.writes += 1
        if self.strong is not None:
            self.strong[0][places] = 0
        self.writer[places] = numbers
        self.lane[places] = lanes
        if read:
            rows = np.asarray(sorted(self.read_by), np.intp)
            if isinstance(places, slice):
                self.reader[rows, places] = 0
                self.mask[rows, places] = 0
            else:
                where = np.ix_(rows, places)
                self.reader[where] = 0
                self.mask[where] = 0
