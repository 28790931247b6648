"""What runs beside the threads, for the check of races: copies, bulk stores and products from issue to wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxbench.emulator.async_.boxes import Box
from ptxbench.emulator.checks.clocks import NEVER, WARP, Ints, Message
from ptxbench.emulator.checks.history import History, Kind, Places
from ptxbench.emulator.checks.race_ground import of_chunks, run_of
from ptxbench.emulator.checks.race_order import GPU
from ptxbench.emulator.checks.races import Access, Race, Side
from ptxbench.emulator.machine.tensor_work import Pipe

if TYPE_CHECKING:
    from ptxbench.emulator.checks.race_checks import RaceChecks, Touch
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.products import Product
    from ptxbench.emulator.machine.tensor_work import Commit, PipeWork
    from ptxbench.emulator.machine.unit import Mask, Unit
    from ptxbench.emulator.machine.work import Span, Work


@dataclass(eq=False)
class Groups:
    """What ends in the order of its groups.

    Attributes:
        read: Column of what has been read.
        written: Column of what has been written.
        commits: Groups closed so far; the open one has the next time.
    """

    read: int
    written: int
    commits: int = 0


@dataclass(eq=False)
class Engines:
    """Engines of one cluster."""

    checks: RaceChecks
    bulk: dict[int, Groups] = field(default_factory=dict)
    products: dict[int, Groups] = field(default_factory=dict)
    pipes: dict[int, Groups] = field(default_factory=dict)
    commits: Any = None
    told: dict[Commit, Message] = field(default_factory=dict)
    looked: dict[tuple[int, int, int, int], tuple[int, int]] = field(default_factory=dict)

    def _groups(self, held: dict[int, Groups], key: int) -> Groups:
        found = held.get(key)
        if found is None:
            first = self.checks.clocks.column(2)
            found = held[key] = Groups(first, first + 1)
        return found

    def _reader(self, kind: Kind, thread: int, column: int, time: int) -> int:
        checks = self.checks
        return checks.ground.entries.add(kind, checks.number, column, time, thread)

    # cp.async: per thread.

    def copied(self, unit: Unit, mask: Mask | None, touches: tuple[Touch, Touch], ends: tuple[Ints, Ints]) -> None:
        """Lanes issue a `cp.async`: what it reads, and what it writes until they waited."""
        checks, clocks = self.checks, self.checks.clocks
        lanes = unit.active(mask)
        if not lanes.size:
            return
        threads = lanes + checks.base(unit)
        if clocks.copies < 0:
            clocks.copies = clocks.column(clocks.threads)
            self.commits = np.zeros(clocks.threads, np.int32)
        numbers = np.zeros(threads.size, np.int64)
        for at, thread in enumerate(threads.tolist()):
            warp = thread // WARP * WARP
            numbers[at] = self._reader(touches[0].kind, warp, clocks.copies + warp, int(self.commits[thread]) + 1)
        for touch, addresses in zip(touches, ends, strict=True):
            for history, places, index in checks.resolved(touch, addresses[lanes]):
                count = places.size // index.size
                by, entry = np.repeat(threads[index], count), np.repeat(numbers[index], count)
                access = Access(history, places, by, entry, touch.kind)
                checks.found(checks.judge.write(access) if touch.writes else checks.judge.read(access))
                if touch.reads:
                    history.read_by_few(places, by, entry)

    def copies_committed(self, threads: Ints) -> None:
        """`cp.async.commit_group`."""
        if self.commits is not None:
            self.commits[threads] += 1

    def copies_waited(self, threads: Ints, newest: int | None) -> None:
        """`cp.async.wait_group`, or with None `wait_all`."""
        if self.commits is not None:
            waited = self.checks.clocks.waited
            over = self.commits[threads] + 1 if newest is None else self.commits[threads] - newest
            waited[threads] = np.maximum(waited[threads], over)
            self.checks.renew(threads)
            if newest is None:
                self.commits[threads] += 1

    def copies_of(self, threads: Ints) -> Message:
        """That the copies which threads have issued are over."""
        clocks = self.checks.clocks
        message = clocks.mark(0, 0)
        if self.commits is not None:
            message.own[:, clocks.copies + threads] = self.commits[threads] + 1
        return message

    # Bulk and tensor copies.

    def issued(self, work: Work) -> None:
        """A copy begins."""
        if not (work.reads or work.writes or work.outside):
            return
        thread = self.checks.base(work.unit) + work.lane
        if work.barriers:
            self._told(work, thread)
        else:
            self._grouped(work, thread)

    def _told(self, work: Work, thread: int) -> None:
        """A copy that mbarriers are told of: its end is that of the phase in which it lands."""
        checks = self.checks
        kind = Kind(work.kind, work.line, engine=True)
        columns = [checks.order.of(phases).column for phases, _ in work.barriers]
        numbers = [self._reader(kind, thread, column, NEVER) for column in columns]
        work.traces.extend(numbers)
        checks.maps.read(thread, numbers[0], work.line)
        for part in work.reads:
            self._read_run(part, thread, kind, numbers[0])
        self._outside(work, thread, kind, numbers[0])
        for place, part in enumerate(work.writes):
            self._write_run(part, thread, kind, numbers[min(place, len(numbers) - 1)])

    def _grouped(self, work: Work, thread: int) -> None:
        """A copy of a bulk group of its thread."""
        checks = self.checks
        groups = self._groups(self.bulk, thread)
        scope = GPU if "reduction" in work.kind else 0
        kind = Kind(work.kind, work.line, scope=scope, engine=True, atomic=scope > 0)
        time = groups.commits + 1
        for part in work.reads:
            self._read_run(part, thread, kind, self._reader(kind, thread, groups.read, time))
        checks.maps.read(thread, self._reader(kind, thread, groups.read, time), work.line)
        number = self._reader(kind, thread, groups.written, time)
        for history, places in self._places(work):
            checks.found(checks.judge.write(Access(history, places, np.asarray(thread), number, kind)))

    def landed(self, work: Work) -> None:
        """A copy is over in the present phase of its mbarriers."""
        times = self.checks.ground.entries.time
        for number, (phases, _) in zip(work.traces, work.barriers, strict=False):
            times[number] = phases.state.phase + 1

    def _places(self, work: Work) -> list[tuple[History, Places]]:
        """What a copy touches in global memory."""
        ground = self.checks.ground
        if work.outside is None:
            return []
        if isinstance(work.outside, Box):
            found = ground.box(work.outside, work.line)
            return [found] if found is not None else []
        address, size = work.outside
        there = ground.history(address, work.line)
        return [(there[0], run_of(address - there[1], size, ground.grains[1]))] if there and size else []

    def _outside(self, work: Work, thread: int, kind: Kind, number: int) -> None:
        """A load reads global memory through the async proxy."""
        checks = self.checks
        for history, places in self._places(work):
            access = Access(history, places, np.asarray(thread), number, kind)
            races = list(checks.judge.read(access))
            checks.found(races)
            if not races and history.written:
                author = checks.unshown(thread, history, places)
                if author is not None:
                    checks.report.unshown(author, Side(kind, checks.number, thread, write=False))
            history.read(places, number)

    def _read_run(self, part: Span, thread: int, kind: Kind, number: int) -> None:
        checks = self.checks
        history = checks.shared[part.cta.rank]
        places = run_of(part.start, part.size, checks.ground.grains[0])
        if not part.partial:
            checks.found(checks.judge.read(Access(history, places, np.asarray(thread), number, kind)))
        history.read(places, number)

    def _write_run(self, part: Span, thread: int, kind: Kind, number: int) -> None:
        checks = self.checks
        history = checks.shared[part.cta.rank]
        places = run_of(part.start, part.size, checks.ground.grains[0])
        checks.found(checks.judge.write(Access(history, places, np.asarray(thread), number, kind)))

    def bulk_committed(self, threads: Ints) -> None:
        """`cp.async.bulk.commit_group`."""
        for thread in threads.tolist():
            self._groups(self.bulk, thread).commits += 1

    def bulk_waited(self, threads: Ints, newest: int, *, read: bool) -> None:
        """`cp.async.bulk.wait_group`."""
        clocks = self.checks.clocks
        for thread in threads.tolist():
            groups = self.bulk.get(thread)
            if groups is not None and groups.commits > newest:
                columns = np.asarray([groups.read] if read else [groups.read, groups.written])
                clocks.acquire(np.asarray([thread]), clocks.mark(columns, groups.commits - newest))

    # wgmma: per unit.

    def product_issued(self, unit: Unit, product: Product) -> None:
        """A wgmma reads its operands from now on."""
        groups = self._groups(self.products, self.checks.base(unit))
        kind = Kind("wgmma", product.line, engine=True)
        for operand in product.operands():
            self._read_operand(unit, (unit.cta.rank, operand.places), kind, (groups.read, groups.commits + 1))

    def products_committed(self, unit: Unit) -> None:
        """`wgmma.commit_group`."""
        self._groups(self.products, self.checks.base(unit)).commits += 1

    def products_waited(self, unit: Unit, newest: int) -> None:
        """`wgmma.wait_group`."""
        checks = self.checks
        groups = self._groups(self.products, checks.base(unit))
        threads = checks.threads(unit, unit.live)
        # All lanes of a warp are here, and what they loaded for the products has come.
        checks.converged(unit, unit.live, visible=False)
        if groups.commits > newest:
            checks.clocks.acquire(threads, checks.clocks.mark(groups.read, groups.commits - newest))

    def _read_operand(self, unit: Unit, where: tuple[int, Any], kind: Kind, end: tuple[int, int]) -> None:
        """A tensor core reads chunks of a CTA's shared memory; any thread of the unit may know that they are there."""
        checks = self.checks
        (rank, chunks), (column, time) = where, end
        history, first = checks.shared[rank], checks.base(unit)
        number = self._reader(kind, first, column, time)
        if isinstance(chunks, slice):
            key = (rank, chunks.start, chunks.stop, column)
            state = (history.writes, time)
            if self.looked.get(key) == state:
                return
            self.looked[key] = state
        places = of_chunks(chunks, checks.ground.grains[0])
        races: Sequence[Race] = ()
        threads = checks.threads(unit, unit.live)
        _, starts = np.unique(checks.clocks.of[threads], return_index=True)
        for thread in threads[starts].tolist():
            races = list(checks.judge.read(Access(history, places, np.asarray(thread), number, kind)))
            if not races:
                break
        checks.found(races)
        history.read(places, number)

    # tcgen05: per thread that issues.

    def end_of(self, pipe: Pipe) -> tuple[int, int]:
        """When what a thread issues to the tensor core now is over: column and time."""
        groups = self._groups(self.pipes, id(pipe))
        return groups.read, groups.commits + 1

    def tensor_issued(self, work: PipeWork) -> None:
        """An mma or cp reads shared memory until a commit's phase is over."""
        groups = self._groups(self.pipes, id(work.pipe))
        kind = Kind(work.kind, work.line, engine=True)
        for cta, places, _ in work.operands:
            self._read_operand(work.unit, (cta.rank, places), kind, (groups.read, groups.commits + 1))

    def tensor_committed(self, commit: Commit, fenced: Message) -> None:
        """What the thread issued so far ends with this commit; what it knew to be over is over then too.

        Args:
            commit: The commit.
            fenced: What it tells besides.
        """
        pipe = Pipe.of(commit.unit, commit.lane)
        groups = self._groups(self.pipes, id(pipe))
        groups.commits += 1
        clocks = self.checks.clocks
        known = clocks.alone(self.checks.base(commit.unit) + commit.lane).ordering()
        self.told[commit] = clocks.mark(groups.read, groups.commits).joined(known).joined(fenced)

    def tensor_arrived(self, commit: Commit, phases: Phases) -> None:
        """The commit tells an mbarrier."""
        self.checks.order.tell(phases, self.told[commit], near=True)
        if phases is commit.told[-1]:
            del self.told[commit]
