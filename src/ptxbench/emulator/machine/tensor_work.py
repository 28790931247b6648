"""Asynchronous work on tensor memory: loads and stores of warps, and the pipes of threads that issue mma, cp and shift.

Work of one thread is done in the order of issue where the rules say so, else when it lands. PTX ISA, section tcgen05
Memory Consistency Model: mma after mma into the same accumulator with the same shape, mma after cp, mma after shift,
shift after mma, cp.4x256b after shift.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxbench.emulator.async_ import mbarrier
from ptxbench.emulator.machine.phases import Phases
from ptxbench.emulator.machine.tensor_memory import Region
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.machine.work import Work

if TYPE_CHECKING:
    from ptxbench.emulator.machine.blocks import RunBlock


@dataclass(eq=False)
class TensorWork(Work):
    """One asynchronous operation on tensor memory.

    Attributes:
        sources: Tensor memory that it reads.
        targets: Tensor memory that it writes.
    """

    sources: tuple[Region, ...] = ()
    targets: tuple[Region, ...] = ()

    def begin(self) -> None:
        """Tell the checks, then wait to land."""
        for observer in self.cluster.observers:
            observer.tensor_issued(self)
        self.issue()


@dataclass(eq=False)
class WarpMove(TensorWork):
    """A tcgen05.ld or tcgen05.st of one warp.

    Attributes:
        lanes: The lanes of its warp.
        slots: Registers that a load owes.
    """

    lanes: Any = None
    slots: tuple[int, ...] = ()


@dataclass(eq=False)
class WarpMoves:
    """Loads and stores of a unit's warps that no wait has covered; stands in `unit.matrices`, as products of wgmma do.

    Attributes:
        loads: In the order of issue.
        stores: In the order of issue.
    """

    unit: Unit
    loads: list[WarpMove] = field(default_factory=list)
    stores: list[WarpMove] = field(default_factory=list)

    @staticmethod
    def of(unit: Unit) -> WarpMoves:
        """Those of a unit, made on first use."""
        if unit.matrices is None:
            unit.matrices = WarpMoves(unit)
        made: WarpMoves = unit.matrices
        return made

    def add(self, move: WarpMove) -> None:
        """A warp begins to load or store."""
        (self.loads if move.slots else self.stores).append(move)
        self.unit.owed.update(move.slots)
        move.begin()

    def wait(self, lanes: Mask, *, loads: bool) -> None:
        """`tcgen05.wait::ld` or `wait::st` of these lanes: what their warps began is over."""
        held = self.loads if loads else self.stores
        due = [each for each in held if (each.lanes & lanes).any()]
        for each in due:
            each.finish()
            held.remove(each)
        for observer in self.unit.cta.cluster.observers:
            observer.tensor_waited(self.unit, due)
        self.count()

    def settle(self, unit: Unit, block: RunBlock) -> None:
        """A block uses registers of loads that nobody waited for: they get their values now, with a finding."""
        running = unit.full(unit.mask)
        for each in self.loads:
            if not block.slots.isdisjoint(each.slots) and (each.lanes & running).any():
                for observer in unit.cta.cluster.observers:
                    observer.tensor_early(unit, each, block)
                each.finish()
        self.count()

    def count(self) -> None:
        """Note which registers are still owed."""
        self.unit.owed = {slot for each in self.loads if not each.landed for slot in each.slots}


@dataclass(eq=False)
class PipeWork(TensorWork):
    """An mma, cp or shift.

    Attributes:
        pipe: Of the thread that issued it.
        place: What makes two of them ordered: the kind, and for an mma its accumulator and shape.
        operands: Shared memory that it reads: for each operand the CTA, and its chunks and swizzle for the checks.
        detail: What products need to be done together.
    """

    pipe: Any = None
    place: tuple[Any, ...] = ()
    operands: tuple[Any, ...] = ()
    detail: Any = None

    def follows(self, other: PipeWork) -> bool:
        """Whether the rules order it behind an earlier one of the same thread."""
        pair = (other.place[0], self.place[0])
        if pair == ("mma", "mma"):
            return self.place == other.place
        return pair in (("cp", "mma"), ("shift", "mma"), ("mma", "shift"), ("shift", "cp4"), ("cp4", "mma"))

    def land(self) -> None:
        """First those that it follows, then itself."""
        if not self.landed:
            for other in self.pipe.before(self):
                other.finish()
            super().land()


@dataclass(eq=False)
class Pipe:
    """What one thread has issued and is not over, in the order of issue.

    Attributes:
        thread: Its number in the CTA.
    """

    thread: int
    works: list[PipeWork] = field(default_factory=list)

    @staticmethod
    def of(unit: Unit, lane: int) -> Pipe:
        """The pipe of a thread, made on first use."""
        pipes: dict[int, Pipe] = unit.cta.pipes
        thread = unit.first + lane
        return pipes.setdefault(thread, Pipe(thread))

    def add(self, work: PipeWork) -> None:
        """The thread issues one more."""
        self.works = [each for each in self.works if not each.landed]
        work.pipe = self
        self.works.append(work)
        work.begin()

    def before(self, work: PipeWork) -> list[PipeWork]:
        """The unfinished ones that a work follows."""
        made = []
        for other in self.works:
            if other is work:
                break
            if not other.landed and work.follows(other):
                made.append(other)
        return made


@dataclass(eq=False)
class Commit(Work):
    """A tcgen05.commit: arrives at mbarriers when all earlier work of its thread is over.

    Attributes:
        earlier: That work.
        told: The mbarriers.
        mark: What the checks remember of the moment of issue.
    """

    earlier: tuple[PipeWork, ...] = ()
    told: tuple[Phases, ...] = ()
    mark: Any = None

    @property
    def signals(self) -> bool:
        """Somebody waits for it."""
        return True

    def begin(self) -> None:
        """Tell the checks, then wait to land."""
        for observer in self.cluster.observers:
            observer.tensor_committed(self)
        self.issue()

    def land(self) -> None:
        """Finish the work, then arrive."""
        if self.landed:
            return
        finish(self.earlier)
        super().land()
        for phases in self.told:
            for observer in self.cluster.observers:
                observer.tensor_arrived(self, phases)
            self._guard(partial(_arrive, phases))


def _arrive(phases: Phases) -> None:
    phases.change(mbarrier.arrive(phases.state))


def finish(works: tuple[PipeWork, ...]) -> None:
    """Do works in their order; chains of products into one accumulator together."""
    waiting = [each for each in works if not each.landed]
    place = 0
    while place < len(waiting):
        first = waiting[place]
        end = place + 1
        if first.detail is not None:
            while end < len(waiting) and first.detail.continued_by(waiting[end].detail):
                end += 1
            if end > place + 1:
                first.detail.join([each.detail for each in waiting[place + 1 : end]])
        for each in waiting[place:end]:
            each.finish()
        place = end


def lanes_of(unit: Unit, warp: int) -> Mask:
    """The lanes of one warp of a unit, as a mask."""
    made = np.zeros(unit.lanes, np.bool_)
    made[warp * 32 : warp * 32 + 32] = True
    return made
