"""What is remembered of a CTA's tensor memory, by 16 lanes and a column: who wrote last, who read; judges nothing."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.checks.shadow import PENDING
from ptxbench.emulator.tensor.tmem import COLUMNS, LANES

if TYPE_CHECKING:
    from ptxbench.emulator.machine.tensor_memory import Region

_GROUPS = LANES // 16


@dataclass(eq=False)
class Entry:
    """One write, or one read.

    Attributes:
        row: The unit, or the pipe behind a unit.
        time: Its time then; `PENDING` while a store has not been waited for.
        place: What makes products of one thread ordered; empty for loads and stores of warps.
    """

    row: int
    time: int
    line: int
    kind: str
    place: tuple[Hashable, ...] = ()


class TensorShadow:
    """One CTA's tensor memory.

    Attributes:
        writer: Per group of 16 lanes and column the number of its last write in `entries`; 0: never written.
        reads: Per row, group and column the number of its last read in `entries`; 0: none.
        version: Grows with everything that is remembered.
    """

    def __init__(self, rows: int) -> None:
        self.writer = np.zeros((_GROUPS, COLUMNS), np.int32)
        self.reads = np.zeros((rows, _GROUPS, COLUMNS), np.int32)
        self.entries: list[Entry | None] = [None]
        self.version = 0

    def write(self, region: Region, entry: Entry) -> None:
        """Remember a write; what was read before no longer matters."""
        self.writer[region.groups, region.columns] = self._number(entry)
        self.reads[:, region.groups, region.columns] = 0

    def read(self, region: Region, entry: Entry) -> None:
        """Remember a read."""
        more = entry.row + 1 - self.reads.shape[0]
        if more > 0:
            self.reads = np.pad(self.reads, ((0, more), (0, 0), (0, 0)))
        self.reads[entry.row, region.groups, region.columns] = self._number(entry)

    def half_written(self, region: Region) -> bool:
        """Whether some groups of lanes have been written in all of its columns, and the others in none."""
        written = self.writer[region.groups, region.columns] > 0
        return bool(written.any() and (written.all(axis=1) | ~written.any(axis=1)).all())

    def forget(self, region: Region) -> None:
        """The columns are given back."""
        self.version += 1
        self.writer[region.groups, region.columns] = 0
        self.reads[:, region.groups, region.columns] = 0

    def writers(self, region: Region) -> Iterator[Entry | None]:
        """The last writes of a region; None stands for cells that nobody wrote."""
        for number in _different(self.writer[region.groups, region.columns]):
            yield self.entries[number]

    def readers(self, region: Region) -> Iterator[Entry]:
        """The reads since the last write."""
        for number in _different(self.reads[:, region.groups, region.columns]):
            entry = self.entries[number]
            if entry is not None:
                yield entry

    def _number(self, entry: Entry) -> int:
        self.version += 1
        if self.entries[-1] is not entry:
            self.entries.append(entry)
        return len(self.entries) - 1


def _different(numbers: NDArray[np.int32]) -> list[int]:
    """The different numbers, of which there is mostly one."""
    low = int(numbers.min())
    if low == int(numbers.max()):
        return [low]
    made: list[int] = np.unique(numbers).tolist()
    return made


__all__ = ["PENDING", "Entry", "TensorShadow"]
