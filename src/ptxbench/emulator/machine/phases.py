"""mbarriers in their CTA: the state machine of `async_.mbarrier` with those who wait on it; no instruction's text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxbench.emulator.async_ import mbarrier
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.spaces import OFFSET_MASK, RANK_SHIFT
from ptxbench.emulator.machine.unit import Mask, Unit

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cluster import Cluster
    from ptxbench.emulator.machine.cta import Cta


@dataclass(eq=False)
class Phases:
    """One mbarrier."""

    cta: Cta
    offset: int
    state: mbarrier.Barrier
    initialised: bool = True
    waiters: list[PhaseWait] = field(default_factory=list)
    knowledge: Any = None
    """What the checks know of those who arrived."""

    def change(self, new: mbarrier.Barrier) -> None:
        """Take over a new state; wake the waiters when a phase has completed."""
        flipped = new.phase != self.state.phase
        self.state = new
        cluster = self.cta.cluster
        cluster.changed += 1
        if not flipped:
            return
        for observer in cluster.observers:
            observer.phase_complete(self)
        for waiter in list(self.waiters):
            waiter.unit.cta.cluster.wake(waiter.unit)

    def describe(self) -> str:
        """For reports: where it is, and what its phase waits for."""
        name = f"mbarrier shared+{self.offset:#x} of {self.cta.name()}"
        if not self.initialised:
            name += " (never initialised)"
        return f"{name}: {mbarrier.describe(self.state)}"


def find(cluster: Cluster, unit: Unit, address: int, *, remote: bool) -> Phases:
    """The mbarrier at a shared address; memory that nobody initialised is taken as it is.

    Raises:
        Fault: The address is misaligned, outside shared memory, or in a CTA that is not there.
    """
    cta, rank, offset = unit.cta, address >> RANK_SHIFT, address & OFFSET_MASK
    if rank != cta.rank:
        if not remote or rank >= len(cluster.ctas):
            raise Fault(
                "cudaErrorLaunchFailure", f"shared address {address:#x} names CTA {rank}, which cannot be reached"
            )
        cta = cluster.ctas[rank]
        if cta.done:
            raise Fault(
                "cudaErrorLaunchFailure", f"mbarrier shared+{offset:#x} lies in CTA rank {rank}, which has exited"
            )
    found = cta.mbarriers.get(offset)
    if found is not None:
        for observer in cluster.observers:
            observer.used(found, unit)
        return found
    if offset % mbarrier.BYTES:
        raise Fault("cudaErrorMisalignedAddress", f"mbarrier shared+{offset:#x} is not aligned to 8 bytes")
    if offset + mbarrier.BYTES > cta.shared.limit:
        raise Fault("cudaErrorIllegalAddress", f"mbarrier shared+{offset:#x} is outside of the CTA's shared memory")
    bits = int(cta.shared.views[8][offset // 8])
    found = cta.mbarriers[offset] = Phases(cta, offset, mbarrier.from_bits(bits), initialised=False)
    for observer in cluster.observers:
        observer.uninitialised(found, unit)
    return found


def initialise(cta: Cta, address: int, count: int) -> Phases:
    """`mbarrier.init`: a fresh object, whoever waited on the old one."""
    rank, offset = address >> RANK_SHIFT, address & OFFSET_MASK
    if rank != cta.rank:
        raise Fault("cudaErrorLaunchFailure", f"mbarrier.init of {address:#x} in another CTA")
    if offset % mbarrier.BYTES:
        raise Fault("cudaErrorMisalignedAddress", f"mbarrier shared+{offset:#x} is not aligned to 8 bytes")
    if offset + mbarrier.BYTES > cta.shared.limit:
        raise Fault("cudaErrorIllegalAddress", f"mbarrier shared+{offset:#x} is outside of the CTA's shared memory")
    old = cta.mbarriers.get(offset)
    made = cta.mbarriers[offset] = Phases(cta, offset, mbarrier.init(count))
    cta.cluster.changed += 1
    if old is not None:
        # A wait looks its barrier up afresh.
        made.waiters = old.waiters
        for waiter in made.waiters:
            waiter.conditions = [(made if each[0] is old else each[0], *each[1:]) for each in waiter.conditions]
    return made


@dataclass(eq=False)
class PhaseWait:
    """Lanes that wait for phases.

    Attributes:
        conditions: Barrier, parity or token, and the lanes that wait for it.
        token: Whether the values are tokens.
        finish: Called with (unit, lanes, answer) to write the predicate.
        modifiers: Of the instruction.
        may_fail: Whether a false answer is allowed (`try_wait`).
    """

    unit: Unit
    mask: Mask
    line: int
    following: int
    conditions: list[tuple[Phases, int, Mask]]
    token: bool
    finish: Callable[[Unit, Mask, bool], None]
    modifiers: tuple[str, ...] = ()
    may_fail: bool = True

    def poke(self, unit: Unit, patience: int) -> bool:
        """Let all lanes go on together, or (patience) those that can, or all with the answer false."""
        ready = [self.holds(phases, value) for phases, value, _ in self.conditions]
        if all(ready):
            self._release(self.mask, True, [phases for phases, _, _ in self.conditions])
            return True
        if patience >= 1 and any(ready):
            done = [each for each, holds in zip(self.conditions, ready, strict=True) if holds]
            lanes = np.logical_or.reduce([mask for _, _, mask in done])
            self._release(lanes, True, [phases for phases, _, _ in done])
            return True
        if patience >= 2 and self.may_fail:
            self._release(self.mask, False, [])
            return True
        return False

    def satisfied(self) -> bool:
        """Whether all that is waited for has happened."""
        return all(self.holds(phases, value) for phases, value, _ in self.conditions)

    def observe(self, seen: list[Phases]) -> None:
        """Tell the checks that the unit knows that these phases are over."""
        for phases in seen:
            for observer in self.unit.cta.cluster.observers:
                observer.phase_seen(phases, self.unit)
            if self.unit.cta.cluster.races is not None:
                lanes = np.logical_or.reduce([mask for each, _, mask in self.conditions if each is phases])
                self.unit.cta.cluster.races.phase_seen(phases, self.unit, lanes, self.modifiers)

    def holds(self, phases: Phases, value: int) -> bool:
        """Whether a phase is over, by parity or token."""
        test = mbarrier.test_token if self.token else mbarrier.test_parity
        return test(phases.state, value)

    def _release(self, lanes: Mask, answer: bool, seen: list[Phases]) -> None:
        unit = self.unit
        waited = [phases for phases, _, _ in self.conditions]
        self.observe(seen)
        self.finish(unit, lanes, answer)
        self.mask = self.mask & ~lanes
        if self.mask.any():
            self.conditions = [(p, v, m & ~lanes) for p, v, m in self.conditions if (m & ~lanes).any()]
        else:
            unit.waits.remove(self)
            self.conditions = []
        for phases in waited:
            if self in phases.waiters and not any(phases is p for p, _, _ in self.conditions):
                phases.waiters.remove(self)
        unit.add(self.following, lanes)

    def park(self) -> None:
        """Begin to wait."""
        self.unit.waits.append(self)
        for phases, _, _ in self.conditions:
            if self not in phases.waiters:
                phases.waiters.append(self)

    def describe(self, unit: Unit) -> str:
        """For a report: each barrier with the phase that it is in."""
        parts = []
        for phases, value, lanes in self.conditions:
            wanted = f"the phase of token {value:#x}" if self.token else f"parity {value & 1}"
            parts.append(f"{int(lanes.sum())} lanes wait for {wanted} of {phases.describe()}")
        return "; ".join(parts)
