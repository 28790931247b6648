"""What happened before what: vector clocks of units, carried by barriers; knows no memory.

A clock maps a unit to the last of its times that is known to be over, an mbarrier to the number of its phases known to
be complete, (`fence`, unit) to the last time before which that unit's writes are visible to the async proxy, and
(`loads`, unit) to the last time before which its loads are over for the async proxy.
A unit's own time grows with everything that it releases.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.unit import Mask, Unit

Clock = dict[Hashable, int]


def join(clock: Clock, other: Clock) -> None:
    """Learn what the other knows."""
    if not clock:
        clock.update(other)
        return
    known = clock.get
    for key, value in other.items():
        if known(key, -1) < value:
            clock[key] = value


@dataclass(eq=False)
class Actor:
    """A unit as the order sees it.

    Attributes:
        row: Its number within the cluster.
        time: Its current time; everything before was released or is its own past.
        self_fenced: What it knew when it last executed a proxy fence.
    """

    unit: Unit
    row: int
    time: int = 1
    clock: Clock = field(default_factory=dict)
    self_fenced: Clock = field(default_factory=dict)
    writers: Mask | None = None
    """Threads that stored since the last whole fence."""
    looked: dict[tuple[int, int, int, int], int] = field(default_factory=dict)
    """Runs of shared memory that its products read since the last wait, with the number of writes then."""
    young: list[BarrierClock] = field(default_factory=list)
    """Of mbarriers that it initialised and did not fence since."""
    exposed: bool = True
    """Whether ordinary instructions used accumulators since the last wgmma.fence."""

    def release(self) -> Clock:
        """What others learn from it now; its time moves on."""
        self.clock[self.row] = self.time
        self.time += 1
        return self.clock

    def knows(self, row: int, time: int) -> bool:
        """Whether what that unit did at that time lies in its past."""
        return row == self.row or self.clock.get(row, 0) >= time

    def wrote(self, lanes: Mask) -> None:
        """Threads of it stored through the generic proxy."""
        self.writers = lanes if self.writers is None or self.writers is lanes else self.writers | lanes

    def proxy_fence(self, *, whole: bool) -> None:
        """`fence.proxy.async`: its own writes so far, and in a weaker sense those that it knows of, become visible.

        Args:
            whole: Whether all threads that stored take part; otherwise only the weaker sense holds.
        """
        self.clock[self.row] = self.time
        if whole:
            self.clock["fence", self.row] = self.time
            self.writers = None
        self.self_fenced = dict(self.clock)
        self.loads_over()

    def loads_over(self) -> None:
        """Its loads so far wait in no queue any more: it fenced, or waited for a product that needed what they brought.

        An H200 lets the copy engine overtake loads that nothing has waited for, mbarrier arrivals included.
        """
        self.clock[self.row] = self.clock["loads", self.row] = self.time
        self.time += 1

    def visible(self, row: int, time: int) -> bool:
        """Whether the writer fenced its generic write of that time, and that fence lies in this unit's past."""
        return self.clock.get(("fence", row), 0) >= time

    def loaded(self, row: int, time: int) -> bool:
        """Whether that unit's loads of that time wait in no queue, as far as this unit knows."""
        return self.clock.get(("loads", row), 0) >= time

    def fenced_here(self, row: int, time: int) -> bool:
        """Whether this unit itself fenced after it learnt of the write: harmless on a H200, but not the rule."""
        return self.self_fenced.get(row, 0) >= time


@dataclass(eq=False)
class BarrierClock:
    """What an mbarrier carries: from the arrivals of the phase in progress, and of the phases that are over."""

    pending: Clock = field(default_factory=dict)
    done: Clock = field(default_factory=dict)
    birth: tuple[int, int, int] | None = None
    """Unit, time and PTX line of the initialisation."""
    fenced: bool = False
    """Whether whoever initialised it fenced for the cluster behind that."""

    @staticmethod
    def of(phases: Phases) -> BarrierClock:
        """The clock of an mbarrier, made on first use."""
        if phases.knowledge is None:
            phases.knowledge = BarrierClock()
        made: BarrierClock = phases.knowledge
        return made

    def complete(self, phases: Phases) -> None:
        """A phase is over: who waits for it learns what its arrivers knew, and that the phase is over."""
        join(self.done, self.pending)
        self.pending = {}
        self.done[phases] = phases.state.phase
