"""What orders threads, as events on clocks: barriers, mbarriers, fences, flags in memory; looks at no data.

PTX ISA, section Memory Consistency Model. A flag is any place that is written and read by strong operations: a
release, or a fence before the write, leaves a message there; an acquire, or a fence behind the read, takes it. Both
must be within each other's scope; else they order, and make nothing visible.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ptxbench.emulator.checks.clocks import ORDERED, VISIBLE, WARP, Clocks, Ints, Message

if TYPE_CHECKING:
    from ptxbench.emulator.machine.phases import Phases

CTA, CLUSTER, GPU, SYS = 1, 2, 3, 4
SCOPES = {"cta": CTA, "cluster": CLUSTER, "gpu": GPU, "gl": GPU, "sys": SYS}
Home = tuple[int, int, int]
"""Cluster, CTA and scope of a release."""


@dataclass(frozen=True)
class Semantics:
    """What a synchronising operation asks for.

    Attributes:
        releases: Whether earlier accesses of its thread come with it.
        acquires: Whether later ones come behind it.
        scope: `CTA` to `SYS`.
    """

    releases: bool = False
    acquires: bool = False
    scope: int = CTA


@dataclass(eq=False)
class Flag:
    """What was released at one place in memory, by those who did it."""

    messages: dict[Home, Message] = field(default_factory=dict)


@dataclass(eq=False)
class PhaseClock:
    """What an mbarrier carries: `near` from its own CTA and from copies, `far` by releases of other CTAs."""

    column: int
    near: Message | None = None
    far: Message | None = None
    pending: tuple[Message | None, Message | None] = (None, None)


@dataclass(frozen=True)
class _Fence:
    """A thread's last fence: what its class knew then, its own time, and the scope."""

    known: Message
    time: int
    scope: int


class Order:
    """Keeps the clocks of one cluster.

    Attributes:
        clocks: The clocks.
        per_cta: Threads of a CTA.
        flags: Places of all clusters at which something was released.
        flushed: First of the columns that say before which time a thread fenced for the device; -1: nobody does.
        shown: As `flushed`, for proxy fences of global memory.
    """

    def __init__(self, clocks: Clocks, per_cta: int, flags: dict[Hashable, Flag], *, fences: bool) -> None:
        self.clocks = clocks
        self.per_cta = per_cta
        self.flags = flags
        self.flushed = clocks.column(clocks.threads) if fences else -1
        self.shown = clocks.column(clocks.threads) if fences else -1
        self.phases: dict[Phases, PhaseClock] = {}
        self.named: dict[int, Message] = {}
        self.gone: dict[int, Message] = {}
        self.round: tuple[Message | None, Message | None] = (None, None)
        self._fences: dict[int, _Fence] = {}
        self._seen: dict[int, Message] = {}

    # Barriers.

    def arrive(self, name: int, threads: Ints) -> None:
        """Threads arrive at a CTA barrier."""
        self.named[name] = self.clocks.release(threads).joined(self.named.get(name))

    def leave(self, name: int, threads: Ints) -> None:
        """The barrier lets these threads go on; its round is over."""
        message = self.named.pop(name, None)
        if message is not None and threads.size:
            self.clocks.acquire(threads, message)

    def exit(self, threads: Ints) -> None:
        """Threads of one CTA exit: who passes a barrier of all threads later comes behind them, and sees nothing."""
        made = self.clocks.release(threads).ordering()
        cta = int(threads[0]) // self.per_cta
        self.gone[cta] = made.joined(self.gone.get(cta))
        done, pending = self.round
        self.round = (done, made.joined(pending))

    def leave_behind_exits(self, threads: Ints) -> None:
        """Threads of one CTA pass a barrier of all its threads."""
        message = self.gone.get(int(threads[0]) // self.per_cta) if threads.size else None
        if message is not None:
            self.clocks.acquire(threads, message)

    def arrive_cluster(self, threads: Ints, *, releases: bool) -> None:
        """Threads arrive at the cluster's barrier."""
        made = self.clocks.release(threads)
        done, pending = self.round
        made = made if releases else made.ordering().joined(self._fenced(threads, CLUSTER))
        self.round = (done, made.joined(pending))

    def complete_cluster(self) -> None:
        """Everybody has arrived."""
        done, pending = self.round
        self.round = (pending.joined(done) if pending is not None else done, None)

    def leave_cluster(self, threads: Ints) -> None:
        """Threads go on behind their wait."""
        if self.round[0] is not None:
            self.clocks.acquire(threads, self.round[0])

    def converge(self, threads: Ints, *, visible: bool) -> None:
        """Threads of one warp execute something together: `bar.warp.sync`, or without `visible` a shuffle or vote."""
        self.clocks.acquire(threads, self.clocks.release(threads), visible=visible)

    # mbarriers.

    def of(self, phases: Phases) -> PhaseClock:
        """The clock of an mbarrier, made on first use."""
        found = self.phases.get(phases)
        if found is None:
            found = self.phases[phases] = PhaseClock(self.clocks.column())
        return found

    def arrive_at(self, phases: Phases, threads: Ints, how: Semantics) -> None:
        """Threads arrive at an mbarrier, of their own CTA or of another one."""
        made = self.clocks.release(threads)
        if not how.releases:
            made = made.ordering().joined(self._fenced(threads, how.scope))
        self.tell(phases, made, near=int(threads[0]) // self.per_cta == phases.cta.rank, scope=how.scope)

    def tell(self, phases: Phases, message: Message, *, near: bool, scope: int = CTA) -> None:
        """Leave a message for whoever sees the end of the phase in progress."""
        clock = self.of(phases)
        first, second = clock.pending
        if near:
            clock.pending = (message.joined(first), second)
        elif scope >= CLUSTER:
            clock.pending = (first, message.joined(second))
        else:
            clock.pending = (message.ordering().joined(first), second)

    def complete(self, phases: Phases) -> None:
        """A phase is over; so are the copies that told it."""
        clock = self.of(phases)
        first, second = clock.pending
        clock.pending = (None, None)
        over = self.clocks.mark(clock.column, phases.state.phase)
        clock.near = over.joined(clock.near).joined(first)
        clock.far = second.joined(clock.far) if second is not None else clock.far

    def saw(self, phases: Phases, threads: Ints, how: Semantics) -> None:
        """Threads have seen that phases are over."""
        clock = self.of(phases)
        if clock.near is not None:
            self.clocks.acquire(threads, clock.near, visible=how.acquires)
        if clock.far is not None:
            self.clocks.acquire(threads, clock.far, visible=how.acquires and how.scope >= CLUSTER)

    # Fences and flags.

    def fence(self, threads: Ints, scope: int) -> None:
        """`fence`, `membar`: what comes before is released by later strong writes, what was seen is acquired."""
        waiting = [int(each) for each in threads.tolist() if each in self._seen]
        for each in waiting:
            self.clocks.acquire(np.asarray([each]), self._seen.pop(each))
        known: dict[int, Message] = {}
        groups = self.clocks.of[threads].tolist()
        for thread, group in zip(threads.tolist(), groups, strict=True):
            if group not in known:
                known[group] = self.clocks.alone(thread)
        if scope >= GPU and self.flushed >= 0:
            self._mark(self.flushed, threads)
        times = self.clocks.advance(threads).tolist()
        for thread, group, time in zip(threads.tolist(), groups, times, strict=True):
            self._fences[thread] = _Fence(known[group], time, scope)

    def _fenced(self, threads: Ints, scope: int) -> Message | None:
        """What fences of these threads released before something relaxed."""
        made: Message | None = None
        fences = self._fences
        for thread in threads.tolist() if fences else ():
            if thread in fences and fences[thread].scope >= scope:
                own = fences[thread].known.own.copy()
                own[:, thread] = fences[thread].time
                made = Message(own, fences[thread].known.others).joined(made)
        return made

    def show(self, threads: Ints) -> None:
        """`fence.proxy.async`: what these threads did in global memory can be seen by the async proxy."""
        if self.shown >= 0:
            self._mark(self.shown, threads)
            self.clocks.advance(threads)

    def _mark(self, first: int, threads: Ints) -> None:
        clock = np.zeros((2, self.clocks.width), np.int32)
        clock[:, first + threads] = self.clocks.now[threads // WARP]
        self.clocks.acquire(threads, Message(clock))

    def write_flag(self, key: Hashable, thread: int, how: Semantics, *, adds: bool) -> None:
        """A strong write, or (with `adds`) an atomic operation, which goes on with what others released there."""
        message, scope = self._released(thread, how)
        flag = self.flags.get(key) if adds else None
        if flag is None:
            flag = self.flags[key] = Flag()
        home = (self.clocks.number, thread // self.per_cta, scope)
        flag.messages[home] = message.joined(flag.messages.get(home))

    def _released(self, thread: int, how: Semantics) -> tuple[Message, int]:
        """What a strong write of a thread carries, and in which scope."""
        if how.releases:
            return self.clocks.release(np.asarray([thread])), how.scope
        fence = self._fences.get(thread)
        known = self.clocks.alone(thread).ordering()
        known.own[ORDERED, thread] = self.clocks.advance(np.asarray([thread]))[0]
        if self.flushed >= 0:
            # By the rule the thread that writes must have fenced; that the others did before a barrier is enough here.
            count = self.clocks.threads
            fenced = known.own[ORDERED, self.flushed : self.flushed + count]
            known.own[VISIBLE, :count] = np.minimum(known.own[ORDERED, :count], fenced)
        if fence is None:
            return known, how.scope
        own = fence.known.own.copy()
        own[:, thread] = fence.time
        return Message(own, fence.known.others).joined(known), min(fence.scope, how.scope)

    def read_flag(self, key: Hashable, thread: int, how: Semantics) -> None:
        """A strong read: an acquire learns what was released, others keep it for their next fence."""
        flag = self.flags.get(key)
        if flag is None:
            return
        for (cluster, cta, scope), message in flag.messages.items():
            if cluster == self.clocks.number and cta == thread // self.per_cta:
                needed = CTA
            else:
                needed = CLUSTER if cluster == self.clocks.number else GPU
            seen = message.seen_from(cluster, self.clocks.number)
            if min(scope, how.scope) < needed:
                seen = seen.ordering()
            if how.acquires:
                self.clocks.acquire(np.asarray([thread]), seen)
            else:
                self.clocks.acquire(np.asarray([thread]), seen, visible=False)
                self._seen[thread] = seen.joined(self._seen.get(thread))
