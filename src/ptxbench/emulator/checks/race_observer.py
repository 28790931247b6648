"""Joins the check for races to the machine: one ground for a launch, one check for each of its clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ptxbench.emulator.checks.observer import Observer
from ptxbench.emulator.checks.race_checks import RaceChecks
from ptxbench.emulator.checks.race_ground import Ground, grains_of
from ptxbench.emulator.checks.race_tensor import TensorRaces
from ptxbench.emulator.checks.race_texts import RaceReporter
from ptxbench.emulator.checks.tensor_texts import TensorReporter
from ptxbench.emulator.machine.grid import cluster_places
from ptxbench.emulator.machine.tensor_work import PipeWork

if TYPE_CHECKING:
    from ptxbench.emulator.checks.texts import Reporter
    from ptxbench.emulator.machine.cluster import Cluster
    from ptxbench.emulator.machine.kernel import Kernel
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.products import Product
    from ptxbench.emulator.machine.tensor_memory import Region
    from ptxbench.emulator.machine.tensor_work import Commit, TensorWork, WarpMove
    from ptxbench.emulator.machine.unit import Mask, Unit
    from ptxbench.emulator.machine.work import Work


class Races:
    """The check of one launch in one schedule."""

    def __init__(self, kernel: Kernel, reporter: Reporter) -> None:
        instructions = (ins for block in kernel.program.blocks for ins in block.instructions)
        self.ground = Ground(
            memory=kernel.memory,
            grains=grains_of(kernel.program),
            ctas=lambda number: cluster_places(kernel, number),
            per_cta=kernel.units * kernel.unit_lanes,
            fences=any(ins.opcode in ("fence", "membar") for ins in instructions),
        )
        self.report = RaceReporter(reporter, self.ground)

    def observer(self, cluster: Cluster) -> RaceObserver:
        """What watches one cluster."""
        cluster.races = RaceChecks(cluster, self.ground, self.report)
        if not cluster.kernel.compiled.uses_tensor_memory:
            return RaceObserver(cluster.races)
        return TensorRaceObserver(cluster.races, TensorRaces(cluster.races, TensorReporter(self.report.report)))

    def finish(self, missing: str) -> None:
        """Say what could not be decided; `missing` is what did not run, or empty."""
        if missing:
            self.ground.undecided.setdefault(missing, 0)
        if self.ground.entries.full:
            self.ground.undecided.setdefault("more accesses than are remembered", 0)
        for what, line in self.ground.undecided.items():
            self.report.undecided(what, line)
        self.report.finish()


class RaceObserver(Observer):
    """Passes on what all observers are told."""

    gathers = True

    def __init__(self, checks: RaceChecks) -> None:
        self.checks = checks

    def initialised(self, phases: Phases, unit: Unit) -> None:
        """An mbarrier begins to be one."""
        self.checks.initialised(phases, unit)

    def used(self, phases: Phases, unit: Unit) -> None:
        """A unit uses an mbarrier."""
        self.checks.used(phases, unit)

    def phase_complete(self, phases: Phases) -> None:
        """A phase is over."""
        self.checks.phase_complete(phases)

    def fence(self, unit: Unit, words: Sequence[str], mask: Mask | None) -> None:
        """A fence of any kind."""
        self.checks.fence(unit, words, mask)

    def issued(self, work: Work) -> None:
        """A copy begins."""
        self.checks.engines.issued(work)

    def landed(self, work: Work) -> None:
        """A copy is over."""
        self.checks.engines.landed(work)

    def product_issued(self, unit: Unit, product: Product) -> None:
        """A wgmma begins."""
        self.checks.engines.product_issued(unit, product)


class TensorRaceObserver(RaceObserver):
    """With tensor memory besides."""

    def __init__(self, checks: RaceChecks, tensor: TensorRaces) -> None:
        super().__init__(checks)
        self.tensor = tensor

    def fence(self, unit: Unit, words: Sequence[str], mask: Mask | None) -> None:
        """A fence of any kind."""
        super().fence(unit, words, mask)
        self.tensor.fence(unit, words, mask)

    def tensor_issued(self, work: TensorWork) -> None:
        """A load, store, product, copy or shift begins."""
        if isinstance(work, PipeWork):
            self.checks.engines.tensor_issued(work)
        self.tensor.tensor_issued(work)

    def tensor_waited(self, unit: Unit, moves: Sequence[WarpMove]) -> None:
        """A warp waited for its loads or its stores."""
        self.tensor.tensor_waited(unit, moves)

    def tensor_freed(self, unit: Unit, region: Region, line: int) -> None:
        """Columns are given back."""
        self.tensor.tensor_freed(unit, region, line)

    def tensor_committed(self, commit: Commit) -> None:
        """A tcgen05.commit."""
        self.checks.engines.tensor_committed(commit, self.tensor.committed(commit))

    def tensor_arrived(self, commit: Commit, phases: Phases) -> None:
        """It tells an mbarrier."""
        self.checks.engines.tensor_arrived(commit, phases)
