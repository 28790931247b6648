"""`wgmma.mma_async`: its static form, the shared memory it reads, and its product; neither issue nor completion.

PTX ISA, section Asynchronous Warpgroup Level Matrix Instructions. M is 64; lanes are the 128 of a warpgroup.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Immediate, Instruction, Vector
from ptxbench.emulator.tensor import exact, fast
from ptxbench.emulator.tensor.descriptor import CHUNK, Descriptor, chunk_addresses
from ptxbench.emulator.tensor.formats import FORMATS, Bits, Format
from ptxbench.emulator.tensor.fragments import unpack, wgmma_a, wgmma_d
from ptxbench.emulator.tensor.sparse import Sparsity, meeting

M = 64
LANES = 128
_SHAPE = re.compile(r"m64n(\d+)k(\d+)\Z")


@dataclass(frozen=True)
class Wgmma:
    """What the text of one instruction fixes."""

    n: int
    k: int
    types: tuple[Format, Format]
    """Of A and B."""
    result: Format
    """f32, f16 or s32."""
    a_in_registers: bool
    negated: tuple[bool, bool] = (False, False)
    transposed: tuple[bool, bool] = (False, False)
    """Whether A, B are MN-major in shared memory."""
    satfinite: bool = False
    sparsity: Sparsity | None = None
    """Of A, if it is stored without half of its elements."""

    @classmethod
    def parse(cls, ins: Instruction) -> Wgmma:
        """The form of a `wgmma.mma_async`.

        Raises:
            Unsupported: It is another instruction.
        """
        shape = next((found for word in ins.modifiers if (found := _SHAPE.match(word))), None)
        types = [FORMATS[word] for word in ins.modifiers if word in FORMATS]
        if ins.opcode != "wgmma" or shape is None or len(types) != 3:
            raise Unsupported(ins.name, ins.line)
        in_registers = isinstance(ins.operands[1], Vector)
        stored = Sparsity.parse(ins, types[1], int(shape[2]), 4)
        rest = ins.operands[6 if stored else 4 :]
        flags = [item.value for item in rest if isinstance(item, Immediate)]
        negated = tuple(flag == -1 for flag in flags[:2]) if flags else (False, False)
        transposed = [flag == 1 for flag in flags[2:]]
        if in_registers and transposed:
            transposed = [False, *transposed]
        return cls(
            n=int(shape[1]),
            k=int(shape[2]),
            types=(types[1], types[2]),
            result=types[0],
            a_in_registers=in_registers,
            negated=(negated[0], negated[1]),
            transposed=(transposed[0], transposed[1]) if transposed else (False, False),
            satfinite="satfinite" in ins.modifiers,
            sparsity=stored,
        )

    def depth(self, side: int) -> int:
        """Elements that A (0) or B (1) has along K in registers or memory."""
        return self.k // 2 if self.sparsity and side == 0 else self.k

    @property
    def d_registers(self) -> int:
        """32-bit registers of the accumulator in each lane."""
        return self.n // 4 if self.result.bits == 16 else self.n // 2

    def a_addresses(self, descriptor: Descriptor) -> NDArray[np.int64]:
        """Shared-memory byte addresses of A's 16-byte chunks; the order is `a_matrix`'s. Read-only."""
        return self._addresses(descriptor, M, 0)

    def b_addresses(self, descriptor: Descriptor) -> NDArray[np.int64]:
        """Shared-memory byte addresses of B's 16-byte chunks; the order is `b_matrix`'s. Read-only."""
        return self._addresses(descriptor, self.n, 1)

    def _addresses(self, descriptor: Descriptor, rows: int, side: int) -> NDArray[np.int64]:
        bits = self.types[side].bits
        return chunk_addresses(descriptor, rows, self.depth(side) * bits // 8, max(bits // 8, 1), self.transposed[side])

    def a_matrix(self, chunks: NDArray[np.uint8]) -> Bits:
        """A's element bits [64, depth] from chunks: uint8 [..., 16], one for each address of `a_addresses`."""
        return self._matrix(chunks, M, 0)

    def b_matrix(self, chunks: NDArray[np.uint8]) -> Bits:
        """B's element bits [N, K] from chunks: uint8 [..., 16], one for each address of `b_addresses`."""
        return self._matrix(chunks, self.n, 1)

    def _matrix(self, chunks: NDArray[np.uint8], rows: int, side: int) -> Bits:
        flat = np.ascontiguousarray(chunks).reshape(-1, CHUNK)
        if self.transposed[side]:
            return unpack(flat.reshape(self.depth(side), -1), self.types[side].bits)[:, :rows].T
        return unpack(flat.reshape(rows, -1), self.types[side].bits)

    def a_from_registers(self, registers: Sequence[Bits] | Bits) -> Bits:
        """A's element bits [64, depth] from four registers of 128 lanes."""
        made: Bits = wgmma_a(self.types[0].bits).matrix(np.asarray(registers))[0]
        return made

    @np.errstate(all="ignore")
    def multiply(
        self,
        a: Bits,
        b: Bits,
        c_registers: Sequence[Bits] | Bits | None,
        mode: str = "fast",
        metadata: NDArray[np.uint32] | None = None,
    ) -> NDArray[np.uint32]:
        """The new accumulator.

        Args:
            a: Element bits [64, K]; [64, K / 2] if A is sparse.
            b: Element bits [N, K].
            c_registers: The old accumulator, `d_registers` arrays of 128 uint32; None without `scale-d`.
            mode: `fast` or `exact`.
            metadata: The register of 128 lanes with the places of a sparse A's elements.

        Returns:
            uint32 [d_registers, 128].

        Raises:
            Fault: The metadata is undefined.
        """
        fragment = wgmma_d(self.n, max(self.result.bits, 16))
        c = None if c_registers is None else fragment.matrix(np.asarray(c_registers, np.uint32))[0]
        if self.sparsity is None or metadata is None:
            made = self._product(a, b, c, mode)
        else:
            # Each row of A meets other elements of B: a product of one row by N columns for each of them.
            met = meeting(b, self.sparsity.positions(metadata).reshape(M, -1))
            made = self._product(a[:, None], met, None if c is None else c[:, None], mode)[:, 0]
        return fragment.spread(made[None]).astype(np.uint32, copy=False)

    def _product(self, a: Bits, b: Bits, c: Bits | None, mode: str) -> Bits:
        if self.types[0].floating:
            return self._floating(a, b, c, mode)
        return fast.integer_product(a, b, self.types, c, self.satfinite)

    def _floating(self, a: Bits, b: Bits, c: Bits | None, mode: str) -> Bits:
        a, b = (_negated(bits) if flag else bits for bits, flag in zip((a, b), self.negated, strict=True))
        half = self.result.bits == 16
        addend = None if c is None else c.view(np.float16).astype(np.float32) if half else c.view(np.float32)
        if mode == "exact":
            narrow = self.types[0].bits == 8
            steps = (exact.SHORT_HALF, exact.WIDE_HALF) if half else (exact.SHORT, exact.WIDE)
            return exact.fused(a, b, self.types, addend, steps[0] if narrow else steps[1])
        total = fast.product(a, b, self.types)
        if addend is not None:
            total += addend
        return fast.to_f16(total) if half else fast.to_f32(total)


def _negated(bits: Bits) -> Bits:
    """Floating-point bits with the other sign."""
    dtype: np.dtype[Any] = bits.dtype
    made: Bits = bits ^ dtype.type(1 << (dtype.itemsize * 8 - 1))
    return made
