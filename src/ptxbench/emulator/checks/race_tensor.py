"""Tensor memory in the check for races: warps and threads instead of units, joined to the clocks of threads.

A load or store belongs to its warp, an mma, cp or shift to the thread that issues it. A fence before a barrier is a
column of the warp in the clocks, which barriers carry; a fence behind one takes what its threads know then.
PTX ISA, section tcgen05 Memory Consistency Model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxbench.emulator.checks.clocks import ORDERED, WARP, Ints, Message
from ptxbench.emulator.checks.shadow import PENDING
from ptxbench.emulator.checks.tensor_cells import TensorCells
from ptxbench.emulator.checks.tensor_shadow import Entry
from ptxbench.emulator.checks.tensor_texts import Access, TensorReporter
from ptxbench.emulator.machine.tensor_work import PipeWork, TensorWork, WarpMove

if TYPE_CHECKING:
    from ptxbench.emulator.checks.race_checks import RaceChecks
    from ptxbench.emulator.machine.tensor_memory import Region
    from ptxbench.emulator.machine.tensor_work import Commit
    from ptxbench.emulator.machine.unit import Mask, Unit


class TensorRaces(TensorCells):
    """Watches the tensor memory of one cluster.

    Attributes:
        fenced: First of the columns that say before which time a warp fenced for others.
        after: What each thread knew at its last fence for itself: times of all columns then.
        pipes: Row and column of each pipe, by its thread.
    """

    def __init__(self, checks: RaceChecks, report: TensorReporter) -> None:
        super().__init__(report, checks.clocks.now.size)
        self.checks = checks
        self.fenced = checks.clocks.column(self.rows)
        self.after: dict[int, Ints] = {}
        self.pipes: dict[int, tuple[int, int]] = {}
        self._columns: list[int] = []

    # Order.

    def fence(self, unit: Unit, words: Sequence[str], mask: Mask | None) -> None:
        """`tcgen05.fence`."""
        clocks, threads = self.checks.clocks, self.checks.threads(unit, mask)
        if words[0] != "tcgen05" or not threads.size:
            return
        if words[1] == "after_thread_sync":
            known: dict[int, Ints] = {}
            for thread, group in zip(threads.tolist(), clocks.of[threads].tolist(), strict=True):
                if group not in known:
                    known[group] = clocks.table[group, ORDERED, : clocks.width].copy()
                self.after[thread] = known[group]
            return
        warps = threads // WARP
        for warp in np.unique(warps).tolist():
            clocks.acquire(threads[warps == warp], self._mark(warp))
        clocks.advance(threads)

    def _mark(self, warp: int) -> Message:
        """That a warp has fenced."""
        return self.checks.clocks.mark(self.fenced + warp, int(self.checks.clocks.now[warp]))

    def committed(self, commit: Commit) -> Message:
        """A commit: what its thread issues from now on is not covered; what it did before counts as fenced."""
        thread = self.checks.base(commit.unit) + commit.lane
        if thread in self.pipes:
            row = self.pipes[thread][0]
            self.times[row] += 1
        made = self._mark(thread // WARP)
        self.checks.clocks.advance(np.asarray([thread]))
        return made

    def tensor_waited(self, unit: Unit, moves: Sequence[WarpMove]) -> None:
        """Loads or stores of warps are over: all lanes of each were there."""
        checks = self.checks
        for move in moves:
            checks.converged(unit, move.lanes & unit.live, visible=False)
            self.over(move, int(checks.clocks.now[self.row(move)]))

    # Accesses.

    def row(self, work: TensorWork) -> int:
        """The warp, or the pipe of the thread."""
        if isinstance(work, WarpMove):
            first: int = self.checks.base(work.unit) + int(np.argmax(work.lanes))
            return first // WARP
        assert isinstance(work, PipeWork)
        thread = work.unit.cta.rank * self.checks.per_cta + work.pipe.thread
        found = self.pipes.get(thread)
        if found is None:
            column, time = self.checks.engines.end_of(work.pipe)
            found = self.pipes[thread] = (self.rows + len(self.pipes), column)
            self.times[found[0]] = time
            self._columns.append(column)
        return found[0]

    def access(self, unit: Unit, region: Region, work: TensorWork | None, line: int) -> Access:
        """An access with the threads that do it."""
        checks = self.checks
        threads: Any = checks.threads(unit, unit.mask)
        if isinstance(work, WarpMove):
            threads = np.flatnonzero(work.lanes & unit.live) + checks.base(unit)
        elif isinstance(work, PipeWork):
            threads = np.asarray([unit.cta.rank * checks.per_cta + work.pipe.thread])
        return Access(unit, region, work.kind if work is not None else "tcgen05.dealloc", line, threads)

    def past(self, access: Access, other: Entry) -> str:
        """What is missing to all threads of the access: of a whole warp it is enough that one has it."""
        if other.time == PENDING:
            return "pending"
        missing = ""
        for thread in self._different(access.threads):
            missing = self._missing(thread, other)
            if not missing:
                break
        return missing

    def _different(self, threads: Ints) -> list[int]:
        """One of each sort of threads: those that know the same and knew the same at their last fence."""
        sorts: dict[tuple[int, int], int] = {}
        for thread, group in zip(threads.tolist(), self.checks.clocks.of[threads].tolist(), strict=True):
            sorts.setdefault((group, id(self.after.get(thread))), thread)
        return list(sorts.values())

    def _missing(self, thread: int, other: Entry) -> str:
        clocks = self.checks.clocks
        if other.row == thread // WARP:
            return ""
        in_pipe = other.row >= self.rows
        column = self._columns[other.row - self.rows] if in_pipe else self.fenced + other.row
        after = self.after.get(thread)
        if after is not None and column < after.size and after[column] >= other.time:
            return ""
        if clocks.knows_of(thread, ORDERED, (clocks.number, column, other.time)):
            return "after"
        over = not in_pipe and int(clocks.least(int(clocks.of[thread]))[other.row]) >= other.time
        return "before" if over else "unknown"
