"""ldmatrix, stmatrix and movmatrix: row addresses and the way of 16-byte rows into registers; reads no memory.

PTX ISA, sections ldmatrix, stmatrix, movmatrix. Lanes are any number of whole warps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor.formats import Bits


@dataclass(frozen=True)
class MatrixMove:
    """A form of ldmatrix or stmatrix on 8x8 matrices of 16-bit elements."""

    matrices: int
    """1, 2 or 4: also the registers of each lane."""
    transposed: bool

    @classmethod
    def parse(cls, ins: Instruction) -> MatrixMove:
        """The form of the instruction.

        Raises:
            Unsupported: It moves something else than 8x8 matrices of 16 bits.
        """
        count = next((int(word[1:]) for word in ins.modifiers if word in ("x1", "x2", "x4")), 0)
        if ins.opcode not in ("ldmatrix", "stmatrix") or not count or not {"m8n8", "b16"} <= set(ins.modifiers):
            raise Unsupported(ins.name, ins.line)
        return cls(count, "trans" in ins.modifiers)

    @property
    def address_lanes(self) -> int:
        """Lanes of each warp whose addresses count, from lane 0."""
        return 8 * self.matrices

    def row_addresses(self, addresses: NDArray[Any]) -> NDArray[Any]:
        """The rows' addresses [warps, 8 * matrices] among those of all lanes [lanes]."""
        return addresses.reshape(-1, 32)[:, : self.address_lanes]

    def load(self, rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """Registers [matrices, lanes] from rows: uint8 [warps, 8 * matrices, 16]."""
        elements = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, self.matrices, 8, 8)
        if self.transposed:
            elements = elements.swapaxes(-1, -2)
        words = np.ascontiguousarray(elements.swapaxes(0, 1)).view(np.uint32)
        return words.reshape(self.matrices, -1)

    def store(self, registers: Sequence[Bits] | Bits) -> NDArray[np.uint8]:
        """Rows, uint8 [warps, 8 * matrices, 16], from registers [matrices, lanes]."""
        words = np.ascontiguousarray(np.asarray(registers, np.uint32))
        elements = words.reshape(self.matrices, -1, 8, 4).view(np.uint16).swapaxes(0, 1)
        if self.transposed:
            elements = elements.swapaxes(-1, -2)
        return np.ascontiguousarray(elements).view(np.uint8).reshape(-1, self.address_lanes, 16)


def movmatrix(register: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """`movmatrix.sync.aligned.m8n8.trans.b16`: each warp's matrix, transposed."""
    elements = np.ascontiguousarray(register).reshape(-1, 8, 4).view(np.uint16)
    return np.ascontiguousarray(elements.swapaxes(-1, -2)).view(np.uint32).reshape(-1)
