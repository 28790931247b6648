"""Floating-point operations of one tensor-core instruction, read from its mnemonic; how often it ran is `ncu`'s.

Shapes stand in the mnemonic of every warp and warpgroup instruction. Those of Blackwell's UTC*MMA come from a
descriptor at run time, so only counters can tell their work.
"""

from __future__ import annotations

import re
from math import prod

_THREADS_OF_WARP = 32
_THREADS_OF_WARPGROUP = 128

_CROSSED = re.compile(r"(\d+)x(\d+)x(\d+)")
_JOINED = re.compile(r"(16|8)(8)(\d+)")
"""`16816` is 16 x 8 x 16: M is 8 or 16 and N is 8 in every mma.sync shape (PTX ISA, section on mma.sync)."""


def shape_of(opcode: str) -> tuple[int, int, int] | None:
    """(M, N, K) of an MMA instruction; None where the mnemonic holds none.

    `HGMMA.64x256x16.F32.BF16` is (64, 256, 16), `HMMA.16816.F32` is (16, 8, 16), `DMMA.8x8x4` is (8, 8, 4).
    """
    for modifier in opcode.split(".")[1:]:
        match = _CROSSED.fullmatch(modifier) or _JOINED.fullmatch(modifier)
        if match:
            return int(match[1]), int(match[2]), int(match[3])
    return None


def flops_of(opcode: str, thread_instructions: int) -> float | None:
    """Floating-point (or integer) operations of `thread_instructions` predicate-true executions by single threads.

    2*M*N*K per instruction, of which a GMMA takes the 128 threads of a warpgroup and every other one a warp of 32. A
    structured-sparse instruction multiplies half of its K. None where the mnemonic holds no shape.
    """
    shape = shape_of(opcode)
    if shape is None:
        return None
    base, *modifiers = opcode.split(".")
    threads = _THREADS_OF_WARPGROUP if base.endswith("GMMA") else _THREADS_OF_WARP
    dense = 2.0 * prod(shape) * thread_instructions / threads
    return dense / 2 if "SP" in modifiers else dense
