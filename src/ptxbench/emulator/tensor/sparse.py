"""Structured sparsity of operand A: where its kept elements lie along K, and which of B they meet; no arithmetic.

Half of A's elements are kept: 2 of 4, 1 of 2 for tf32, two pairs of eight for 4-bit types. For each chunk the metadata
has four bits, two indices of two bits, the lower first. PTX ISA, sections Sparse matrix storage (mma.sp, wgmma.sp).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.ptx.ir import Immediate, Instruction
from ptxbench.emulator.tensor.formats import Bits, Format

_ROWS = 16
_ORDERED = (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)
_EITHER_ORDER = (*_ORDERED, 0x1, 0x2, 0x6, 0x3, 0x7, 0xB)
_OF_TWO = (0x4, 0xE)


@dataclass(frozen=True)
class Sparsity:
    """How one instruction stores A.

    Attributes:
        width: Bits of an element; tf32 has 32.
        depth: K, of the whole A.
        selector: Which lanes of each four hold the metadata.
        ordered: Whether the indices must ascend: `.sp::ordered_metadata`, and fp8 always.
    """

    width: int
    depth: int
    selector: int
    ordered: bool

    @classmethod
    def parse(cls, ins: Instruction, type_: Format, depth: int, selector: int) -> Sparsity | None:
        """How a matrix instruction stores A; None if A is dense.

        Args:
            ins: An `mma` or a `wgmma`.
            type_: Of A's elements.
            depth: K.
            selector: Which operand says where the metadata is.
        """
        if not {"sp", "sp::ordered_metadata"} & set(ins.modifiers):
            return None
        chosen = ins.operands[selector]
        assert isinstance(chosen, Immediate)
        ordered = "sp::ordered_metadata" in ins.modifiers or (type_.floating and type_.bits == 8)
        return cls(type_.bits, depth, chosen.value, ordered)

    @property
    def row_bits(self) -> int:
        """Bits of metadata for a row of A."""
        return {4: self.depth // 2, 32: 2 * self.depth}.get(self.width, self.depth)

    def positions(self, metadata: NDArray[np.uint32]) -> NDArray[np.int64]:
        """The place along K of each kept element.

        Args:
            metadata: A register of whole warps, [32 * warps]; each warp has 16 rows.

        Returns:
            int64 [warps, 16, K / 2].

        Raises:
            Fault: A chunk's four bits have no meaning. The ISA leaves their effect undefined.
        """
        chunks = self._chunks(metadata)
        self._refuse_undefined(chunks)
        return positions_of(chunks, self.width)

    def _chunks(self, metadata: NDArray[np.uint32]) -> NDArray[np.uint8]:
        """Four bits for each chunk: [warps, 16, chunks].

        16 and 32-bit elements: a lane has 16 bits for row g and 16 for row g + 8, the next lane the columns after.
        8 and 4-bit elements: lanes in pairs have 32 bits for row g and for row g + 8.
        """
        quads = np.ascontiguousarray(metadata).reshape(-1, _ROWS // 2, 4)
        if self.width >= 16:
            count = self.row_bits // 16
            words = quads[:, :, self.selector * count :][:, :, :count]
            parts: Bits = np.ascontiguousarray(words).view(np.uint16).reshape(-1, _ROWS // 2, count, 2)
        else:
            count = self.row_bits // 32
            words = quads[:, :, 2 * self.selector :][:, :, : 2 * count]
            parts = words.reshape(-1, _ROWS // 2, count, 2)
        rows = np.ascontiguousarray(parts.transpose(0, 3, 1, 2)).view(np.uint8)
        return np.stack([rows & 15, rows >> 4], axis=-1).reshape(rows.shape[0], _ROWS, -1)

    def _refuse_undefined(self, chunks: NDArray[np.uint8]) -> None:
        defined = _OF_TWO if self.width == 32 else _ORDERED if self.ordered else _EITHER_ORDER
        wrong = ~np.isin(chunks, defined)
        if wrong.any():
            warp, row, chunk = (int(each[0]) for each in np.nonzero(wrong))
            raise Fault(
                "cudaErrorIllegalInstruction",
                f"sparse metadata {int(chunks[warp, row, chunk]):#06b} of row {row}, chunk {chunk} is undefined",
            )


def positions_of(chunks: NDArray[np.uint8], width: int) -> NDArray[np.int64]:
    """The place along K of each kept element: [..., K / 2] from the four bits of chunks [..., chunks]."""
    first, second = (chunks & 3).astype(np.int64), (chunks >> 2).astype(np.int64)
    number = np.arange(chunks.shape[-1], dtype=np.int64)
    if width == 32:
        return 2 * number + (first >> 1)
    pairs = np.stack([first, second], axis=-1)
    if width == 4:
        pairs = np.stack([2 * pairs, 2 * pairs + 1], axis=-1).reshape(*pairs.shape[:-1], 4)
        return (8 * number[:, None] + pairs).reshape(*chunks.shape[:-1], -1)
    return (4 * number[:, None] + pairs).reshape(*chunks.shape[:-1], -1)


def meeting(b: Bits, positions: NDArray[np.int64]) -> Bits:
    """The elements of B that each row of A multiplies.

    Args:
        b: Element bits [..., N, K].
        positions: [..., M, K / 2].

    Returns:
        [..., M, N, K / 2].
    """
    made: Bits = np.take_along_axis(b[..., None, :, :], positions[..., :, None, :], axis=-1)
    return made
