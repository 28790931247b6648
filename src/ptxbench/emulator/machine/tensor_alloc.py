"""tcgen05.alloc and dealloc as waits: for room, or for the peer CTA of a pair; the memory itself is another part's.

With .cta_group::2 a warp in each CTA of a pair (ranks that differ in the last bit) executes them, and the first waits
for the second; both get the same columns. PTX ISA, section Tensor Memory Allocation and Management Instructions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine import access
from ptxbench.emulator.machine.cta import Cta
from ptxbench.emulator.machine.tensor_memory import ILLEGAL, UNIT, Region, TensorMemory, rule
from ptxbench.emulator.machine.unit import WARP, Mask, Unit
from ptxbench.emulator.tensor.tmem import COLUMNS


@dataclass(frozen=True)
class Request:
    """What a warp asks for.

    Attributes:
        address: Of alloc the shared word for the answer, of dealloc the tensor-memory address.
    """

    frees: bool
    group: int
    address: int
    columns: int
    line: int


def peer(cta: Cta) -> Cta:
    """The other CTA of a pair.

    Raises:
        Fault: The cluster has none.
    """
    rank = cta.rank ^ 1
    if rank >= len(cta.cluster.ctas):
        raise Fault(ILLEGAL, f".cta_group::2 in a cluster of {len(cta.cluster.ctas)} CTAs: rank {rank} is missing")
    return cta.cluster.ctas[rank]


def ask(unit: Unit, lanes: Mask, request: Request, following: int) -> bool:
    """A warp begins; whether it goes on at once, else it waits in its unit.

    Raises:
        Fault: It can never be granted, or is no whole warp.
    """
    memory = TensorMemory.of(unit.cta)
    memory.use_group(request.group)
    whole = unit.live.reshape(-1, WARP) == lanes.reshape(-1, WARP)
    if not whole[lanes.reshape(-1, WARP).any(axis=1)].all():
        raise Fault(ILLEGAL, "tcgen05.alloc and dealloc are for whole warps; some lanes are elsewhere")
    if not request.frees:
        memory.check_request(request.columns)
    wait = Asking(unit, lanes, request.line, following, request)
    memory.waits.append(wait)
    if wait.take():
        return True
    unit.waits.append(wait)
    return False


@dataclass(eq=False)
class Asking:
    """A warp that wants tensor memory, or wants to give it back."""

    unit: Unit
    mask: Mask
    line: int
    following: int
    request: Request
    granted: bool = False

    def take(self) -> bool:
        """Try; a pair is served together."""
        if self.granted:
            return True
        parties = self._parties()
        if parties is None:
            return False
        if self.request.frees:
            for each in parties:
                each.free()
            return True
        first = _room([TensorMemory.of(each.unit.cta) for each in parties], self.request.columns)
        if first is None:
            return False
        for each in parties:
            each.grant(first)
        return True

    def _parties(self) -> list[Asking] | None:
        """This request, and with .cta_group::2 the peer's; None while that is missing."""
        if self.request.group == 1:
            return [self]
        waits = TensorMemory.of(peer(self.unit.cta)).waits
        other = next((each for each in waits if each.request.frees == self.request.frees), None)
        if other is None:
            return None
        if other.request.columns != self.request.columns:
            raise Fault(
                ILLEGAL,
                f"the CTAs of a pair ask for {self.request.columns} (line {self.line}) and for "
                f"{other.request.columns} columns (line {other.line})",
            )
        return [self, other]

    def _done(self) -> TensorMemory:
        self.granted = True
        cta = self.unit.cta
        memory = TensorMemory.of(cta)
        memory.waits.remove(self)
        cta.cluster.changed += 1
        return memory

    def grant(self, first: int) -> None:
        """Take the columns from `first` on, and write the address."""
        memory, unit = self._done(), self.unit
        if self.request.columns > memory.smallest:
            message = f"tcgen05.alloc of {self.request.columns} columns after one of {memory.smallest}"
            rule(unit, ("tensor-allocation-order", "warning"), message, self.line)
        memory.allocate(first, self.request.columns, self.line)
        unit.line = self.line
        one = np.zeros(unit.lanes, np.bool_)
        one[int(np.argmax(self.mask))] = True
        where = np.full(unit.lanes, self.request.address & 0xFFFF_FFFF, np.uint32)
        access.store(unit, "shared", where, one, (4, 1), [np.full(unit.lanes, first, np.uint32)])
        if unit.cta.cluster.races is not None:
            unit.cta.cluster.races.allocated(unit, one, where)
        unit.cta.cluster.wake(unit)

    def free(self) -> None:
        """Give the columns back."""
        memory = self._done()
        first = memory.free(self.request.address, self.request.columns, self.line)
        region = Region(self.unit.cta, slice(0, 8), slice(first, first + self.request.columns))
        for observer in self.unit.cta.cluster.observers:
            observer.tensor_freed(self.unit, region, self.line)
        for unit in self.unit.cta.cluster.units:
            unit.cta.cluster.wake(unit)

    def poke(self, unit: Unit, patience: int) -> bool:
        """Try again."""
        try:
            taken = self.take()
        except Fault as fault:
            raise fault.at(self.line) from fault
        if not taken:
            return False
        unit.waits.remove(self)
        unit.add(self.following, self.mask)
        return True

    def describe(self, unit: Unit) -> str:
        """What must happen."""
        name = "tcgen05.dealloc" if self.request.frees else "tcgen05.alloc"
        if self.request.group == 2 and self._parties() is None:
            other = peer(unit.cta)
            gone = ", which has exited" if other.done else ""
            return f"{name}.cta_group::2 waits for the same instruction in {other.name()}{gone}"
        memory = TensorMemory.of(unit.cta)
        taken = [f"{first} to {first + x.columns - 1} (line {x.line})" for first, x in memory.allocations.items()]
        return f"{name} of {self.request.columns} columns waits for room; taken: {', '.join(taken) or 'none'}"


def _room(memories: list[TensorMemory], columns: int) -> int | None:
    """The first place that is free in all of them."""
    taken = np.logical_or.reduce([each.taken() for each in memories])
    starts = range(0, COLUMNS - columns + 1, UNIT)
    return next((start for start in starts if not taken[start : start + columns].any()), None)
