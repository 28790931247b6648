"""Programmatic dependent launch: what a kernel does not see yet of the one in front of it; starts no kernel.

A kernel that was launched with programmatic stream serialization may begin when all CTAs of the one in front of it have
executed griddepcontrol.launch_dependents or have ended. What that one wrote is visible to it behind griddepcontrol.wait
alone, even what was written before launch_dependents. PTX ISA, section griddepcontrol.

Here the kernel in front has run. Its writes are taken back when the next one starts, and come again as late as they
may: when nothing of that one can go on without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.machine.memory import DeviceMemory, Snapshot
from ptxbench.emulator.machine.unit import Mask, Unit

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Changes:
    """Bytes of global memory that a kernel changed.

    Attributes:
        pieces: Of each allocation that has any: its address and size, places in it, old and new bytes.
    """

    pieces: tuple[tuple[int, int, NDArray[np.int64], Bytes, Bytes], ...]

    @classmethod
    def since(cls, saved: Snapshot, memory: DeviceMemory) -> Changes:
        """What is different now."""
        made = []
        for each, old in saved:
            if memory.find(each.start) != each:
                continue
            new = memory.view(each.start, old.size)
            places = np.flatnonzero(new != old)
            if places.size:
                made.append((each.start, old.size, places, old[places], new[places].copy()))
        return cls(tuple(made))


@dataclass(eq=False)
class HeldBack:
    """The changes of the kernel in front, in one run of the kernel behind it.

    Attributes:
        landed: Whether they are visible.
        waited: Whether a griddepcontrol.wait was executed.
        lost: Address of the first byte that both kernels wrote without order, and how many there are.
    """

    changes: Changes
    memory: DeviceMemory
    landed: bool = False
    waited: bool = False
    lost: tuple[int, int] = (0, 0)

    def hide(self) -> None:
        """The kernel behind starts."""
        for start, size, places, old, _ in self.changes.pieces:
            self.memory.view(start, size)[places] = old

    def land(self) -> None:
        """The kernel in front has ended, and all that it wrote is there."""
        if self.landed:
            return
        self.landed = True
        for start, size, places, old, new in self.changes.pieces:
            there = self.memory.view(start, size)
            touched = places[there[places] != old]
            if touched.size:
                self.lost = (self.lost[0] or start + int(touched[0]), self.lost[1] + int(touched.size))
            there[places] = new


@dataclass(eq=False)
class PrimaryWait:
    """Lanes at griddepcontrol.wait while the kernel in front has not ended."""

    mask: Mask
    line: int
    following: int

    def poke(self, unit: Unit, patience: int) -> bool:
        """Try again."""
        if _pending(unit):
            return False
        unit.waits.remove(self)
        unit.add(self.following, self.mask)
        return True

    def describe(self, unit: Unit) -> str:
        """What must happen."""
        return "griddepcontrol.wait: the kernel in front has not ended"


def _pending(unit: Unit) -> bool:
    held = unit.cta.cluster.kernel.held
    return held is not None and not held.landed


def wait(unit: Unit, mask: Mask | None, line: int, following: int) -> int:
    """griddepcontrol.wait; the next block, or -1 when the lanes wait."""
    cluster = unit.cta.cluster
    held: HeldBack | None = cluster.kernel.held
    if held is not None:
        held.waited = True
        if not held.landed and not cluster.schedule.land_now():
            unit.waits.append(PrimaryWait(unit.full(mask), line, following))
            return -1
        held.land()
        cluster.changed += 1
    return following


def depends(units: list[Any]) -> bool:
    """Whether some lanes wait for the kernel in front."""
    return any(isinstance(each, PrimaryWait) for unit in units for each in unit.waits)
