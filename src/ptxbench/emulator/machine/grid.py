"""All clusters of a launch, in waves: who starts when, and what it means that nobody can go on; runs no instruction."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from ptxbench.emulator.errors import Trap
from ptxbench.emulator.machine.cluster import Cluster
from ptxbench.emulator.machine.cta import Place
from ptxbench.emulator.machine.kernel import Kernel
from ptxbench.emulator.machine.schedule import Schedule

_MOST_RESIDENT = 132
"""CTAs at a time: those of one to each multiprocessor of a H200."""


class Deadlock(Trap):
    """Nothing can run.

    Attributes:
        waits: Who waits where, for what.
    """

    def __init__(self, line: int, waits: tuple[str, ...]) -> None:
        super().__init__("deadlock", line, "; ".join(waits))
        self.waits = waits


class Grid:
    """Clusters in waves: the next one starts when the others are done or wait for memory that it may write."""

    def __init__(self, kernel: Kernel, schedule: Schedule) -> None:
        self.kernel = kernel
        self.schedule = schedule
        self.total = prod(kernel.grid) // prod(kernel.cluster)
        self.finished = 0
        self.clusters: Iterator[int] = iter(())
        self.waiting: int | None = None
        kernel.cancel = self.cancel

    def cancel(self) -> Place | None:
        """Take a cluster that has not started from the grid; its first CTA, or None if all have."""
        number = self.waiting
        if number is None:
            return None
        self.waiting = next(self.clusters, None)
        self.finished += 1
        return cluster_places(self.kernel, number)[0]

    def run(self, clusters: Iterator[int]) -> None:
        """Run the clusters with these numbers.

        Raises:
            Trap: The kernel did something illegal, or hangs.
            Unsupported: It uses an instruction that the emulator lacks.
        """
        resident: list[Cluster] = []
        self.clusters, self.waiting = clusters, next(clusters, None)
        most = max(1, _MOST_RESIDENT // prod(self.kernel.cluster))
        while resident or self.waiting is not None:
            verdicts = []
            for cluster in list(resident):
                outside = sum(other.changed for other in resident if other is not cluster)
                verdict = cluster.advance(outside)
                verdicts.append(verdict)
                if verdict == "done":
                    resident.remove(cluster)
                    self.finished += 1
                elif verdict == "stuck" and not self._release(resident):
                    raise self._deadlock(cluster)
            number = self.waiting
            if number is not None and len(resident) < most and (not resident or "done" not in verdicts):
                self.waiting = next(clusters, None)
                resident.append(Cluster(self.kernel, number, cluster_places(self.kernel, number), self.schedule))
            elif "depends" in verdicts and "done" not in verdicts:
                self._release(resident)

    def _release(self, resident: list[Cluster]) -> bool:
        """Nothing can go on before the kernel in front has ended: it ends; whether that was to come."""
        held = self.kernel.held
        if held is None or held.landed:
            return False
        held.land()
        for cluster in resident:
            cluster.changed += 1
            for unit in cluster.units:
                cluster.wake(unit)
        return True

    def _deadlock(self, cluster: Cluster) -> Deadlock:
        lines, waits = [], []
        for unit in cluster.units:
            for wait in unit.waits:
                warps = unit.warp_numbers(wait.mask)
                lines.append(wait.line)
                waits.append(f"{unit.cta.name()} warps {warps} at PTX line {wait.line}: {wait.describe(unit)}")
            if unit.groups and not unit.waits:
                waits.append(f"{unit.cta.name()} warps {unit.warp_numbers(None)} poll memory that nobody changes")
        return Deadlock(lines[0] if lines else 0, tuple(waits))


def cluster_places(kernel: Kernel, number: int) -> list[Place]:
    """The CTAs of a cluster of the grid, by rank."""
    cx, cy, cz = kernel.cluster
    across, down = kernel.grid[0] // cx, kernel.grid[1] // cy
    x, y, z = number % across * cx, number // across % down * cy, number // (across * down) * cz
    return [(x + dx, y + dy, z + dz) for dz in range(cz) for dy in range(cy) for dx in range(cx)]
