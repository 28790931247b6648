"""One schedule of one launch: its clusters in this process or in several, and how it ended; compares no schedules."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ptxbench.emulator.checks.texts import Reporter
from ptxbench.emulator.codegen.compile import Compiled
from ptxbench.emulator.errors import Trap, Unsupported
from ptxbench.emulator.machine import crew
from ptxbench.emulator.machine.grid import Deadlock, Grid
from ptxbench.emulator.machine.kernel import Done, Kernel
from ptxbench.emulator.machine.schedule import Schedule
from ptxbench.emulator.report import Finding


@dataclass(frozen=True)
class Ended:
    """How a run of clusters ended.

    Attributes:
        error: CUDA's name of the error that ended it, or empty.
        unsupported: The instruction that the emulator lacks, or empty.
        cluster: The one at which it ended early.
        finished: Clusters that came to their end.
    """

    error: str = ""
    unsupported: str = ""
    cluster: int = -1
    finished: int = 0


@dataclass(frozen=True)
class _Part:
    """What one process did."""

    ended: Ended
    done: Done
    found: tuple[tuple[int, tuple[str, int, int], Finding], ...]


def run_schedule(kernel: Kernel, schedule: Schedule, reporter: Reporter, most: int) -> tuple[Ended, int]:
    """Run the first `most` clusters of a launch (0: all); how that ended, and how many clusters the grid has."""
    grid = Grid(kernel, schedule)
    clusters = range(min(most or grid.total, grid.total))
    with np.errstate(all="ignore"):
        if not _separable(kernel, schedule):
            return _run(grid, reporter, clusters), grid.total
        begun = time.process_time()
        first = _run(grid, reporter, clusters[:1])
        rest = clusters[1:]
        if first.cluster >= 0 or not rest:
            return first, grid.total
        count = 1 if kernel.gathers else min(crew.processes((time.process_time() - begun) * len(rest)), len(rest))
        return (_together(grid, reporter, rest, count) if count > 1 else _run(grid, reporter, rest)), grid.total


def _separable(kernel: Kernel, schedule: Schedule) -> bool:
    """Whether each cluster does the same whatever others do, and draws nothing from what they drew."""
    if schedule.seed is not None:
        return False
    return _apart(kernel.compiled)


@lru_cache(maxsize=8)
def _apart(compiled: Compiled) -> bool:
    return not any(crew.couples(ins) for block in compiled.program.blocks for ins in block.instructions)


def _run(grid: Grid, reporter: Reporter, clusters: Iterable[int]) -> Ended:
    """Run clusters in this process."""
    error = unsupported = ""
    try:
        grid.run(iter(clusters))
    except Deadlock as stuck:
        error = str(stuck)
        reporter.stopped("deadlock", stuck.line, "nothing can run", stuck.waits)
    except Trap as trap:
        error = str(trap)
        reporter.stopped(trap.error, trap.line, trap.reason)
    except Unsupported as lacking:
        unsupported = str(lacking)
    early = error or unsupported
    return Ended(error, unsupported, reporter.cluster if early else -1, grid.finished)


def _together(grid: Grid, reporter: Reporter, clusters: range, count: int) -> Ended:
    """Run clusters in several processes; what comes of it is what one would have found."""
    kernel, known = grid.kernel, set(reporter.findings)

    def here(taken: Iterator[int]) -> Ended:
        return _run(grid, reporter, taken)

    def apart(taken: Iterator[int]) -> _Part:
        kernel.forget()
        grid.finished = 0
        ended = here(taken)
        new = ((reporter.found_in[key], key, each) for key, each in reporter.findings.items() if key not in known)
        return _Part(ended, kernel.done(), tuple(new))

    mine, parts = crew.share(clusters, count, here, apart)
    for part in parts:
        kernel.include(part.done)
        grid.finished += part.ended.finished
        reporter.include(part.found)
    early = [each for each in (mine, *(part.ended for part in parts)) if each.cluster >= 0]
    if not early:
        return Ended(finished=grid.finished)
    first = min(early, key=lambda each: each.cluster)
    reporter.forget_after(first.cluster)
    return replace(first, finished=grid.finished)
