"""Asynchronous work: issued now, landing when the schedule says; copies and their groups, no products.

A piece of work lands once. A store has two steps: its source is read (a `.read` wait asks only for that), then written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxbench.emulator.async_ import mbarrier
from ptxbench.emulator.async_.groups import Groups
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.phases import Phases
from ptxbench.emulator.machine.unit import Mask, Unit

if TYPE_CHECKING:
    from ptxbench.emulator.async_.boxes import Box
    from ptxbench.emulator.machine.cluster import Cluster
    from ptxbench.emulator.machine.cta import Cta


@dataclass(frozen=True)
class Span:
    """Bytes of a CTA's shared memory that work reads or writes: rows of `width` bytes, `pitch` apart.

    Attributes:
        swizzle: Bytes of the XOR pattern in which they are laid out; 0 for none.
    """

    cta: Cta
    start: int
    size: int
    swizzle: int = 0
    partial: bool = False
    """Whether only a part is used: a box clipped by its tensor."""


@dataclass(eq=False)
class Work:
    """One copy.

    Attributes:
        line: PTX line of the instruction.
        move: Moves the data.
        writes: Shared memory that it writes.
        reads: Shared memory that it reads.
        barriers: mbarriers that are told, with the bytes.
        fetch: For stores: reads the source and answers what writes the destination.
    """

    unit: Unit
    line: int
    move: Callable[[], None] | None = None
    writes: tuple[Span, ...] = ()
    reads: tuple[Span, ...] = ()
    barriers: tuple[tuple[Phases, int], ...] = ()
    fetch: Callable[[], Callable[[], None]] | None = None
    kind: str = "copy"
    size: int = 0
    """Bytes that move."""
    lane: int = 0
    """Which lane of the unit issued it."""
    outside: Box | tuple[int, int] | None = None
    """Global memory that it reads or writes: a box, or address and bytes."""
    landed: bool = False
    records: list[Any] = field(default_factory=list)
    """What the checks remember of its writes."""
    traces: list[int] = field(default_factory=list)
    """What the check for races remembers of it."""

    @property
    def signals(self) -> bool:
        """Whether somebody may wait for it at an mbarrier."""
        return bool(self.barriers)

    @property
    def cluster(self) -> Cluster:
        """The cluster of the lane that issued it."""
        return self.unit.cta.cluster

    def issue(self) -> None:
        """Take it among the pending work, or do it at once if the schedule wants that."""
        cluster, moved = self.cluster, self.cluster.kernel.moved
        moved[self.line] = moved.get(self.line, 0) + self.size
        for observer in cluster.observers:
            observer.issued(self)
        cluster.pending.append(self)
        if cluster.schedule.at_issue():
            self.finish()

    def read(self) -> None:
        """Read the source now; the destination is written later."""
        if self.fetch is not None:
            fetch, self.fetch = self.fetch, None
            self._guard(lambda: setattr(self, "move", fetch()))
            for observer in self.cluster.observers:
                observer.source_read(self)

    def finish(self) -> None:
        """Land, and be pending no more."""
        if not self.landed:
            pending = self.cluster.pending
            if self in pending:
                pending.remove(self)
            self.land()

    def land(self) -> None:
        """Move the data and tell the barriers."""
        if self.landed:
            return
        self.landed = True
        self.read()
        if self.move is not None:
            self._guard(self.move)
        cluster = self.cluster
        cluster.changed += 1
        for observer in cluster.observers:
            observer.landed(self)
        for phases, size in self.barriers:
            self._guard(partial(_complete, phases, size))

    def _guard(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Fault as fault:
            raise fault.at(self.line) from fault


def in_cluster(unit: Unit) -> None:
    """Refuse what writes to a CTA of the cluster where there is none; to its own CTA a unit of a cluster may write.

    Raises:
        Fault: The CTA is alone, as on an H200 in a launch without clusters.
    """
    if len(unit.cta.cluster.ctas) == 1:
        raise Fault("cudaErrorIllegalInstruction", "a write to a CTA of the cluster, in a launch without clusters")


def _complete(phases: Phases, size: int) -> None:
    phases.change(mbarrier.complete_tx(phases.state, size))


@dataclass(eq=False)
class PlainCopy:
    """One `cp.async` of many lanes.

    Attributes:
        lanes: Lanes whose bytes have not landed.
        group: Per lane, the number of commits before it.
        move: Lands the bytes of some lanes.
    """

    lanes: Mask
    group: Any
    move: Callable[[Mask], None]
    line: int

    def land(self, lanes: Mask) -> None:
        """Land the bytes of these lanes."""
        if lanes.any():
            self.lanes = self.lanes & ~lanes
            self.move(lanes)


@dataclass(eq=False)
class Copies:
    """The copies of one unit that it waits for by groups.

    Attributes:
        bulk: Per lane, its bulk groups.
        plain: `cp.async` copies that have not all landed.
        commits: Per lane, how often it committed `cp.async` copies.
    """

    unit: Unit
    bulk: dict[int, Groups[Work]] = field(default_factory=dict)
    plain: list[PlainCopy] = field(default_factory=list)
    commits: Any = None

    @staticmethod
    def of(unit: Unit) -> Copies:
        """The copies of a unit, made on first use."""
        if unit.copies is None:
            unit.copies = Copies(unit, commits=np.zeros(unit.lanes, np.int64))
        made: Copies = unit.copies
        return made

    def add_bulk(self, lane: int, work: Work) -> None:
        """A lane issues work of its open bulk group."""
        self.bulk[lane] = self.bulk.get(lane, Groups()).issued(work)

    def commit_bulk(self, lanes: Mask) -> None:
        """`cp.async.bulk.commit_group`."""
        for lane in np.flatnonzero(lanes).tolist():
            groups = self.bulk.get(lane)
            if groups is not None:
                self.bulk[lane] = groups.commit()

    def wait_bulk(self, lanes: Mask, newest: int, read: bool) -> None:
        """`cp.async.bulk.wait_group`: what is due is done now, not before."""
        for lane, groups in list(self.bulk.items()):
            if not lanes[lane]:
                continue
            for work in groups.due(newest):
                if read:
                    work.read()
                else:
                    work.finish()
            for observer in self.unit.cta.cluster.observers:
                observer.group_waited(self.unit, groups.due(newest), read)
            if not read:
                self.bulk[lane] = groups.waited(newest)

    def add_plain(self, lanes: Mask, move: Callable[[Mask], None], line: int, size: int) -> None:
        """Lanes issue a `cp.async` of `size` bytes each."""
        copy = PlainCopy(lanes, self.commits, move, line)
        moved = self.unit.cta.cluster.kernel.moved
        moved[line] = moved.get(line, 0) + size * int(np.count_nonzero(lanes))
        if self.unit.cta.cluster.schedule.at_issue():
            copy.land(lanes)
        else:
            self.plain.append(copy)

    def commit_plain(self, lanes: Mask) -> None:
        """`cp.async.commit_group`."""
        self.commits = self.commits + lanes

    def wait_plain(self, lanes: Mask, newest: int | None) -> None:
        """`cp.async.wait_group`, or `wait_all` with None."""
        if not self.plain:
            return
        self.unit.cta.cluster.changed += 1
        for copy in self.plain:
            due = copy.lanes & lanes
            if newest is not None:
                due = due & (copy.group < self.commits - newest)
            copy.land(due)
        self.plain = [copy for copy in self.plain if copy.lanes.any()]

    def exit(self, unit: Unit) -> None:
        """All lanes of the unit exit: bulk sources that nobody waited for are read now, with a finding."""
        self.wait_plain(np.ones(unit.lanes, np.bool_), None)
        for groups in self.bulk.values():
            for work in groups.in_flight:
                if work.fetch is not None:
                    for observer in unit.cta.cluster.observers:
                        observer.unread_at_exit(work)
                work.read()
