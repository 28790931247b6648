"""`bar.sync`, `barrier.sync`, `bar.arrive`, `bar.red`, `barrier.cluster`: who has come and who waits; no mbarriers.

As measured on an H200: a barrier counts warps, a warp once all its live lanes came; without a count it expects the
warps that have not exited; with one, an exited warp is missed. Two counts for one barrier are an illegal instruction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.unit import WARP, Answer, Mask, Unit

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cluster import Cluster
    from ptxbench.emulator.machine.cta import Cta


@dataclass
class Waiting:
    """Lanes of a unit at a barrier."""

    unit: Unit
    mask: Mask
    line: int
    following: int
    barrier: NamedBarrier | ClusterBarrier
    result: Callable[[Unit, Mask, Any], None] | None = None

    def poke(self, unit: Unit, patience: int) -> bool:
        """A barrier wakes its waiters itself."""
        return False

    def describe(self, unit: Unit) -> str:
        """What must happen."""
        return self.barrier.describe()

    def release(self, answer: Answer = None) -> None:
        """Let the lanes go on."""
        if self.result is not None:
            self.result(self.unit, self.mask, answer)
        self.unit.waits.remove(self)
        self.unit.add(self.following, self.mask)
        self.unit.cta.cluster.wake(self.unit)


@dataclass
class NamedBarrier:
    """One of the sixteen barriers of a CTA."""

    cta: Cta
    number: int
    expected: int | None = None
    """Warps named by the instructions of this round; None: all that have not exited."""
    arrived: int = 0
    partial: dict[int, int] = field(default_factory=dict)
    """Lane masks of warps of which some lanes are still to come."""
    waiting: list[Waiting] = field(default_factory=list)
    values: list[tuple[Unit, Mask]] = field(default_factory=list)
    """Lanes whose predicate was true, for reductions."""
    total: int = 0
    """Lanes that took part in a reduction."""
    kind: str = ""
    seen: list[Any] = field(default_factory=list)
    """Knowledge that the arrivers brought."""
    rounds: int = 0

    def arrive(self, unit: Unit, mask: Mask, count: int | None, waiter: Waiting | None) -> None:
        """Warps arrive; `waiter` stays until the round is complete, None is `bar.arrive`.

        Raises:
            Fault: The count is no multiple of the warp size, or another one than earlier warps named.
        """
        if count is not None and (count % WARP or count <= 0):
            raise Fault("cudaErrorIllegalInstruction", f"barrier {self.number}: {count} threads are no whole warps")
        expected = None if count is None else count // WARP
        if self.arrived and expected != self.expected:
            first, second = (f"{each * WARP} threads" if each else "all" for each in (self.expected, expected))
            raise Fault("cudaErrorIllegalInstruction", f"barrier {self.number} is used with {first} and with {second}")
        self.expected = expected
        self.arrived += self._whole_warps(unit, mask)
        observers = self.cta.cluster.observers
        for observer in observers:
            observer.barrier_arrive(self, unit, mask)
        if self.cta.cluster.races is not None:
            self.cta.cluster.races.barrier_arrived(self, unit, mask)
        if waiter is not None:
            self.waiting.append(waiter)
            unit.waits.append(waiter)
        self.cta.cluster.changed += 1
        self.settle()

    def _whole_warps(self, unit: Unit, mask: Mask) -> int:
        """Warps of which all live lanes have come now."""
        if not self.partial and np.count_nonzero(mask) == np.count_nonzero(unit.live):
            return unit.warps_of(mask)
        whole = 0
        lanes, live = mask.reshape(-1, WARP), unit.live.reshape(-1, WARP)
        for place in np.flatnonzero(lanes.any(axis=1)).tolist():
            warp = unit.first // WARP + place
            come = _word(lanes[place]) | self.partial.pop(warp, 0)
            if _word(live[place]) & ~come:
                self.partial[warp] = come
            else:
                whole += 1
        return whole

    def settle(self) -> None:
        """Complete the round if nobody is missing."""
        needed = self.expected if self.expected is not None else self.cta.live_warps
        if not self.arrived or self.arrived < needed:
            return
        answer = self._reduced()
        waiting, self.waiting = self.waiting, []
        self.arrived = 0
        self.partial.clear()
        self.values.clear()
        self.total = 0
        self.rounds += 1
        for observer in self.cta.cluster.observers:
            observer.barrier_complete(self, [each.unit for each in waiting])
        if self.cta.cluster.races is not None:
            self.cta.cluster.races.barrier_passed(self, waiting)
        for each in waiting:
            each.release(answer)

    def give_up_partial(self) -> bool:
        """Nothing else can run: warps whose other lanes do not come count as they are; whether that helps."""
        if not self.partial:
            return False
        self.arrived += len(self.partial)
        self.partial.clear()
        before = self.rounds
        self.settle()
        return self.rounds > before

    def _reduced(self) -> int | bool | None:
        true = sum(int(mask.sum()) for _, mask in self.values)
        return {"popc": true, "and": true == self.total, "or": true > 0}.get(self.kind)

    def describe(self) -> str:
        """For a report: who has come, who is missing."""
        needed = self.expected if self.expected is not None else self.cta.live_warps
        come = sorted({warp for each in self.waiting for warp in each.unit.warp_numbers(each.mask)})
        return f"barrier {self.number}: {self.arrived} of {needed} warps have arrived, warps {come} wait"


def _word(lanes: Mask) -> int:
    return int.from_bytes(np.packbits(lanes, bitorder="little").tobytes(), "little")


@dataclass
class ClusterBarrier:
    """`barrier.cluster` of one cluster: all threads that have not exited take part."""

    cluster: Cluster
    rounds: int = 0
    arrived: int = 0
    waiting: list[Waiting] = field(default_factory=list)

    def arrive(self, unit: Unit, mask: Mask) -> None:
        """Lanes arrive, and go on."""
        if unit.cluster_round is None:
            unit.cluster_round = np.full(unit.lanes, -1, np.int64)
        unit.cluster_round = np.where(mask, self.rounds, unit.cluster_round)
        self.arrived += int(np.count_nonzero(mask))
        for observer in self.cluster.observers:
            observer.cluster_arrive(unit)
        if self.cluster.races is not None:
            self.cluster.races.cluster_arrived(unit, mask)
        self.cluster.changed += 1
        self.settle()

    def exited(self, unit: Unit, mask: Mask) -> None:
        """Lanes exit: those that had arrived are not missed, and the others no longer."""
        if unit.cluster_round is not None:
            self.arrived -= int(np.count_nonzero(mask & (unit.cluster_round == self.rounds)))
        self.settle()

    def ready(self, unit: Unit, mask: Mask) -> bool:
        """Whether the round in which these lanes arrived is over."""
        return unit.cluster_round is None or bool((unit.cluster_round[mask] < self.rounds).all())

    def settle(self) -> None:
        """Complete the round if nobody is missing; exited threads count as arrived."""
        if self.arrived < self.cluster.live_threads or not (self.arrived or self.waiting):
            return
        self.arrived = 0
        self.rounds += 1
        for observer in self.cluster.observers:
            observer.cluster_complete()
        if self.cluster.races is not None:
            self.cluster.races.cluster_complete()
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            self.passed(each.unit, each.mask)
            each.release()

    def passed(self, unit: Unit, mask: Mask) -> None:
        """Lanes go on behind their wait."""
        if self.cluster.races is not None:
            self.cluster.races.cluster_passed(unit, mask)

    def describe(self) -> str:
        """For a report."""
        return f"barrier.cluster: {self.arrived} of {self.cluster.live_threads} threads have arrived"
