"""The 64-bit descriptors of wgmma operands: fields, and the shared-memory bytes they name; reads no memory.

PTX ISA, sections Matrix Descriptor Format and Strides; how the fields combine was measured on an H200 (340 variants).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Trap
from ptxbench.emulator.tensor.swizzle import swizzle

CHUNK = 16
"""Bytes that no layout divides; every field of a descriptor is a multiple of it."""

_SPAN = (0, 128, 64, 32)
_USED = (0x3FFF) | (0x3FFF << 16) | (0x3FFF << 32) | (7 << 49) | (3 << 62)


@dataclass(frozen=True)
class Descriptor:
    """A descriptor's fields in bytes."""

    start: int
    leading: int
    """The field "leading dimension byte offset"."""
    stride: int
    """The field "stride dimension byte offset"."""
    base_offset: int
    span: int
    """0, 32, 64 or 128: the swizzle pattern."""

    @classmethod
    def decode(cls, value: int, line: int = 0) -> Descriptor:
        """The fields of a 64-bit value.

        Raises:
            Trap: A bit is set that has no meaning; the device reports an illegal address.
        """
        if value & ~_USED:
            raise Trap(
                "cudaErrorIllegalAddress",
                line,
                f"matrix descriptor {value:#018x} has reserved bits {value & ~_USED:#x}",
            )
        return cls(
            start=(value & 0x3FFF) << 4,
            leading=(value >> 16 & 0x3FFF) << 4,
            stride=(value >> 32 & 0x3FFF) << 4,
            base_offset=value >> 49 & 7,
            span=_SPAN[value >> 62],
        )

    def encode(self) -> int:
        """The 64-bit value, from addresses of which only 18 bits survive."""
        fields = (self.start >> 4 & 0x3FFF) | (self.leading >> 4 & 0x3FFF) << 16 | (self.stride >> 4 & 0x3FFF) << 32
        return fields | self.base_offset << 49 | _SPAN.index(self.span) << 62


@lru_cache(maxsize=1024)
def dense_offsets(
    descriptor: Descriptor, rows: int, depth_bytes: int, element_bytes: int, mn_major: bool
) -> NDArray[np.int64]:
    """Byte offsets from `start`, before swizzling, of the operand's 16-byte chunks.

    Args:
        descriptor: Its strides and span count, its start does not.
        rows: Size along M or N.
        depth_bytes: Size along K in bytes.
        element_bytes: 1, 2 or 4.
        mn_major: Whether neighbours along M or N lie together in memory, instead of neighbours along K.

    Returns:
        int64: K-major [rows, depth_bytes / 16], MN-major [K, chunks of 16 bytes along MN].
    """
    if mn_major:
        return _mn_major(descriptor, rows, depth_bytes // element_bytes, CHUNK // element_bytes)
    row = np.arange(rows, dtype=np.int64)[:, None]
    chunk = np.arange(depth_bytes // CHUNK, dtype=np.int64)[None, :]
    pitch = descriptor.span or CHUNK
    step = CHUNK if descriptor.span else descriptor.leading
    return (row % 8) * pitch + (row // 8) * descriptor.stride + chunk * step


def _mn_major(descriptor: Descriptor, rows: int, depth: int, per_chunk: int) -> NDArray[np.int64]:
    k = np.arange(depth, dtype=np.int64)[:, None]
    chunk = np.arange(-(-rows // per_chunk), dtype=np.int64)[None, :]
    if not descriptor.span:
        return chunk * descriptor.stride + (k % 8) * CHUNK + (k // 8) * descriptor.leading
    wide = descriptor.span // CHUNK
    along = (chunk % wide) * CHUNK + (chunk // wide) * descriptor.leading
    return along + (k % 8) * descriptor.span + (k // 8) * descriptor.stride


@lru_cache(maxsize=4096)
def chunk_addresses(
    descriptor: Descriptor, rows: int, depth_bytes: int, element_bytes: int, mn_major: bool
) -> NDArray[np.int64]:
    """Shared-memory byte addresses of the operand's 16-byte chunks; arguments and shape as of `dense_offsets`.

    The result is shared and read-only.
    """
    offsets = dense_offsets(descriptor, rows, depth_bytes, element_bytes, mn_major)
    made = swizzle(descriptor.start + offsets, descriptor.span, descriptor.base_offset)
    made.setflags(write=False)
    return made
