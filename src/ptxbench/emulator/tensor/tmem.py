"""Tensor memory's addresses, and how tcgen05.ld and tcgen05.st spread registers over its cells; holds no cells.

A CTA of sm_100a has 128 lanes of 512 columns, 32 bits each; an address is the lane in its upper half and the column in
its lower one. PTX ISA, sections Tensor Memory Addressing and Data Movement Shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Immediate, Instruction

LANES = 128
COLUMNS = 512
QUARTER = 32
"""Lanes that the warps of one number modulo 4 reach."""

Index = NDArray[np.int64]
_Formula = Callable[[Index, Index], Index]
# Per shape: registers of each lane for x1, lane and column of thread t's register r.
_SHAPES: dict[str, tuple[int, _Formula, _Formula]] = {
    "32x32b": (1, lambda t, r: t + 0 * r, lambda t, r: r + 0 * t),
    "16x64b": (1, lambda t, r: t // 4 + 8 * (t % 2) + 0 * r, lambda t, r: 2 * r + t // 2 % 2),
    "16x128b": (2, lambda t, r: t // 4 + 8 * (r % 2), lambda t, r: 4 * (r // 2) + t % 4),
    "16x256b": (4, lambda t, r: t // 4 + 8 * (r // 2 % 2), lambda t, r: 8 * (r // 4) + 2 * (t % 4) + r % 2),
    "16x32bx2": (1, lambda t, r: t % 16 + 0 * r, lambda t, r: r + 0 * t),
}


def split_address(address: int) -> tuple[int, int]:
    """Lane and column of a 32-bit address; lanes beyond the last begin again (no document says what they do)."""
    return address >> 16 & (LANES - 1), address & 0xFFFF


@dataclass(frozen=True)
class TensorMove:
    """What the text of one tcgen05.ld or tcgen05.st fixes.

    Attributes:
        half: Columns between the two halves of `.16x32bx2`.
        packed: Whether a register holds the low 16 bits of two columns.
    """

    shape: str
    repeat: int
    packed: bool
    half: int = 0

    @classmethod
    def parse(cls, ins: Instruction) -> TensorMove:
        """The form of the instruction.

        Raises:
            Unsupported: It has no such shape.
        """
        shape = next((word for word in ins.modifiers if word in _SHAPES), "")
        repeat = next((int(word[1:]) for word in ins.modifiers if word[0] == "x" and word[1:].isdecimal()), 0)
        if not shape or not repeat:
            raise Unsupported(ins.name, ins.line)
        packed = "pack::16b" in ins.modifiers or "unpack::16b" in ins.modifiers
        half = next((each.value for each in ins.operands if isinstance(each, Immediate)), 0)
        return cls(shape, repeat, packed, half if shape == "16x32bx2" else 0)

    @property
    def registers(self) -> int:
        """32-bit registers of each lane."""
        return self.repeat * _SHAPES[self.shape][0]

    @property
    def lanes(self) -> int:
        """Tensor-memory lanes that it reaches: 16 or 32."""
        return QUARTER if self.shape == "32x32b" else 16

    @cached_property
    def columns(self) -> int:
        """Columns from the address on, up to the last that it reaches."""
        return int((self.places % COLUMNS).max()) + 1

    @cached_property
    def places(self) -> Index:
        """Cells relative to the address, `lane * 512 + column`: [parts, registers, 32].

        There is one part, or two when packed: the cells of the low halves and those of the high ones.
        """
        return _places(self)

    def address_lanes(self) -> tuple[int, ...]:
        """The lanes within a quarter at which its address may point."""
        return (0,) if self.lanes == QUARTER else (0, 16)


@lru_cache(maxsize=256)
def _places(move: TensorMove) -> Index:
    _, lane, column = _SHAPES[move.shape]
    t = np.arange(QUARTER, dtype=np.int64)[None, :]
    r = np.arange(move.registers, dtype=np.int64)[:, None]
    steps = (0, 1) if move.packed else (0,)
    columns = column(t, r) * len(steps) + (t >= 16) * move.half
    made = np.stack([lane(t, r) * COLUMNS + columns + step for step in steps])
    made.flags.writeable = False
    return made
