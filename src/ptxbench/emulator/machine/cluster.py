"""One cluster runs: its units in turn, asynchronous work when its schedule says so, deadlocks and spins; no grid.

Nothing can run: the oldest asynchronous work lands; then lanes that could go on without their neighbours do; then
`try_wait` answers false. If after that nothing has changed, the cluster is stuck.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxbench.emulator.machine.cta import Cta, Place
from ptxbench.emulator.machine.dependence import depends
from ptxbench.emulator.machine.named import ClusterBarrier
from ptxbench.emulator.machine.run import run_unit
from ptxbench.emulator.machine.unit import Unit

if TYPE_CHECKING:
    from ptxbench.emulator.machine.kernel import Kernel
    from ptxbench.emulator.machine.schedule import Schedule

# Rounds of polling in which nothing changed, after which a spin is taken for endless; bounded tries end before.
_SPIN_ROUNDS = 64
_MOST_TRIES = 1000
"""How often a wait fails, with nothing else going on, in a loop that counts something."""


class Cluster:
    """The CTAs of one cluster and what they share.

    Attributes:
        changed: Grows with every change of memory or barriers that somebody else could see.
        refused: Whether it is known that no cluster is left to cancel.
        pending: Asynchronous work not yet landed, oldest first.
        races: What looks for races, if anything does; it is told of lanes where observers are told of units.
    """

    def __init__(self, kernel: Kernel, number: int, places: list[Place], schedule: Schedule) -> None:
        self.kernel = kernel
        self.number = number
        self.schedule = schedule
        self.changed = 0
        self.refused = False
        self.pending: deque[Any] = deque()
        self.barrier = ClusterBarrier(self)
        self.observers: list[Any] = []
        self.races: Any = None
        self.ctas: list[Cta] = []
        self.ready: deque[Unit] = deque()
        self.pollers: list[Unit] = []
        self.ctas = [Cta(self, place, rank) for rank, place in enumerate(places)]
        for cta in self.ctas:
            for unit in cta.units:
                unit.constants = kernel.constants.of(unit, kernel.specs)
        self.observers = kernel.observers_of(self)
        kernel.gathers = kernel.gathers or any(each.gathers for each in self.observers)
        self._idle = 0
        self._seen = -1
        self._registers = 0
        for cta in self.ctas:
            for unit in cta.units:
                self.wake(unit)

    @property
    def units(self) -> list[Unit]:
        """All units of all CTAs."""
        return [unit for cta in self.ctas for unit in cta.units]

    @property
    def live_threads(self) -> int:
        """Threads that have not exited."""
        return sum(cta.live for cta in self.ctas)

    @property
    def done(self) -> bool:
        """Whether all threads have exited."""
        return not any(cta.live for cta in self.ctas)

    def wake(self, unit: Unit) -> None:
        """A unit may be able to go on."""
        if not unit.queued:
            unit.queued = True
            self.ready.append(unit)

    def advance(self, outside: int) -> str:
        """Run until the cluster is done or needs others.

        Args:
            outside: The change count of everything outside of the cluster.

        Returns:
            `done`, `spins` (it polls memory that others must write), `depends` (it waits for the kernel in front) or
            `stuck`.
        """
        while True:
            while self.ready:
                self._run_one()
            if self.done:
                self.finish()
                return "done"
            if self._land_one():
                continue
            held = self.kernel.held
            if held is not None and not held.landed and depends(self.units):
                self._requeue_pollers()
                return "depends"
            if self._poke():
                continue
            verdict = self._stalled(outside)
            if verdict:
                return verdict

    def _run_one(self) -> None:
        place = self.schedule.choose(len(self.ready))
        self.ready.rotate(-place)
        unit = self.ready.popleft()
        unit.queued = False
        for waiter in list(unit.waits):
            waiter.poke(unit, 0)
        if not unit.groups:
            return
        since = self.kernel.spent
        run_unit(unit, self.kernel, self.schedule.quantum())
        for observer in self.observers:
            observer.ran(unit, since)
        if unit.polled:
            unit.polled = False
            self.pollers.append(unit)
        elif unit.groups and not unit.queued:
            self.wake(unit)
        if self.schedule.land_now() and self.pending:
            self.land(self.schedule.choose(len(self.pending)))

    def land(self, place: int) -> None:
        """Complete one piece of pending work."""
        work = self.pending[place]
        del self.pending[place]
        work.land()

    def _land_one(self) -> bool:
        if not self.pending:
            return False
        waited = next((place for place, work in enumerate(self.pending) if work.signals), 0)
        self.land(waited)
        self._requeue_pollers()
        return True

    def _requeue_pollers(self) -> None:
        pollers, self.pollers = self.pollers, []
        for unit in pollers:
            self.wake(unit)

    def _poke(self) -> bool:
        """Let lanes go on that wait only for neighbours: partial success, then partial warps."""
        for unit in self.units:
            for waiter in list(unit.waits):
                if waiter.poke(unit, 1):
                    self.wake(unit)
                    return True
        return any(barrier.give_up_partial() for cta in self.ctas for barrier in cta.named.values())

    def _stalled(self, outside: int) -> str:
        """Nothing inside can run: poll again, let `try_wait` fail, or give up."""
        now = self.changed + outside
        if now != self._seen:
            self._seen, self._idle = now, 0
        self._idle += 1
        tried, again = False, self._idle <= 2 or (self._idle <= _MOST_TRIES and self._counts())
        if self._idle == 2:
            self._counts()
        for unit in self.units:
            for waiter in list(unit.waits):
                if again and waiter.poke(unit, 2):
                    self.wake(unit)
                    tried = True
        polls = bool(self.pollers)
        if tried or (polls and self._idle <= _SPIN_ROUNDS):
            self._requeue_pollers()
            return "" if tried or self._idle % 8 else "spins"
        return "stuck"

    def _counts(self) -> bool:
        """Whether registers have changed since it was last asked: a loop that counts its tries may give up."""
        before = self._registers
        self._registers = hash(
            tuple(each.tobytes() for unit in self.units for each in unit.registers if isinstance(each, np.ndarray))
        )
        return self._registers != before

    def finish(self) -> None:
        """All threads have exited: what is still in flight lands."""
        while self.pending:
            self.land(0)
