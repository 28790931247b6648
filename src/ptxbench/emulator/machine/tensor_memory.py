"""A CTA's tensor memory: cells, allocations, who may still allocate; who waits and what races is known elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.tensor.tmem import COLUMNS, LANES, QUARTER, split_address

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cta import Cta
    from ptxbench.emulator.machine.unit import Unit

SHIFTED = 8
"""Columns that a shift moves."""
UNIT = 32
"""Columns that an allocation is a multiple of."""
ILLEGAL = "cudaErrorIllegalInstruction"


@dataclass(frozen=True)
class Region:
    """A part of a CTA's tensor memory: groups of 16 lanes, and columns.

    Attributes:
        groups: Of 16 lanes, 0 to 7.
    """

    cta: Cta
    groups: slice
    columns: slice

    def meets(self, other: Region) -> bool:
        """Whether some cells belong to both."""
        if self.cta is not other.cta:
            return False
        mine, others = self.columns, other.columns
        if mine.start >= others.stop or others.start >= mine.stop:
            return False
        every = range(LANES // 16)
        return not set(every[self.groups]).isdisjoint(every[other.groups])


@dataclass(frozen=True)
class Allocation:
    """Columns that a warp took."""

    columns: int
    line: int


@dataclass(eq=False)
class TensorMemory:
    """128 lanes of 512 columns of 32 bits.

    Attributes:
        cells: uint32 [128, 512].
        allocations: By their first column.
        freed: Per column the PTX line of its last dealloc; 0: none.
        closed: PTX line of `relinquish_alloc_permit`; 0: none.
        waits: Allocations of other warps that wait for room or for the peer CTA.
    """

    cta: Cta
    cells: Any = field(default_factory=lambda: np.zeros((LANES, COLUMNS), np.uint32))
    allocations: dict[int, Allocation] = field(default_factory=dict)
    freed: Any = field(default_factory=lambda: np.zeros(COLUMNS, np.int32))
    closed: int = 0
    group: int = 0
    smallest: int = COLUMNS
    waits: list[Any] = field(default_factory=list)

    @staticmethod
    def of(cta: Cta) -> TensorMemory:
        """The tensor memory of a CTA, made on first use."""
        if cta.tensor is None:
            cta.tensor = TensorMemory(cta)
        made: TensorMemory = cta.tensor
        return made

    def taken(self) -> NDArray[np.bool_]:
        """Which columns are allocated: bool [512]."""
        made = np.zeros(COLUMNS, np.bool_)
        for first, each in self.allocations.items():
            made[first : first + each.columns] = True
        return made

    def use_group(self, group: int) -> None:
        """An instruction names its `.cta_group`.

        Raises:
            Fault: An earlier one named another; a kernel uses one only.
        """
        if self.group not in (0, group):
            raise Fault(ILLEGAL, f"tcgen05 with .cta_group::{group} after one with .cta_group::{self.group}")
        self.group = group

    def check_request(self, columns: int) -> None:
        """Refuse an allocation that can never be.

        Raises:
            Fault: The number of columns is not allowed, or the CTA has given up its right to allocate.
        """
        if self.closed:
            raise Fault(ILLEGAL, f"tcgen05.alloc after tcgen05.relinquish_alloc_permit of line {self.closed}")
        if columns not in (32, 64, 128, 256, 512):
            raise Fault(ILLEGAL, f"tcgen05.alloc of {columns} columns; 32, 64, 128, 256 or 512 are possible")

    def allocate(self, first: int, columns: int, line: int) -> None:
        """Take columns that are free."""
        self.allocations[first] = Allocation(columns, line)
        self.smallest = min(self.smallest, columns)

    def free(self, address: int, columns: int, line: int) -> int:
        """Give columns back; answers the first.

        Raises:
            Fault: No allocation has this address and this number of columns.
        """
        lane, first = split_address(address)
        found = self.allocations.get(first)
        if found is None or lane or found.columns != columns:
            have = f"the allocation there has {found.columns} columns" if found else self._story(first)
            raise Fault(ILLEGAL, f"tcgen05.dealloc of {columns} columns at {address:#x}: {have}")
        del self.allocations[first]
        self.freed[first : first + columns] = line
        return first

    def check(self, address: int, columns: int, what: str) -> tuple[int, int]:
        """Lane and column of an access that reaches `columns` columns.

        Raises:
            Fault: One of them is not allocated.
        """
        lane, first = split_address(address)
        last = first + columns - 1
        if last >= COLUMNS:
            raise Fault(ILLEGAL, f"{what} reaches column {last} of tensor memory, which has {COLUMNS}")
        for start, each in self.allocations.items():
            if start <= first and last < start + each.columns:
                return lane, first
        taken = self.taken()[first : last + 1]
        bad = first + int(np.argmin(taken))
        if not taken.all():
            raise Fault(ILLEGAL, f"{what} uses column {bad} of tensor memory, {self._story(bad)}")
        return lane, first

    def _story(self, column: int) -> str:
        """Why a column cannot be used."""
        if column < COLUMNS and self.freed[column]:
            return f"which line {int(self.freed[column])} deallocated"
        have = ", ".join(f"{first} to {first + each.columns - 1}" for first, each in self.allocations.items())
        return f"which is not allocated (allocated columns: {have or 'none'})"

    def left_behind(self, unit: Unit) -> None:
        """The CTA has exited: what it did not give back is missed by the next one."""
        for first, each in self.allocations.items():
            message = f"{self.cta.name()} exits with columns {first} to {first + each.columns - 1} of tensor memory "
            message += f"allocated at line {each.line}"
            rule(unit, ("tensor-memory-leak", "error"), message, each.line)


def shift_down(cta: Cta, first: int, column: int) -> None:
    """In each quarter of the lanes from `first` on, rows 1 to 31 move one lane down, over SHIFTED columns."""
    cells = TensorMemory.of(cta).cells[:, column : column + SHIFTED]
    for quarter in range(first, LANES, QUARTER):
        cells[quarter : quarter + QUARTER - 1] = cells[quarter + 1 : quarter + QUARTER].copy()


_HINTS = {
    "tensor-memory-leak": "tcgen05.dealloc of every allocation before the CTA ends; the next CTA waits for it",
    "tensor-allocation-order": "allocate the largest part first",
    "tensor-lane-wrap": "take the lane from the allocated address plus 32 times the warp's number modulo 4",
    "tensor-lane-quarter": "add 32 times the warp's number modulo 4 to the lane, in bits 16 to 31 of the address",
    "tensor-many-issuers": "elect one thread: every thread that executes it issues one of its own",
    "operand-overlap": "check the stride byte offset: 8 rows of a swizzled tile take 8 times the pattern's bytes",
    "tensor-overlap": "give the accumulator and the other operands columns of their own",
    "tensor-shift": "shift with tcgen05.shift.down, whose order with products is documented",
    "tensor-shape": "keep to what all sources agree on",
    "tensor-scale-copies": "copy them with tcgen05.cp.32x128b.warpx4, which fills all four quarters",
}


def rule(unit: Unit, kind: tuple[str, str], message: str, line: int) -> None:
    """Tell the checks of a rule that was broken without stopping the kernel: its name and severity."""
    for observer in unit.cta.cluster.observers:
        observer.tensor_rule(unit, kind, (message, _HINTS[kind[0]]), line)
