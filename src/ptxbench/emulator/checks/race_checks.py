"""The check for races of one cluster: what the machine and the kernel's instructions tell, to order and to judge.

It sees lanes where the other checks see units, and global memory too. Proxies of shared memory are theirs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptxbench.emulator.checks.clocks import VISIBLE, WARP, Clocks, Ints
from ptxbench.emulator.checks.history import History, Kind, Places
from ptxbench.emulator.checks.race_engines import Engines
from ptxbench.emulator.checks.race_ground import Ground, by_rank, by_space, spread
from ptxbench.emulator.checks.race_maps import MapRaces
from ptxbench.emulator.checks.race_order import CLUSTER, SCOPES, SYS, Order, Semantics
from ptxbench.emulator.checks.race_texts import RaceReporter
from ptxbench.emulator.checks.races import Access, Judge, Race, Side

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cluster import Cluster
    from ptxbench.emulator.machine.named import NamedBarrier, Waiting
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.unit import Mask, Unit

_MBARRIER = "mbarrier"
_NOTHING = Semantics()
_SETTLED, _ORDERED_ONLY, _NEW = 0, 1, 2
"""What a warp's lanes know of each other: all, only that it is over, or not all."""


@dataclass(frozen=True)
class Touch:
    """What an instruction does to memory.

    Attributes:
        space: `global`, `shared` or `generic`.
        size: Bytes of one access.
        flag: Whether others may learn something from its value.
    """

    kind: Kind
    space: str
    size: int
    reads: bool
    writes: bool
    how: Semantics = _NOTHING
    flag: bool = False


class RaceChecks:
    """Watches one cluster.

    Attributes:
        how: What the instruction that runs asks for.
        mask: The lanes that execute it.
    """

    def __init__(self, cluster: Cluster, ground: Ground, report: RaceReporter) -> None:
        self.ground, self.report = ground, report
        self.per_cta = ground.per_cta
        self.number = cluster.number
        threads = self.per_cta * len(cluster.ctas)
        self.clocks = Clocks(threads, cluster.number)
        self.order = Order(self.clocks, self.per_cta, ground.flags, fences=ground.fences)
        self.judge = Judge(self.clocks, ground.entries, self.per_cta, ground.undecided)
        grain, rows = ground.grains[0], self.clocks.now.size
        self.shared = [
            History(f"shared of {cta.name()}", cta.shared.bytes.size // grain, rows, ground.entries)
            for cta in cluster.ctas
        ]
        self.how = Semantics(releases=True, acquires=True)
        self.mask: Mask | None = None
        self.births: dict[Phases, tuple[int, int, int]] = {}
        self.fenced: dict[int, int] = {}
        self.ready: set[tuple[int, int]] = set()
        self.news = np.full(rows, _NEW, np.int8)
        self.engines = Engines(self)
        self.maps = MapRaces(self)
        self._numbers: dict[Kind, tuple[tuple[int, list[int]], Ints]] = {}

    def base(self, unit: Unit) -> int:
        """The first thread of a unit."""
        return unit.cta.rank * self.per_cta + unit.first

    def threads(self, unit: Unit, mask: Mask | None) -> Ints:
        """The threads of lanes."""
        made: Ints = unit.active(mask) + self.base(unit)
        return made

    def entries(self, kind: Kind, threads: Ints) -> Ints:
        """For each thread the entry of what its warp does now."""
        warps = threads // WARP
        first, last = int(warps[0]), int(warps[-1])
        times = self.clocks.now[first : last + 1].tolist()
        known = self._numbers.get(kind)
        if known is None or known[0] != (first, times):
            add, number = self.ground.entries.add, self.number
            each = [add(kind, number, warp * WARP, time, warp * WARP) for warp, time in enumerate(times, first)]
            known = self._numbers[kind] = ((first, times), np.asarray(each))
        numbers: Ints = known[1][warps - first]
        return numbers

    def renew(self, threads: Ints) -> None:
        """These threads did something of which the other lanes of their warps do not know."""
        self.news[threads // WARP] = _NEW

    def found(self, races: Iterable[Race]) -> None:
        """Report races."""
        for race in races:
            self.report.race(race)

    # What instructions do.

    def doing(self, mask: Mask | None, how: Semantics) -> None:
        """An instruction with these lanes begins."""
        self.mask, self.how = mask, how

    def touched(
        self, unit: Unit, mask: Mask | None, touch: Touch, addresses: Ints, values: Sequence[Ints] | None = None
    ) -> None:
        """Lanes load, store or update memory.

        Args:
            unit: The unit.
            mask: Its lanes that do.
            touch: What they do.
            addresses: Over all lanes.
            values: Of a store: what is stored, over all lanes.
        """
        lanes = unit.active(mask)
        if not lanes.size:
            return
        threads = lanes + self.base(unit)
        self.touch_all(touch, threads, addresses[lanes], None if values is None else [each[lanes] for each in values])

    def allocated(self, unit: Unit, lane: Mask, addresses: Ints) -> None:
        """A lane of a warp writes where the tensor memory is that `tcgen05.alloc` took."""
        kind = Kind("tcgen05.alloc", unit.line)
        self.touched(unit, lane, Touch(kind, "shared", 4, reads=False, writes=True), addresses)

    def touch_all(self, touch: Touch, threads: Ints, addresses: Ints, values: Sequence[Ints] | None = None) -> None:
        """Threads, ascending, each with an address."""
        if touch.flag and touch.reads:
            self._flags(touch, threads, addresses, write=False)
        self.renew(threads)
        numbers = self.entries(touch.kind, threads)
        for history, places, index in self.resolved(touch, addresses):
            count = places.size // index.size
            by, entry = (each[index] if count == 1 else np.repeat(each[index], count) for each in (threads, numbers))
            access = Access(history, places, by, entry, touch.kind)
            if touch.writes:
                if values is not None and threads.size > 1:
                    self._together(access, [each[index] for each in values], count)
                self.found(self.judge.write(access))
            else:
                self.found(self.judge.read(access))
                history.read_by_lanes(places, by, entry, self.clocks)
        if touch.flag and touch.writes:
            self._flags(touch, threads, addresses, write=True)

    def resolved(self, touch: Touch, addresses: Ints) -> Iterable[tuple[History, Ints, Ints]]:
        """Memories, places (those of one access together) and the numbers of the accesses."""
        for space, there, which in by_space(touch.space, addresses):
            if space == "global":
                found = self.ground.global_places(there.astype(np.uint64, copy=False), touch.size, touch.kind.line)
                yield from ((history, places, which[index]) for history, places, index in found)
            elif space == "shared":
                for rank, offsets, index in by_rank(there):
                    if rank < len(self.shared):
                        grain = self.ground.grains[0]
                        yield self.shared[rank], spread(offsets, touch.size, grain), which[index]

    def _flags(self, touch: Touch, threads: Ints, addresses: Ints, *, write: bool) -> None:
        for thread, address in zip(threads.tolist(), addresses.tolist(), strict=True):
            shared = touch.space == "shared" or address >> 40 == 0x7F
            key = (self.number, address & 0xFFFF_FFFF) if shared else address
            if write:
                self.order.write_flag(key, thread, touch.how, adds=touch.kind.atomic)
            else:
                self.order.read_flag(key, thread, touch.how)

    def _together(self, access: Access, values: Sequence[Ints], count: int) -> None:
        """Lanes of one store with one place and different values."""
        places = access.places
        assert isinstance(places, np.ndarray)
        if (np.diff(places) > 0).all():
            return
        there, inverse = np.unique(places, return_inverse=True)
        if there.size == places.size:
            return
        rows = np.stack(values, axis=1)
        raw = np.ascontiguousarray(rows).view(np.uint8).reshape(places.size, -1)
        last = np.zeros((there.size, raw.shape[1]), np.uint8)
        last[inverse] = raw
        different = np.flatnonzero((last[inverse] != raw).any(axis=1))
        if different.size and not access.kind.scope:
            name, _, owner = access.history.name.partition(" of ")
            grain = self.ground.grains[0 if owner else 1]
            where = f"{name}+{int(places[different[0]]) * grain:#x}{' of ' + owner if owner else ''}"
            self.report.together(access.kind.line, access.kind.name, where)

    # Barriers.

    def barrier_arrived(self, barrier: NamedBarrier, unit: Unit, mask: Mask) -> None:
        """Lanes arrive at a CTA barrier."""
        threads = self.threads(unit, mask)
        if threads.size:
            self.order.arrive(id(barrier), threads)

    def barrier_passed(self, barrier: NamedBarrier, waiting: Sequence[Waiting]) -> None:
        """A CTA barrier lets these lanes go on."""
        parts = [self.threads(each.unit, each.mask) for each in waiting]
        threads = np.concatenate(parts) if parts else np.zeros(0, np.intp)
        self.order.leave(id(barrier), threads)
        if barrier.expected is None:
            self.order.leave_behind_exits(threads)

    def exited(self, unit: Unit, mask: Mask) -> None:
        """Lanes exit: barriers of all threads miss them no more."""
        threads = self.threads(unit, mask)
        if threads.size:
            self.order.exit(threads)

    def cluster_arrived(self, unit: Unit, mask: Mask) -> None:
        """Lanes arrive at the cluster's barrier."""
        threads = self.threads(unit, mask)
        if threads.size:
            self.order.arrive_cluster(threads, releases=self.how.releases)

    def cluster_complete(self) -> None:
        """Everybody has arrived there."""
        self.order.complete_cluster()

    def cluster_passed(self, unit: Unit, mask: Mask) -> None:
        """Lanes go on behind the wait."""
        threads = self.threads(unit, mask)
        if threads.size:
            self.order.leave_cluster(threads)

    def converged(self, unit: Unit, mask: Mask | None, *, visible: bool) -> None:
        """Lanes execute an instruction of a whole warp together."""
        threads = self.threads(unit, mask)
        left = _ORDERED_ONLY if not visible else _SETTLED
        for warp in np.unique(threads // WARP).tolist():
            mine = threads[threads // WARP == warp]
            groups = self.clocks.of[mine]
            if self.news[warp] > left or not (groups == groups[0]).all():
                self.order.converge(mine, visible=visible)
                self.news[warp] = left

    # mbarriers.

    def initialised(self, phases: Phases, unit: Unit) -> None:
        """An mbarrier begins to be one."""
        thread = int(self.threads(unit, self.mask)[0])
        self.renew(np.asarray([thread]))
        self.births[phases] = (thread, int(self.clocks.now[thread // WARP]), unit.line)

    def used(self, phases: Phases, unit: Unit) -> None:
        """Lanes use an mbarrier: its initialisation must be visible, or fenced for that and over."""
        birth = self.births.get(phases)
        if birth is None:
            return
        author, time, line = birth
        for thread in self.threads(unit, self.mask).tolist():
            group = (id(phases), int(self.clocks.of[thread]))
            if thread == author or group in self.ready:
                continue
            known = [self.clocks.knows_of(thread, row, (self.number, author, time)) for row in (0, 1)]
            if known[VISIBLE] or (known[1] and self.fenced.get(author, 0) >= time):
                self.ready.add(group)
                continue
            hint = "fence.mbarrier_init.release.cluster behind mbarrier.init, or a barrier that releases and acquires"
            hint = hint if known[1] else "a barrier of all its users behind mbarrier.init"
            side = Side(Kind(_MBARRIER, unit.line), self.number, thread, write=False)
            where = f"mbarrier shared+{phases.offset:#x} of {phases.cta.name()}"
            self.report.uninitialised(where, side, line, hint)
            return

    def arrived(self, phases: Phases, unit: Unit, lanes: Mask, *, copies: bool = False) -> None:
        """Lanes, or with `copies` their `cp.async`, arrive at an mbarrier."""
        threads = self.threads(unit, lanes)
        if not threads.size:
            return
        if copies:
            self.order.tell(phases, self.engines.copies_of(threads), near=True)
        else:
            self.order.arrive_at(phases, threads, self.how)

    def phase_complete(self, phases: Phases) -> None:
        """A phase is over."""
        self.order.complete(phases)

    def phase_seen(self, phases: Phases, unit: Unit, lanes: Mask, modifiers: Sequence[str]) -> None:
        """Lanes know that a phase is over."""
        how = Semantics(acquires="relaxed" not in modifiers, scope=CLUSTER if "cluster" in modifiers else 1)
        self.order.saw(phases, self.threads(unit, lanes), how)

    # Fences.

    def fence(self, unit: Unit, words: Sequence[str], mask: Mask | None) -> None:
        """`fence` or `membar` with these modifiers."""
        threads = self.threads(unit, mask)
        if not threads.size or words[0] in ("wgmma", "tcgen05"):
            return
        if words[0] == "mbarrier_init":
            for thread in threads.tolist():
                self.fenced[thread] = int(self.clocks.now[thread // WARP])
            self.clocks.advance(threads)
        elif words[0] == "proxy":
            if words[1] in ("async", "async.global") or words[1:3] == ("async", "global"):
                self.order.show(threads)
        else:
            scope = next((SCOPES[word] for word in words if word in SCOPES), SYS)
            self.order.fence(threads, scope)

    def unknown(self, what: str, line: int) -> None:
        """Something runs that the check knows nothing of."""
        self.ground.undecided.setdefault(what, line)

    def unshown(self, thread: int, history: History, places: Places) -> Side | None:
        """An ordinary write of global memory that no proxy fence of its author shows to the async proxy."""
        entries = self.ground.entries
        pairs = np.unique(np.stack([history.writer[places], history.lane[places].astype(np.int32)]), axis=1)
        for number, lane in pairs.T.tolist():
            author = entries.kinds[int(entries.kind[number])]
            if number == 0 or author.engine:
                continue
            column = self.order.shown + int(entries.column[number]) + lane
            place = (int(entries.cluster[number]), column, int(entries.time[number]))
            if self.order.shown < 0 or not self.clocks.knows_of(thread, VISIBLE, place):
                return Side(author, int(entries.cluster[number]), int(entries.owner[number]) + lane, write=True)
        return None
