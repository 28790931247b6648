"""`mma.sync.m8n8k4` on float16: four products in a warp, each of two quads of lanes.

PTX ISA, section Matrix Fragments for mma.m8n8k4 with .f16 floating point type. Lanes 4q to 4q+3 and 16+4q to 16+4q+3
form product q.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor import exact, fast
from ptxbench.emulator.tensor.formats import FORMATS, Bits, Format
from ptxbench.emulator.tensor.fragments import Fragment, Index, fragment

_PLACES = np.array([4 * q + i % 4 + 16 * (i // 4) for q in range(4) for i in range(8)])
"""Lanes of a warp, product by product."""
_BACK = np.argsort(_PLACES)
_F16 = (FORMATS["f16"],) * 2


@lru_cache(maxsize=4)
def _factor(along_k: bool) -> Fragment:
    """A [8, 4] (or B as [8 columns, 4]): each lane holds four neighbours along K, or along M."""

    def own(lane: Index) -> Index:
        return lane % 4 + 4 * (lane // 4)

    def neighbour(r: Index, i: Index) -> Index:
        return 2 * r + i

    if along_k:
        return fragment((8, 4), 8, 16, lambda r, lane, i: own(lane), lambda r, lane, i: neighbour(r, i))
    return fragment(
        (8, 4), 8, 16, lambda r, lane, i: neighbour(r, i) + 4 * (lane // 4), lambda r, lane, i: lane % 4 + 0 * r
    )


@lru_cache(maxsize=2)
def _accumulator(width: int) -> Fragment:
    """C and D [8, 8], float16 or float32."""
    if width == 16:
        return fragment((8, 8), 8, 16, lambda r, lane, i: lane % 4 + 4 * (lane // 4), lambda r, lane, i: 2 * r + i)
    return fragment(
        (8, 8),
        8,
        32,
        lambda r, lane, i: (lane & 1) + (r & 2) + 4 * (lane // 4),
        lambda r, lane, i: (r & 4) + (lane & 2) + (r & 1),
    )


@dataclass(frozen=True)
class QuadPairMma:
    """What the text of one instruction fixes."""

    a_row: bool
    b_row: bool
    result: Format
    addend: Format

    @classmethod
    def parse(cls, ins: Instruction) -> QuadPairMma:
        """The form of the instruction.

        Raises:
            Unsupported: It is another one.
        """
        words = ins.modifiers
        if ins.opcode != "mma" or "m8n8k4" not in words or "f64" in words:
            raise Unsupported(ins.name, ins.line)
        layouts = [word for word in words if word in ("row", "col")]
        types = [FORMATS[word] for word in words if word in FORMATS]
        return cls(layouts[0] == "row", layouts[1] == "row", types[0], types[3])

    @np.errstate(all="ignore")
    def multiply(
        self, a: Sequence[Bits] | Bits, b: Sequence[Bits] | Bits, c: Sequence[Bits] | Bits, mode: str = "fast"
    ) -> Bits:
        """Registers of D [registers, lanes] from those of A, B and C; `mode` is `fast` or `exact`."""
        left = _factor(self.a_row).matrix(_grouped(a))
        right = _factor(not self.b_row).matrix(_grouped(b))
        addend = exact.as_f32(_accumulator(self.addend.bits).matrix(_grouped(c)))
        half = self.result.bits == 16
        if mode == "exact":
            made = exact.chained(left, right, addend, half)
        else:
            total = fast.product(left, right, _F16) + addend
            made = fast.to_f16(total) if half else fast.to_f32(total)
        spread = _accumulator(self.result.bits).spread(made)
        return spread.reshape(len(spread), -1, 32)[:, :, _BACK].reshape(len(spread), -1)


def _grouped(registers: Sequence[Bits] | Bits) -> Bits:
    """Registers with the lanes of each product side by side."""
    whole = np.asarray(registers)
    return whole.reshape(len(whole), -1, 32)[:, :, _PLACES].reshape(len(whole), -1)
