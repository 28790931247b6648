"""Judges accesses by what their threads know: two to one place, one of them a write, need an order; reports nothing.

PTX ISA, section Memory Consistency Model: a race is a conflict without happens-before, unless both accesses are strong
and each is within the other's scope. Strong writes of one place have one order: who comes behind the last one comes
behind all. Reads need earlier writes to be `VISIBLE`, writes need earlier reads `ORDERED`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.checks.clocks import NEVER, ORDERED, VISIBLE, WARP, Clocks, Ints
from ptxbench.emulator.checks.history import Entries, History, Kind, Places

_CTA, _CLUSTER, _GPU = 1, 2, 3


@dataclass(frozen=True)
class Side:
    """One of two accesses that race.

    Attributes:
        cluster: Number of the cluster.
        thread: Which of its threads did or issued it.
        pending: Whether it was not over: a copy in flight, or a product that nobody waited for.
    """

    kind: Kind
    cluster: int
    thread: int
    write: bool
    pending: bool = False


@dataclass(frozen=True)
class Race:
    """Two accesses to one place without the order that they need.

    Attributes:
        ordered: Whether the first one is over at least, though not visible.
    """

    history: History
    place: int
    first: Side
    second: Side
    ordered: bool


@dataclass(frozen=True)
class Access:
    """What one instruction, or one copy, does to places of one memory.

    Attributes:
        threads: Per place the thread that does or issues it; one number for all.
        numbers: Per place its entry; one number for all.
        kind: What it is.
    """

    history: History
    places: Places
    threads: Ints
    numbers: Ints | int
    kind: Kind


class Judge:
    """Compares the accesses of one cluster with earlier ones.

    Attributes:
        per_cta: Threads of a CTA, whole units.
        undecided: What could not be decided, with the line of an access.
    """

    def __init__(self, clocks: Clocks, entries: Entries, per_cta: int, undecided: dict[str, int]) -> None:
        self.clocks = clocks
        self.entries = entries
        self.per_cta = per_cta
        self.undecided = undecided

    def read(self, access: Access) -> Iterator[Race]:
        """A read: earlier writes must be visible. It is not remembered."""
        history = access.history
        if history.written:
            yield from self._writes(access, write=False)

    def write(self, access: Access) -> Iterator[Race]:
        """A write: earlier writes must be visible, earlier reads over. It is remembered."""
        history, places = access.history, access.places
        history.begin_writes()
        yield from self._writes(access, write=True)
        index, numbers, masks = history.reads(places)
        if index.size:
            yield from self._reads(access, index, numbers, masks)
        if history.crowded[places].any():
            self.undecided.setdefault("more reads of one place than are remembered", access.kind.line)
            history.crowded[places] = False
        lanes = access.threads % WARP if not access.kind.engine else 0
        if access.kind.scope:
            history.write_strong(places, access.numbers, lanes)
        else:
            history.write(places, access.numbers, lanes, read=bool(index.size))

    def _writes(self, access: Access, *, write: bool) -> Iterator[Race]:
        """Conflicts with the last writes of the places."""
        history, places = access.history, access.places
        yield from self._last(access, history.writer[places], history.lane[places], write=write)
        if history.strong is not None:
            numbers, lanes = history.strong
            yield from self._last(access, numbers[places], lanes[places], write=write)

    def _last(self, access: Access, numbers: Ints, lanes: NDArray[np.uint8], *, write: bool) -> Iterator[Race]:
        if not numbers.any():
            return
        bad = ~self._known(access.threads, VISIBLE, numbers, lanes)
        if not bad.any():
            return
        where = np.flatnonzero(bad)
        by = np.broadcast_to(access.threads, bad.shape)
        strong = self._strong(access, by[where], numbers[where], lanes[where])
        if write:
            # The end of a copy is the end of its writes: whatever comes behind it in order writes later.
            ended = self.entries.engine[numbers[where]] & self._known(by[where], ORDERED, numbers[where], lanes[where])
            strong |= ended
        where = where[~strong]
        yield from self._named(access, where, numbers[where], lanes[where].astype(np.int64), (True, write))

    def _reads(self, access: Access, index: Ints, numbers: Ints, masks: NDArray[np.uint32]) -> Iterator[Race]:
        """Conflicts of a write with earlier reads."""
        entries, clocks = self.entries, self.clocks
        by = np.broadcast_to(access.threads, (int(index.max()) + 1,)) if access.threads.ndim == 0 else access.threads
        by = by[index]
        groups = clocks.of[by]
        columns, times = entries.column[numbers], entries.time[numbers]
        here = entries.cluster[numbers] == clocks.number
        # Most threads overwrite what they alone read.
        known = here & (columns == by // WARP * WARP) & (masks == np.uint32(1) << (by % WARP).astype(np.uint32))
        for group in np.unique(groups).tolist():
            mine = here & (groups == group)
            lanes = mine & (columns < clocks.threads)
            known[lanes] |= clocks.least(group)[columns[lanes] // WARP] >= times[lanes]
            engines = mine & entries.engine[numbers]
            known[engines] = clocks.table[group, ORDERED, columns[engines]] >= times[engines]
        asked: dict[tuple[int, int, int], int] = {}
        for at in np.flatnonzero(~known).tolist():
            key = (int(by[at]), int(numbers[at]), int(masks[at]))
            if key not in asked:
                asked[key] = self._unordered(access, *key)
                if asked[key] >= 0:
                    one, lane = np.asarray([at]), np.asarray([asked[key]])
                    yield from self._named(access, index[one], numbers[one], lane, (False, True))

    def _unordered(self, access: Access, thread: int, number: int, mask: int) -> int:
        """The first lane of a read that is not known to be over and may race with the access of a thread; -1: none."""
        by, numbers = np.asarray([thread]), np.asarray([number])
        for lane in _lanes(mask):
            strong = self._strong(access, by, numbers, np.asarray([lane]))[0]
            if not (strong or self._knows_read(thread, number, lane)):
                return lane
        return -1

    def _knows_read(self, thread: int, number: int, lane: int) -> bool:
        entries = self.entries
        place = (int(entries.cluster[number]), int(entries.column[number]) + lane, int(entries.time[number]))
        return self.clocks.knows_of(thread, ORDERED, place)

    def _known(self, threads: Ints, row: int, numbers: Ints, lanes: Ints) -> NDArray[np.bool_]:
        """Whether each thread knows that an entry's access by a lane is over."""
        entries, clocks = self.entries, self.clocks
        columns, times = entries.column[numbers] + lanes, entries.time[numbers]
        home = entries.cluster[numbers] == clocks.number
        if home.all():
            return clocks.knows(threads, row, columns, times)
        known: NDArray[np.bool_] = numbers == 0
        by = np.broadcast_to(threads, known.shape)
        known[home] |= clocks.knows(by[home], row, columns[home], times[home])
        left = np.flatnonzero(~known & ~home)
        asked: dict[tuple[int, int, int], bool] = {}
        groups, clusters = clocks.of[by], entries.cluster[numbers]
        for at in left.tolist():
            key = (int(groups[at]), int(numbers[at]), int(lanes[at]))
            if key not in asked:
                place = (int(clusters[at]), int(columns[at]), int(times[at]))
                asked[key] = clocks.knows_of(int(by[at]), row, place)
            known[at] = asked[key]
        return known

    def _strong(self, access: Access, by: Ints, numbers: Ints, lanes: Ints) -> NDArray[np.bool_]:
        """Whether both accesses are strong and each within the other's scope."""
        entries = self.entries
        if not access.kind.scope:
            return np.zeros(numbers.size, np.bool_)
        owner = entries.owner[numbers] + lanes
        same_cta = owner // self.per_cta == by // self.per_cta
        same_cluster = entries.cluster[numbers] == self.clocks.number
        needed = np.where(same_cluster, np.where(same_cta, _CTA, _CLUSTER), _GPU)
        made: NDArray[np.bool_] = np.minimum(entries.scope[numbers], access.kind.scope) >= needed
        return made

    def _named(
        self, access: Access, where: Ints, numbers: Ints, lanes: Ints, sort: tuple[bool, bool]
    ) -> Iterator[Race]:
        """One race for each earlier kind: `sort` says whether the first and the second one write."""
        if not numbers.size:
            return
        entries = self.entries
        kinds, first = np.unique(entries.kind[numbers], return_index=True)
        for kind, at in zip(kinds.tolist(), first.tolist(), strict=True):
            number, lane = int(numbers[at]), int(lanes[at])
            index = int(where[at])
            thread = int(access.threads if access.threads.ndim == 0 else access.threads[index])
            pending = int(entries.time[number]) == NEVER
            before = Side(
                entries.kinds[kind], int(entries.cluster[number]), int(entries.owner[number]) + lane, sort[0], pending
            )
            after = Side(access.kind, self.clocks.number, thread, sort[1])
            place = int(_at(access.places, np.asarray([index]))[0])
            yield Race(access.history, place, before, after, self._knows_read(thread, number, lane))


def _at(places: Places, index: Ints) -> Ints:
    return index + places.start if isinstance(places, slice) else places[index]


def _lanes(mask: int) -> Iterator[int]:
    return (lane for lane in range(WARP) if mask >> lane & 1)
