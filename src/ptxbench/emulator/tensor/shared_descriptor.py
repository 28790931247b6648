"""The 64-bit descriptors of tcgen05 operands in shared memory: fields, legality, the bytes they name; reads no memory.

PTX ISA, section Shared Memory Descriptor; the canonical layouts agree with CUTLASS.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.tensor.descriptor import CHUNK, Descriptor, dense_offsets
from ptxbench.emulator.tensor.swizzle import swizzle

_SPANS = {0: 0, 1: 128, 2: 128, 4: 64, 6: 32}
_ATOM32 = 1
"""The code of a 128-byte pattern that exchanges 32 bytes at a time."""


@dataclass(frozen=True)
class SharedDescriptor:
    """A descriptor's fields.

    Attributes:
        fields: Start, strides, base offset and pattern, in bytes.
        wide_atoms: Whether the 128-byte pattern keeps 32 bytes together, not 16.
    """

    fields: Descriptor
    wide_atoms: bool

    @classmethod
    def decode(cls, value: int) -> SharedDescriptor:
        """The fields of a 64-bit value.

        Raises:
            Fault: A field is not allowed; the message names its bits.
        """
        if value >> 46 & 7 != 1:
            hopper = ": a descriptor of wgmma, whose bit 46 is 0?" if not value >> 46 & 7 else ""
            raise _refused(value, "46-48", value >> 46 & 7, f"the version must be 0b001{hopper}")
        for low, high in ((14, 15), (30, 31), (53, 60)):
            field = value >> low & ((1 << (high - low + 1)) - 1)
            if field:
                raise _refused(value, f"{low}-{high}", field, "reserved, they must be 0")
        if value >> 52 & 1:
            raise _refused(value, "52", 1, "absolute leading offsets are for sm_103a, it must be 0")
        code = value >> 61
        if code not in _SPANS:
            raise _refused(
                value,
                "61-63",
                code,
                "the swizzle is 0 (none), 1 (128 bytes in 32-byte atoms), 2 (128), 4 (64) or 6 (32)",
            )
        if not code and value >> 49 & 7:
            raise _refused(
                value, "49-51", value >> 49 & 7, "without a swizzle no pattern has a base offset, it must be 0"
            )
        fields = Descriptor(
            start=(value & 0x3FFF) << 4,
            leading=(value >> 16 & 0x3FFF) << 4,
            stride=(value >> 32 & 0x3FFF) << 4,
            base_offset=value >> 49 & 7,
            span=_SPANS[code],
        )
        return cls(fields, code == _ATOM32)


def _refused(value: int, bits: str, field: int, wanted: str) -> Fault:
    return Fault(
        "cudaErrorIllegalInstruction", f"matrix descriptor {value:#018x}: bits {bits} hold {field:#x}; {wanted}"
    )


@lru_cache(maxsize=4096)
def chunk_addresses(
    descriptor: SharedDescriptor, rows: int, depth_bytes: int, element_bytes: int, mn_major: bool
) -> NDArray[np.int64]:
    """Shared-memory byte addresses of an operand's 16-byte chunks: K-major [rows, depth_bytes / 16], MN-major [K, n].

    Args:
        descriptor: Of the operand.
        rows: Size along M or N.
        depth_bytes: Size along K in bytes.
        element_bytes: 1, 2 or 4.
        mn_major: Whether neighbours along M or N lie together.

    Raises:
        Fault: The layout is not one for these elements.
    """
    fields = descriptor.fields
    if mn_major and (element_bytes == 4) != descriptor.wide_atoms:
        wanted = (
            "needs the 128-byte swizzle with 32-byte atoms" if element_bytes == 4 else "has no swizzle of 32-byte atoms"
        )
        raise Fault("cudaErrorIllegalInstruction", f"an MN-major operand of {8 * element_bytes}-bit elements {wanted}")
    if not descriptor.wide_atoms:
        made = fields.start + dense_offsets(fields, rows, depth_bytes, element_bytes, mn_major)
        made = swizzle(made, fields.span, fields.base_offset)
    else:
        made = fields.start + _wide(fields, rows, depth_bytes, element_bytes, mn_major)
        lines = (made >> 7) - fields.base_offset
        made = made ^ ((lines & 3) << 5)
    made.setflags(write=False)
    return made


def _wide(fields: Descriptor, rows: int, depth_bytes: int, element_bytes: int, mn_major: bool) -> NDArray[np.int64]:
    """Offsets before the exchange of 32-byte atoms: MN-major patterns are 4 lines of K high, K-major ones 8 rows."""
    if not mn_major:
        return dense_offsets(fields, rows, depth_bytes, element_bytes, False)
    k = np.arange(depth_bytes // element_bytes, dtype=np.int64)[:, None]
    chunk = np.arange(rows * element_bytes // CHUNK, dtype=np.int64)[None, :]
    along = chunk % 8 * CHUNK + chunk // 8 * fields.leading
    return along + k % 4 * fields.span + k // 4 * fields.stride
