"""`mma.sync`: its static form and its product on registers of whole warps, A dense or sparse.

PTX ISA, sections Matrix multiply-accumulate using mma, and using mma.sp.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.scalar import double
from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor import exact, fast
from ptxbench.emulator.tensor.formats import FORMATS, Bits, Format
from ptxbench.emulator.tensor.fragments import mma_a, mma_b, mma_c
from ptxbench.emulator.tensor.sparse import Sparsity, meeting

LANES = 32
_SHAPE = re.compile(r"m(8|16)n8k(\d+)\Z")


@dataclass(frozen=True)
class Mma:
    """What the text of one instruction fixes."""

    m: int
    k: int
    types: tuple[Format, Format]
    """Of A and B."""
    result: Format
    """Of C and D: f64, f32, f16 or s32."""
    rounding: str = "rn"
    satfinite: bool = False
    xor: bool = False
    """For b1: whether bits are combined by exclusive or, else by and."""
    native: bool = True
    """Whether the device multiplies this type itself; Hopper takes fp8 to float16 first."""
    sparsity: Sparsity | None = None
    """Of A, if it is stored without half of its elements."""

    @classmethod
    def parse(cls, ins: Instruction) -> Mma:
        """The form of an `mma.sync`.

        Raises:
            Unsupported: It is another instruction, or a form that is not implemented.
        """
        words = ins.modifiers
        shape = next((found for word in words if (found := _SHAPE.match(word))), None)
        types = [FORMATS[word] for word in words if word in FORMATS]
        odd = shape is None or len(types) != 4 or "block_scale" in words
        if ins.opcode != "mma" or shape is None or odd or (shape[0] == "m8n8k4" and types[1].name == "f16"):
            raise Unsupported(ins.name, ins.line)
        return cls(
            m=int(shape[1]),
            k=int(shape[2]),
            types=(types[1], types[2]),
            result=types[0],
            rounding=next((word for word in ("rz", "rm", "rp") if word in words), "rn"),
            satfinite="satfinite" in words,
            xor="xor" in words,
            native=types[1].bits != 8 or not types[1].floating or "kind::f8f6f4" in words,
            sparsity=Sparsity.parse(ins, types[1], int(shape[2]), 5),
        )

    @np.errstate(all="ignore")
    def multiply(
        self,
        a: Sequence[Bits] | Bits,
        b: Sequence[Bits] | Bits,
        c: Sequence[Bits] | Bits,
        mode: str = "fast",
        metadata: NDArray[np.uint32] | None = None,
    ) -> Bits:
        """D of each warp.

        Args:
            a: Registers of A, each an array over lanes (a multiple of 32); uint32, or uint64 for f64.
            b: Registers of B.
            c: Registers of C.
            mode: `fast` or `exact`.
            metadata: The register with the places of a sparse A's elements.

        Returns:
            [registers of D, lanes], uint32 or uint64.

        Raises:
            Fault: The metadata is undefined.
        """
        stored = self.k // 2 if self.sparsity else self.k
        left = mma_a(self.m, stored, self.types[0].bits).matrix(np.asarray(a))
        right = mma_b(self.k, self.types[1].bits).matrix(np.asarray(b))
        fragment = mma_c(self.m, self.result.bits)
        addend = fragment.matrix(np.asarray(c))
        if self.sparsity is None or metadata is None:
            return fragment.spread(self._product(left, right, addend, mode))
        # Each row of A meets other elements of B: a product of one row by N columns for each of them.
        met = meeting(right, self.sparsity.positions(metadata))
        made = self._product(left[..., None, :], met, addend[..., None, :], mode)
        return fragment.spread(made[..., 0, :])

    def _product(self, a: Bits, b: Bits, c: Bits, mode: str) -> Bits:
        if self.result.name == "s32":
            return fast.integer_product(a, b, self.types, c, self.satfinite, self.xor)
        if self.result.name == "f64":
            return double_product(a, b, c, self.rounding, mode)
        return self._exact(a, b, c) if mode == "exact" else self._fast(a, b, c)

    def _fast(self, a: Bits, b: Bits, c: Bits) -> Bits:
        total = fast.product(a, b, self.types)
        if self.result.bits == 16:
            return fast.to_f16(total + c.view(np.float16).astype(np.float32))
        return fast.to_f32(total + c.view(np.float32))

    def _exact(self, a: Bits, b: Bits, c: Bits) -> Bits:
        if not self.native:
            return exact.split_eight_bit(a, b, self.types, c)
        if self.result.bits == 16:
            return exact.fused(a, b, self.types, c.view(np.float16).astype(np.float32), exact.WIDE_HALF)
        return exact.fused(a, b, self.types, c.view(np.float32), exact.WIDE)


def double_product(a: Bits, b: Bits, c: Bits, rounding: str, mode: str) -> Bits:
    """float64 A times B transposed plus C: in `exact` mode, and in directed rounding, one fma after the other along K.

    Args:
        a: uint64 bits [..., M, K].
        b: uint64 bits [..., N, K].
        c: uint64 bits [..., M, N].
        rounding: `rn`, `rz`, `rm` or `rp`.
        mode: `fast` or `exact`.
    """
    left, right, total = a.view(np.float64), b.view(np.float64), c.view(np.float64)
    if mode == "fast" and rounding == "rn":
        total = np.matmul(left, right.swapaxes(-1, -2)) + total
    else:
        fma = double.fma(rounding)
        for k in range(left.shape[-1]):
            total = fma(left[..., :, None, k], right[..., None, :, k], total)
    made: Bits = total.view(np.uint64)
    return made
