"""Races on tensor memory, and of the tensor core on shared memory: order, completion, tcgen05 fences; no numbers.

The work of a unit's tensor pipe has a row of its own in the clocks; a commit's arrival carries it.
PTX ISA, section tcgen05 Memory Consistency Model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptxbench.emulator.checks.order import BarrierClock, Clock, join
from ptxbench.emulator.checks.shadow import PENDING
from ptxbench.emulator.checks.tensor_cells import TensorCells
from ptxbench.emulator.checks.tensor_shadow import Entry
from ptxbench.emulator.checks.tensor_texts import Access, TensorReporter
from ptxbench.emulator.machine.tensor_work import PipeWork, TensorWork

if TYPE_CHECKING:
    from ptxbench.emulator.checks.hazards import Hazards
    from ptxbench.emulator.machine.blocks import RunBlock
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.tensor_memory import Region
    from ptxbench.emulator.machine.tensor_work import Commit, WarpMove
    from ptxbench.emulator.machine.unit import Mask, Unit


class TensorHazards(TensorCells):
    """Watches one cluster, with the order that another observer keeps."""

    def __init__(self, hazards: Hazards, report: TensorReporter) -> None:
        super().__init__(report, len(hazards.actors))
        self.hazards = hazards
        self.after: dict[int, Clock] = {}
        self.looked: dict[tuple[int, ...], tuple[int, int]] = {}

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
        """Remember what the commit covers, what its thread knows, and that it fences what the thread did before."""
        actor = self.hazards.actor(commit.unit)
        pipe = self.rows + actor.row
        time = self.times.get(pipe, 1)
        self.times[pipe] = time + 1
        fenced = actor.time
        commit.mark = {**actor.release(), pipe: time, ("tcgen05", actor.row): fenced}

    def tensor_arrived(self, commit: Commit, phases: Phases) -> None:
        """Who sees the phase knows that the work is over."""
        join(BarrierClock.of(phases).pending, commit.mark)

    # Accesses.

    def row(self, work: TensorWork) -> int:
        """The unit, or its pipe."""
        return self.hazards.actor(work.unit).row + (self.rows if isinstance(work, PipeWork) else 0)

    def access(self, unit: Unit, region: Region, work: TensorWork | None, line: int) -> Access:
        """An access of a unit."""
        return Access(unit, region, work.kind if work is not None else "tcgen05.dealloc", line)

    def past(self, access: Access, other: Entry) -> str:
        """What a unit lacks."""
        actor = self.hazards.actor(access.unit)
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
            self.over(move, actor.time)

    def tensor_early(self, unit: Unit, move: WarpMove, block: RunBlock) -> None:
        """Registers of a load are used before its wait."""
        self.report.early(unit, move, block)

    def tensor_rule(self, unit: Unit, kind: tuple[str, str], text: tuple[str, str], line: int) -> None:
        """A rule is broken that stops nothing."""
        self.report.rule(unit, kind, text, line)

    def reads_shared(self, work: PipeWork, entry: Entry) -> None:
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
