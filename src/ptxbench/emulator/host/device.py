"""The device that host code is told of: its numbers, and how many blocks of a kernel an SM holds; no memory, no code.

Numbers are those that the driver reports for an H200 and a B200, by the numbers of cudaDeviceAttr.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxbench.emulator.host.kernels import SYSTEM_SHARED, KernelInfo
from ptxbench.schema.values import Target

MAX_GRID = (2**31 - 1, 65535, 65535)
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
PORTABLE_CLUSTER, MAX_CLUSTER = 8, 16
PLAIN_SHARED = 48 * 1024
"""Bytes of shared memory, static and dynamic, that need no attribute."""

SHARED = 227 * 1024
"""Bytes that a block can have with the attribute."""

_SM_SHARED, _SM_THREADS, _SM_BLOCKS, _SM_REGISTERS = 228 * 1024, 2048, 32, 65536
_SMS = {Target.SM_90A: 132, Target.SM_100A: 148}
_L2 = {Target.SM_90A: 60 * 2**20, Target.SM_100A: 126 * 2**20}


@dataclass(frozen=True)
class HostDevice:
    """One device.

    Attributes:
        target: Its architecture.
        sms: Number of SMs, 0 for the architecture's own.
        memory: Bytes of global memory.
    """

    target: Target = Target.SM_90A
    sms: int = 0
    memory: int = 140 * 2**30

    @property
    def multiprocessors(self) -> int:
        """Number of SMs."""
        return self.sms or _SMS[self.target]

    def attribute(self, number: int) -> int | None:
        """The value of a cudaDeviceAttr; None for one that is not known here."""
        major, minor = self.target.compute_capability
        own = {16: self.multiprocessors, 38: _L2[self.target], 75: major, 76: minor}
        return own.get(number, _ATTRIBUTES.get(number))

    def blocks_per_sm(self, kernel: KernelInfo, threads: int, dynamic_shared: int) -> int:
        """How many blocks an SM holds at once: by threads, registers (whole warps, 256 at a time) and shared memory."""
        warps = -(-threads // 32)
        if not 1 <= threads <= MAX_THREADS:
            return 0
        registers = -(-kernel.registers * 32 // 256) * 256 * (-(-warps // 4) * 4)
        shared = -(-(kernel.static_shared + dynamic_shared) // 128) * 128 + SYSTEM_SHARED
        by_registers = _SM_REGISTERS // registers if registers else _SM_BLOCKS
        return min(_SM_BLOCKS, _SM_THREADS // (32 * warps), by_registers, _SM_SHARED // shared)


_ATTRIBUTES = {
    1: MAX_THREADS,
    **dict(zip((2, 3, 4), MAX_BLOCK, strict=True)),
    **dict(zip((5, 6, 7), MAX_GRID, strict=True)),
    8: PLAIN_SHARED,
    9: 65536,  # constant memory
    10: 32,  # warp size
    11: 2**31 - 1,  # pitch
    12: _SM_REGISTERS,
    14: 512,  # texture alignment
    **dict.fromkeys((15, 19, 31, 32, 41), 1),  # overlap, host mapping, concurrent kernels, ECC, unified addressing
    **dict.fromkeys((17, 18, 20), 0),  # kernel time limit, integrated, compute mode
    37: 6144,  # memory bus, bits
    39: _SM_THREADS,
    40: 3,  # copy engines
    **dict.fromkeys((78, 79, 80), 1),  # stream priorities, L1 for global and local memory
    81: _SM_SHARED,
    82: _SM_REGISTERS,
    95: 1,  # cooperative launch
    97: SHARED,
    106: _SM_BLOCKS,
    108: 30 * 2**20,  # persisting L2
    109: 128 * 2**20,  # access policy window
    111: SYSTEM_SHARED,
    115: 1,  # memory pools
    120: 1,  # clusters
}
