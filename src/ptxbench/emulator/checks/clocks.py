"""What each thread of a cluster knows to be over: vector clocks in classes of equal knowledge; knows no memory.

A clock has a column for each thread and one for each thing that ends on its own (a phase of an mbarrier, the copies or
products that one thread issued in order). It says up to which time of the column everything is over, in two rows:
`VISIBLE`, by release and acquire of a sufficient scope, and `ORDERED`, by any barrier or flag at all. A warp's time
grows with each release of one of its threads, so that a column's time also says what was not released yet.
Threads with equal knowledge share one clock; a thread knows its own past whatever the clock says.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[Any]
VISIBLE, ORDERED = 0, 1
NEVER = np.iinfo(np.int32).max
"""The time of what is not over."""
WARP = 32
_SPARE = 64


@dataclass(frozen=True, eq=False)
class Message:
    """Knowledge that somebody left for others; never changed.

    Attributes:
        own: The cluster's columns: int32 [2, columns so far].
        others: The columns of other clusters, by the cluster's number.
    """

    own: Ints
    others: dict[int, Ints] = field(default_factory=dict)

    def joined(self, other: Message | None) -> Message:
        """What both know."""
        if other is None or other is self:
            return self
        return Message(larger(self.own, other.own), merged(self.others, other.others))

    def ordering(self) -> Message:
        """The same, as a barrier carries it that makes nothing visible."""
        others = {number: _hidden(clock) for number, clock in self.others.items()}
        return replace(self, own=_hidden(self.own), others=others)

    def seen_from(self, home: int, there: int) -> Message:
        """What a message of cluster `home` says in the columns of cluster `there`."""
        if home == there:
            return self
        others = {number: clock for number, clock in self.others.items() if number != there}
        own = self.others.get(there, np.zeros((2, 0), np.int32))
        return Message(own, merged(others, {home: self.own}))


def larger(one: Ints, other: Ints) -> Ints:
    """The later of two clocks, column by column; columns that one lacks count as time 0."""
    if one.shape[1] < other.shape[1]:
        one, other = other, one
    made = one.copy()
    np.maximum(made[:, : other.shape[1]], other, out=made[:, : other.shape[1]])
    return made


def merged(one: dict[int, Ints], other: dict[int, Ints]) -> dict[int, Ints]:
    """Clocks of other clusters, joined."""
    if not other:
        return one
    made = dict(one)
    for number, clock in other.items():
        made[number] = larger(made[number], clock) if number in made else clock
    return made


def _hidden(clock: Ints) -> Ints:
    made = clock.copy()
    made[VISIBLE] = 0
    return made


class Clocks:
    """The knowledge of one cluster's threads.

    Attributes:
        now: Each warp's time: int32 [warps].
        of: Each thread's class: int32 [threads].
        released: The time of each thread's last release: int32 [threads].
        copies: First of the columns of the threads' own copies (`cp.async`); -1: there are none.
        waited: Up to which of its copies each thread waited; others learn that only by its releases.
        table: The clock of each class: int32 [classes, 2, columns].
        width: Columns in use.
    """

    def __init__(self, threads: int, number: int = 0) -> None:
        self.number = number
        self.threads = threads
        self.width = threads
        self.now: Ints = np.ones(-(-threads // WARP), np.int32)
        self.of: Ints = np.zeros(threads, np.int32)
        self.table: Ints = np.zeros((4, 2, threads + _SPARE), np.int32)
        self.others: list[dict[int, Ints]] = [{} for _ in range(4)]
        self.released: Ints = np.zeros(threads, np.int32)
        self.copies = -1
        self.waited: Ints = np.zeros(threads, np.int32)
        self._members = [threads, 0, 0, 0]
        self._least: dict[int, Ints] = {}
        self._recent: deque[int] = deque(maxlen=2)

    def column(self, count: int = 1) -> int:
        """The first of `count` new columns."""
        first = self.width
        self.width += count
        if self.width > self.table.shape[2]:
            more = max(self.width, self.table.shape[2] * 3 // 2) + _SPARE - self.table.shape[2]
            self.table = np.pad(self.table, ((0, 0), (0, 0), (0, more)))
        return first

    def release(self, threads: Ints) -> Message:
        """What these threads know and did until now; what they do from now on belongs to a later time."""
        classes = self._classes(threads)
        clock = self.table[classes[0], :, : self.width].copy()
        others = self.others[classes[0]]
        for each in classes[1:]:
            np.maximum(clock, self.table[each, :, : self.width], out=clock)
            others = merged(others, self.others[each])
        clock[:, threads] = self.advance(threads)
        if self.copies >= 0:
            clock[:, self.copies + threads] = self.waited[threads]
        return Message(clock, others)

    def advance(self, threads: Ints) -> Ints:
        """Begin a later time for the warps of these threads; the times that end with it."""
        warps = threads // WARP
        times: Ints = self.now[warps]
        self.released[threads] = times
        self.now[warps] += np.int32(1)  # once for each warp, however many threads it has here
        return times

    def alone(self, thread: int) -> Message:
        """What one thread knows of others, its own past left out."""
        group = int(self.of[thread])
        return Message(self.table[group, :, : self.width].copy(), self.others[group])

    def mark(self, columns: Ints | int, time: int) -> Message:
        """The knowledge that these columns are over up to a time."""
        clock = np.zeros((2, self.width), np.int32)
        clock[:, columns] = time
        return Message(clock)

    def acquire(self, threads: Ints, message: Message, *, visible: bool = True) -> None:
        """These threads learn what a message says; without `visible` only that it is over."""
        if not visible:
            message = message.ordering()
        for each in self._classes(threads):
            clock = self.table[each, :, : message.own.shape[1]]
            others = merged(self.others[each], message.others)
            if (clock >= message.own).all() and others is self.others[each]:
                continue
            mine = threads[self.of[threads] == each]
            self._learn(mine, each, (np.maximum(clock, message.own), others))

    def _learn(self, mine: Ints, old: int, known: tuple[Ints, dict[int, Ints]]) -> None:
        """Threads of one class get another clock: that of a class made lately, or one of their own."""
        clock, others = known
        size = clock.shape[1]
        for each in self._recent:
            same = each != old and self._members[each] > 0 and not (self.others[each] or others)
            if same and (self.table[each, :, :size] == clock).all() and self._same_beyond(each, old, size):
                self._move(mine, old, each)
                return
        place = old
        if mine.size != self._members[old]:
            place = self._free()
            self.table[place] = self.table[old]
            self._move(mine, old, place)
        self.table[place, :, :size] = clock
        self.others[place] = others
        self._least.pop(place, None)
        self._recent.append(place)

    def _same_beyond(self, one: int, other: int, size: int) -> bool:
        return bool((self.table[one, :, size : self.width] == self.table[other, :, size : self.width]).all())

    def _move(self, mine: Ints, old: int, new: int) -> None:
        self.of[mine] = new
        self._members[old] -= mine.size
        self._members[new] += mine.size

    def _free(self) -> int:
        if 0 not in self._members:
            count = len(self._members)
            self.table = np.concatenate([self.table, np.zeros_like(self.table)])
            self.others.extend({} for _ in range(count))
            self._members.extend([0] * count)
        place = self._members.index(0)
        self._least.pop(place, None)
        return place

    def _classes(self, threads: Ints) -> list[int]:
        classes = self.of[threads]
        first = int(classes[0])
        return [first] if (classes == first).all() else np.unique(classes).tolist()

    def knows(self, threads: Ints, row: int, columns: Ints, times: Ints) -> NDArray[np.bool_]:
        """Whether each thread knows that its column is over at the time (its own column is); arrays broadcast."""
        made: NDArray[np.bool_] = (self.table[self.of[threads], row, columns] >= times) | (columns == threads)
        if self.copies >= 0:
            made |= (columns - self.copies == threads) & (self.waited[threads] >= times)
        return made

    def knows_of(self, thread: int, row: int, place: tuple[int, int, int]) -> bool:
        """Whether a thread knows that a column of a cluster is over at a time: (cluster, column, time)."""
        cluster, column, time = place
        group = int(self.of[thread])
        clock = self.table[group] if cluster == self.number else self.others[group].get(cluster)
        own = cluster == self.number
        if own and column == thread:
            return True
        if own and self.copies >= 0 and column == self.copies + thread and self.waited[thread] >= time:
            return True
        return clock is not None and column < clock.shape[1] and int(clock[row, column]) >= time

    def least(self, group: int) -> Ints:
        """For each warp the time up to which a class knows all its threads, by whatever order: int32 [warps]."""
        found = self._least.get(group)
        if found is None:
            clock = np.full(self.now.size * WARP, NEVER, np.int32)
            clock[: self.threads] = self.table[group, ORDERED, : self.threads]
            found = self._least[group] = clock.reshape(-1, WARP).min(axis=1)
        return found
