"""What the machine tells its observers; the default for each event is to do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxbench.emulator.machine.blocks import RunBlock
    from ptxbench.emulator.machine.named import NamedBarrier
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.products import Product
    from ptxbench.emulator.machine.spaces import Lanes, Region
    from ptxbench.emulator.machine.tensor_memory import Region as TensorRegion
    from ptxbench.emulator.machine.tensor_work import Commit, TensorWork, WarpMove
    from ptxbench.emulator.machine.unit import Mask, Unit
    from ptxbench.emulator.machine.work import Work


class Observer:
    """Sees a cluster run; changes nothing.

    Attributes:
        gathers: Whether it adds to something that lives longer than its cluster; such runs stay in one process.
    """

    gathers = False

    def ran(self, unit: Unit, since: int) -> None:
        """A unit ran from the count `since` of executed warp instructions on, until it had to wait or was stopped."""

    def initialised(self, phases: Phases, unit: Unit) -> None:
        """A unit initialised an mbarrier."""

    def uninitialised(self, phases: Phases, unit: Unit) -> None:
        """A unit uses memory as an mbarrier that nobody initialised."""

    def used(self, phases: Phases, unit: Unit) -> None:
        """A unit uses an mbarrier."""

    def arrived(self, phases: Phases, unit: Unit) -> None:
        """A unit is about to arrive at an mbarrier."""

    def phase_complete(self, phases: Phases) -> None:
        """A phase of an mbarrier has completed."""

    def phase_seen(self, phases: Phases, unit: Unit) -> None:
        """A unit's wait for an mbarrier succeeded."""

    def barrier_arrive(self, barrier: NamedBarrier, unit: Unit, mask: Mask) -> None:
        """Warps arrive at a CTA barrier."""

    def barrier_complete(self, barrier: NamedBarrier, units: Sequence[Unit]) -> None:
        """A CTA barrier lets these units go on."""

    def exited(self, unit: Unit) -> None:
        """Lanes of a unit are about to exit."""

    def outside_mask(self, unit: Unit, lanes: Lanes, what: tuple[str, int]) -> None:
        """Lanes execute `what`, a name and its line, and are not in its membermask."""

    def cluster_arrive(self, unit: Unit) -> None:
        """A unit arrives at the cluster's barrier."""

    def cluster_complete(self) -> None:
        """The cluster's barrier is complete."""

    def fence(self, unit: Unit, words: Sequence[str], mask: Mask | None) -> None:
        """A unit executes a fence with these modifiers (`wgmma` for `wgmma.fence`)."""

    def generic_access(self, unit: Unit, region: Region, offsets: Lanes, size: int, write: bool) -> None:
        """Lanes load or store `size` bytes each at offsets of a CTA's shared memory."""

    def issued(self, work: Work) -> None:
        """A copy is issued."""

    def landed(self, work: Work) -> None:
        """A copy has moved its data and is about to tell its barriers."""

    def source_read(self, work: Work) -> None:
        """A store has read its source."""

    def group_waited(self, unit: Unit, works: Sequence[Work], read: bool) -> None:
        """A unit waited for bulk groups with these copies."""

    def unread_at_exit(self, work: Work) -> None:
        """The last thread of a unit exits while a copy of its shared memory is still unread."""

    def product_issued(self, unit: Unit, product: Product) -> None:
        """A warpgroup issues a wgmma."""

    def products_waited(self, unit: Unit, products: Sequence[Product]) -> None:
        """A warpgroup waited for these products."""

    def accumulator_used(self, unit: Unit, product: Product, block: RunBlock) -> None:
        """A block uses accumulator registers of a product that nobody waited for."""

    def operand_overwritten(self, unit: Unit, product: Product, block: RunBlock) -> None:
        """A block writes registers of A of a product that nobody waited for."""

    def registers_exposed(self, unit: Unit) -> None:
        """A block uses accumulator registers, so that the next wgmma needs a fence."""

    # Tensor memory.

    def tensor_issued(self, work: TensorWork) -> None:
        """A load, store, product, copy or shift of tensor memory is issued."""

    def tensor_waited(self, unit: Unit, moves: Sequence[WarpMove]) -> None:
        """A warp waited for its loads or its stores."""

    def tensor_early(self, unit: Unit, move: WarpMove, block: RunBlock) -> None:
        """A block uses registers of a load that nobody waited for."""

    def tensor_committed(self, commit: Commit) -> None:
        """A thread issues a tcgen05.commit."""

    def tensor_arrived(self, commit: Commit, phases: Phases) -> None:
        """A commit is about to arrive at an mbarrier."""

    def tensor_freed(self, unit: Unit, region: TensorRegion, line: int) -> None:
        """Columns are given back."""

    def tensor_rule(self, unit: Unit, kind: tuple[str, str], text: tuple[str, str], line: int) -> None:
        """A rule (its name, its severity) is broken: a sentence and a hint."""
