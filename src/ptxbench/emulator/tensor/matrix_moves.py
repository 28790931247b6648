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
from ptxbench.emulator.tensor.narrow import codes


@dataclass(frozen=True)
class MatrixMove:
    """A form of ldmatrix or stmatrix.

    Attributes:
        matrices: 1, 2 or 4.
        transposed: Whether a register holds neighbours of a column.
        rows: Of a matrix in memory, of 16 bytes each: 8, or 16 where ldmatrix reads 16x16 bytes.
        bytes: Whether elements have 8 bits: 16x16 of them in two registers, or 16x8 in one, transposed, and 8x16 in
            one.
        packed: Bits of an element in memory, 4 or 6 of them, which goes to the low bits of its byte; 0: whole bytes.
    """

    matrices: int
    transposed: bool
    rows: int = 8
    bytes: bool = False
    packed: int = 0

    @classmethod
    def parse(cls, ins: Instruction) -> MatrixMove:
        """The form of the instruction.

        Raises:
            Unsupported: There is no such one.
        """
        words = set(ins.modifiers)
        count = next((int(word[1:]) for word in ins.modifiers if word in ("x1", "x2", "x4")), 0)
        if ins.opcode in ("ldmatrix", "stmatrix") and count and {"m8n8", "b16"} <= words:
            return cls(count, "trans" in words)
        if ins.opcode == "ldmatrix" and count and words & {"b8", "b8x16"} and words & {"m16n16", "m8n16"}:
            packed = 4 if "b4x16_p64" in words else 6 if "b6x16_p32" in words else 0
            return cls(count, "m16n16" in words, 16 if "m16n16" in words else 8, True, packed)
        if ins.opcode == "stmatrix" and count and {"b8", "m16n8"} <= words:
            return cls(count, True, 8, True)
        raise Unsupported(ins.name, ins.line)

    @property
    def address_lanes(self) -> int:
        """Lanes of each warp whose addresses count, from lane 0."""
        return self.rows * self.matrices

    def row_addresses(self, addresses: NDArray[Any]) -> NDArray[Any]:
        """The rows' addresses [warps, rows * matrices] among those of all lanes [lanes]."""
        return addresses.reshape(-1, 32)[:, : self.address_lanes]

    def load(self, rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """Registers [registers, lanes] from rows: uint8 [warps, rows * matrices, 16]."""
        if self.packed:
            rows = codes(rows.reshape(-1, 16), self.packed, "padded")
        if self.bytes and self.transposed:
            return self._load_bytes(rows)
        if self.bytes:  # lane 4g + q: four neighbours, from 4q, of row g
            words = rows.view(np.uint32).reshape(-1, self.matrices, 32).swapaxes(0, 1)
            return np.ascontiguousarray(words).reshape(self.matrices, -1)
        elements = np.ascontiguousarray(rows).view(np.uint16).reshape(-1, self.matrices, 8, 8)
        if self.transposed:
            elements = elements.swapaxes(-1, -2)
        words = np.ascontiguousarray(elements.swapaxes(0, 1)).view(np.uint32)
        return words.reshape(self.matrices, -1)

    def store(self, registers: Sequence[Bits] | Bits) -> NDArray[np.uint8]:
        """Rows, uint8 [warps, 8 * matrices, 16], from registers [matrices, lanes]."""
        words = np.ascontiguousarray(np.asarray(registers, np.uint32))
        if self.bytes:
            return self._store_bytes(words)
        elements = words.reshape(self.matrices, -1, 8, 4).view(np.uint16).swapaxes(0, 1)
        if self.transposed:
            elements = elements.swapaxes(-1, -2)
        return np.ascontiguousarray(elements).view(np.uint8).reshape(-1, self.address_lanes, 16)

    def _load_bytes(self, rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """Lane 4g + q: four neighbours, from 4q, of column g in its first register, of g + 8 in its second."""
        columns = rows.reshape(-1, self.matrices, 16, 16).swapaxes(-1, -2)
        words = np.ascontiguousarray(columns).view(np.uint32).reshape(-1, self.matrices, 2, 8, 4)
        return words.transpose(1, 2, 0, 3, 4).reshape(2 * self.matrices, -1)

    def _store_bytes(self, words: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """Lane 4g + q: two neighbours, from 2q, of column g in the low bytes, of g + 8 in the high ones."""
        parts = words.view(np.uint8).reshape(self.matrices, -1, 8, 4, 2, 2)
        matrix, warp, g, q, high, low = range(6)
        rows = parts.transpose(warp, matrix, q, low, high, g)
        return np.ascontiguousarray(rows).reshape(-1, self.address_lanes, 16)


def movmatrix(register: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """`movmatrix.sync.aligned.m8n8.trans.b16`: each warp's matrix, transposed."""
    elements = np.ascontiguousarray(register).reshape(-1, 8, 4).view(np.uint16)
    return np.ascontiguousarray(elements.swapaxes(-1, -2)).view(np.uint32).reshape(-1)
