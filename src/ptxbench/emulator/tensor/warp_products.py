"""One way to the form of any matrix product that a warp makes: mma.sync and wmma.mma; wgmma is a warpgroup's."""

from __future__ import annotations

from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor.mma import Mma
from ptxbench.emulator.tensor.quad_pairs import QuadPairMma
from ptxbench.emulator.tensor.wmma import Wmma

WarpProduct = Mma | QuadPairMma | Wmma
"""All have `multiply(a, b, c, mode)` on the registers of whole warps, and a `result` format."""


def warp_product(ins: Instruction) -> WarpProduct:
    """The form of an `mma.sync` or `wmma.mma`.

    Raises:
        Unsupported: It is neither, or one with block-scaled operands.
    """
    if ins.opcode == "wmma":
        return Wmma.parse(ins)
    if "m8n8k4" in ins.modifiers and "f64" not in ins.modifiers:
        return QuadPairMma.parse(ins)
    return Mma.parse(ins)
