"""Accesses to tensor memory against those before them, whoever keeps the order: judges cells, knows no clocks.

An access is right if what it meets is complete, known, and fenced: tcgen05.fence::before_thread_sync by the other side
(a commit implies it), ::after_thread_sync here. PTX ISA, section tcgen05 Memory Consistency Model.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from ptxbench.emulator.checks.observer import Observer
from ptxbench.emulator.checks.shadow import PENDING
from ptxbench.emulator.checks.tensor_shadow import Entry, TensorShadow
from ptxbench.emulator.checks.tensor_texts import Access, TensorReporter
from ptxbench.emulator.machine.tensor_work import PipeWork, TensorWork, WarpMove

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cta import Cta
    from ptxbench.emulator.machine.tensor_memory import Region
    from ptxbench.emulator.machine.unit import Unit

# Pairs of kinds that the ISA lets a thread's pipe keep in order although the shapes say nothing.
_ORDERED = {("cp", "mma"), ("cp4", "mma"), ("shift", "mma"), ("mma", "shift"), ("shift", "cp4")}
# Not among them, but in order on every known device: scale factors are copied over those of the product before.
_OPEN = {("mma", "cp"), ("mma", "cp4"), ("cp", "cp"), ("cp4", "cp4"), ("cp", "cp4"), ("cp4", "cp")}


class TensorCells(Observer):
    """Watches one cluster's tensor memory.

    Attributes:
        rows: Rows of units or warps in the shadows; those of pipes lie behind them.
        times: The time of what each pipe issues now; a commit begins a later one.
    """

    def __init__(self, report: TensorReporter, rows: int) -> None:
        self.report = report
        self.rows = rows
        self.shadows: dict[int, TensorShadow] = {}
        self.times: dict[int, int] = {}
        self.moves: dict[int, Entry] = {}
        self.latest: dict[int, tuple[tuple[object, ...], tuple[int, ...]]] = {}

    @abstractmethod
    def row(self, work: TensorWork) -> int:
        """Who does a piece of work: a unit or a warp, or behind these a pipe."""

    @abstractmethod
    def access(self, unit: Unit, region: Region, work: TensorWork | None, line: int) -> Access:
        """An access of work, or (None) of tcgen05.dealloc."""

    @abstractmethod
    def past(self, access: Access, other: Entry) -> str:
        """Empty if what came before is over and fenced for whoever accesses; else what is missing."""

    def reads_shared(self, work: PipeWork, entry: Entry) -> None:
        """A pipe's work reads shared memory until a commit's phase says that it is over."""

    def shadow(self, cta: Cta) -> TensorShadow:
        """What is remembered of a CTA's tensor memory."""
        found = self.shadows.get(id(cta))
        if found is None:
            found = self.shadows[id(cta)] = TensorShadow(self.rows)
        return found

    def tensor_issued(self, work: TensorWork) -> None:
        """Compare with everything that the work may meet, then remember it."""
        row = self.row(work)
        if isinstance(work, PipeWork):
            entry = Entry(row, self.times.setdefault(row, 1), work.line, work.kind, work.place)
            self.reads_shared(work, entry)
            if self._again(work, entry):
                return
        else:
            entry = Entry(row, PENDING, work.line, work.kind)
            self.moves[id(work)] = entry
        for region in work.sources:
            self._read(self.access(work.unit, region, work, work.line), entry)
        for region in work.targets:
            self._write(self.access(work.unit, region, work, work.line), entry)
        for region in work.sources:
            self.shadow(region.cta).read(region, entry)
        for region in work.targets:
            self.shadow(region.cta).write(region, entry)
        self.latest[row] = self._state(work, entry)

    def over(self, move: WarpMove, time: int) -> None:
        """A load or store of a warp is over."""
        entry = self.moves.pop(id(move), None)
        if entry is not None:
            entry.time = time

    def tensor_freed(self, unit: Unit, region: Region, line: int) -> None:
        """What others did with the columns must be over and known; no fence is asked for."""
        shadow = self.shadow(region.cta)
        access = self.access(unit, region, None, line)
        for other in (*shadow.writers(region), *shadow.readers(region)):
            if other is not None and self.past(access, other) in ("pending", "unknown"):
                self.report.race(access, other, ("frees", self.past(access, other)), uncommitted=False)
        shadow.forget(region)

    def _state(self, work: TensorWork, entry: Entry) -> tuple[tuple[object, ...], tuple[int, ...]]:
        """What must be the same for the same product to meet nothing new."""
        regions = (*work.sources, *work.targets)
        key = (entry.place, entry.time, tuple((id(x.cta), x.columns.start, x.groups.start) for x in regions))
        return key, tuple(self.shadow(each.cta).version for each in regions)

    def _again(self, work: TensorWork, entry: Entry) -> bool:
        """Whether the thread's last product used the same cells, and nobody has been there since."""
        return bool(work.targets) and self.latest.get(entry.row) == self._state(work, entry)

    def _read(self, access: Access, entry: Entry) -> None:
        for other in self.shadow(access.region.cta).writers(access.region):
            if other is None:
                by_halves = access.kind == "tcgen05.ld" and self.shadow(access.region.cta).half_written(access.region)
                self.report.never_written(access, by_halves=by_halves)
            else:
                self._compare(access, entry, other, "reads")

    def _write(self, access: Access, entry: Entry) -> None:
        shadow = self.shadow(access.region.cta)
        for other in shadow.writers(access.region):
            if other is not None:
                self._compare(access, entry, other, "overwrites")
        for other in shadow.readers(access.region):
            if other.row == entry.row and other.place and entry.place and self.past(access, other):
                self.report.open_order(access, other)
            else:
                self._compare(access, entry, other, "overwrites")

    def _compare(self, access: Access, entry: Entry, other: Entry, doing: str) -> None:
        """Judge one access against one that came before."""
        if other is entry or (other.row == entry.row and self._in_order(access, entry, other)):
            return
        verdict = self.past(access, other)
        if verdict:
            uncommitted = other.row >= self.rows and other.time == self.times.get(other.row)
            self.report.race(access, other, (doing, verdict), uncommitted=uncommitted)

    def _in_order(self, access: Access, entry: Entry, other: Entry) -> bool:
        """Whether one thread's pipe (or one warp) keeps the two in order by itself."""
        if not entry.place or not other.place:
            return other.time != PENDING
        pair = (str(other.place[0]), str(entry.place[0]))
        if entry.place == other.place or pair in _ORDERED:
            return True
        if pair in _OPEN:
            if self.past(access, other):
                self.report.open_order(access, other)
            return True
        return False
