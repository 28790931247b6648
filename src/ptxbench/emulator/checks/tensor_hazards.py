"""Races on tensor memory, and of the tensor core on shared memory: order, completion, tcgen05 fences; no numbers.

The work of a thread's tensor pipe has a row of its own in the clocks; a commit's arrival carries it. An access is right
if what it meets is complete, known through a barrier, and fenced: tcgen05.fence::before_thread_sync by the other warp
(a commit implies it), ::after_thread_sync here. PTX ISA, section tcgen05 Memory Consistency Model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptxbench.emulator.checks.observer import Observer
from ptxbench.emulator.checks.order import BarrierClock, Clock, join
from ptxbench.emulator.checks.shadow import PENDING
from ptxbench.emulator.checks.tensor_shadow import Entry, TensorShadow
from ptxbench.emulator.checks.tensor_texts import Access, TensorReporter
from ptxbench.emulator.machine.tensor_work import PipeWork, TensorWork

if TYPE_CHECKING:
    from ptxbench.emulator.checks.hazards import Hazards
    from ptxbench.emulator.machine.blocks import RunBlock
    from ptxbench.emulator.machine.cta import Cta
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.tensor_memory import Region
    from ptxbench.emulator.machine.tensor_work import Commit, WarpMove
    from ptxbench.emulator.machine.unit import Mask, Unit

# Pairs of kinds that the ISA lets a thread's pipe keep in order although the shapes say nothing.
_ORDERED = {("cp", "mma"), ("cp4", "mma"), ("shift", "mma"), ("mma", "shift"), ("shift", "cp4")}
# Not among them, but in order on every known device: scale factors are copied over those of the product before.
_OPEN = {("mma", "cp"), ("mma", "cp4"), ("cp", "cp"), ("cp4", "cp4"), ("cp", "cp4"), ("cp4", "cp")}


class TensorHazards(Observer):
    """Watches one cluster, with the order that another observer keeps."""

    def __init__(self, hazards: Hazards, report: TensorReporter) -> None:
        self.hazards = hazards
        self.report = report
        self.rows = len(hazards.actors)
        self.shadows: dict[int, TensorShadow] = {}
        self.after: dict[int, Clock] = {}
        self.times: dict[int, int] = {}
        self.moves: dict[int, Entry] = {}
        self.looked: dict[tuple[int, ...], tuple[int, int]] = {}
        self.latest: dict[int, tuple[tuple[object, ...], tuple[int, ...]]] = {}

    def shadow(self, cta: Cta) -> TensorShadow:
        """What is remembered of a CTA's tensor memory."""
        found = self.shadows.get(id(cta))
        if found is None:
            found = self.shadows[id(cta)] = TensorShadow(2 * self.rows)
        return found

    # Order.

    def fence(self, unit: Unit, words: Sequence[str], mask: Mask | None) -> None:
        """`tcgen05.fence`: what came before can be ordered by others; what they ordered is so for what follows."""
        if words[0] != "tcgen05":
            return
        actor = self.hazards.actor(unit)
        if words[1] == "after_thread_sync":
            self.after[actor.row] = dict(actor.clock)
            return
        actor.clock["tcgen05", actor.row] = actor.time
        actor.release()

    def tensor_committed(self, commit: Commit) -> None:
        """Remember what the commit covers, and that it fences what its thread did before."""
        actor = self.hazards.actor(commit.unit)
        pipe = self.rows + actor.row
        time = self.times.get(pipe, 1)
        self.times[pipe] = time + 1
        commit.mark = {pipe: time, ("tcgen05", actor.row): actor.time}
        actor.release()

    def tensor_arrived(self, commit: Commit, phases: Phases) -> None:
        """Who sees the phase knows that the work is over."""
        join(BarrierClock.of(phases).pending, commit.mark)

    # Accesses.

    def tensor_issued(self, work: TensorWork) -> None:
        """Compare with everything that the work may meet, then remember it."""
        actor = self.hazards.actor(work.unit)
        in_pipe = isinstance(work, PipeWork)
        row = actor.row + (self.rows if in_pipe else 0)
        time = self.times.setdefault(row, 1) if in_pipe else PENDING
        entry = Entry(row, time, work.line, work.kind, work.place if isinstance(work, PipeWork) else ())
        if isinstance(work, PipeWork):
            self._operands(work, entry)
            if self._again(work, entry):
                return
        else:
            self.moves[id(work)] = entry
        for region in work.sources:
            self._read(Access(work.unit, region, work.kind, work.line), entry)
        for region in work.targets:
            self._write(Access(work.unit, region, work.kind, work.line), entry)
        for region in work.sources:
            self.shadow(region.cta).read(region, entry)
        for region in work.targets:
            self.shadow(region.cta).write(region, entry)
        self.latest[row] = self._state(work, entry)

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
                self.report.never_written(access)
            else:
                self._compare(access, entry, other, "reads")

    def _write(self, access: Access, entry: Entry) -> None:
        shadow = self.shadow(access.region.cta)
        for other in shadow.writers(access.region):
            if other is not None:
                self._compare(access, entry, other, "overwrites")
        for other in shadow.readers(access.region):
            if other.row == entry.row and other.place and entry.place and self._past(access.unit, other):
                self.report.open_order(access, other)
            else:
                self._compare(access, entry, other, "overwrites")

    def _compare(self, access: Access, entry: Entry, other: Entry, doing: str) -> None:
        """Judge one access against one that came before."""
        if other is entry or (other.row == entry.row and self._in_order(access, entry, other)):
            return
        verdict = self._past(access.unit, other)
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
            if self._past(access.unit, other):
                self.report.open_order(access, other)
            return True
        return False

    def _past(self, unit: Unit, other: Entry) -> str:
        """Empty if what came before is over and fenced for this unit; else what is missing."""
        actor = self.hazards.actor(unit)
        after = self.after.get(actor.row, {})
        if other.time == PENDING:
            return "pending"
        if other.row == actor.row:
            return ""
        if other.row >= self.rows:
            if after.get(other.row, 0) >= other.time:
                return ""
            return "after" if actor.clock.get(other.row, 0) >= other.time else "unknown"
        key = ("tcgen05", other.row)
        if after.get(key, 0) >= other.time:
            return ""
        if actor.clock.get(key, 0) >= other.time:
            return "after"
        return "before" if actor.knows(other.row, other.time) else "unknown"

    def tensor_waited(self, unit: Unit, moves: Sequence[WarpMove]) -> None:
        """The loads or stores of a warp are over."""
        actor = self.hazards.actor(unit)
        for move in moves:
            entry = self.moves.pop(id(move), None)
            if entry is not None:
                entry.time = actor.time

    def tensor_early(self, unit: Unit, move: WarpMove, block: RunBlock) -> None:
        """Registers of a load are used before its wait."""
        self.report.early(unit, move, block)

    def tensor_freed(self, unit: Unit, region: Region, line: int) -> None:
        """What others did with the columns must be over and known; no fence is asked for."""
        shadow = self.shadow(region.cta)
        access = Access(unit, region, "tcgen05.dealloc", line)
        for other in (*shadow.writers(region), *shadow.readers(region)):
            if other is not None and self._past(unit, other) in ("pending", "unknown"):
                self.report.race(access, other, ("frees", self._past(unit, other)), uncommitted=False)
        shadow.forget(region)

    def tensor_rule(self, unit: Unit, kind: tuple[str, str], text: tuple[str, str], line: int) -> None:
        """A rule is broken that stops nothing."""
        self.report.rule(unit, kind, text, line)

    def _operands(self, work: PipeWork, entry: Entry) -> None:
        """The tensor core reads shared memory until a commit's phase says that it is over."""
        for cta, places, swizzle in work.operands:
            run = isinstance(places, slice)
            key = (id(cta), places.start, places.stop, entry.row, swizzle) if run else None
            state = (self.hazards.writes_of(cta), entry.time)
            if key is not None:
                if self.looked.get(key) == state:
                    continue
                self.looked[key] = state
            reader = (work.kind, swizzle)
            self.hazards.operand_read(work.unit, (cta, places), (entry.row, entry.time, work.line), reader)
