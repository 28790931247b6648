"""One-dimensional bulk copies (`cp.async.bulk`, `cp.reduce.async.bulk`): sizes, alignment, masks; no timing.

As measured on an H200: addresses need 16 bytes, a size in a register loses its low four bits, size 0 moves nothing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault

Bytes = NDArray[np.uint8]


def bulk_size(size: int, *addresses: int) -> int:
    """Bytes that move, which are also the bytes that are signalled.

    Args:
        size: The operand, as u32.
        addresses: Of source, destination.

    Raises:
        Fault: An address is not a multiple of 16.
    """
    for address in addresses:
        if address % 16:
            raise Fault("cudaErrorMisalignedAddress", f"bulk copy: the address {address:#x} is not a multiple of 16")
    return size & 0xFFFF_FFF0


def bulk_copy(destination: Bytes, source: Bytes, byte_mask: int | None = None) -> None:
    """Copies views of equal, multiple-of-16 size; with `.cp_mask` only those bytes of every 16 whose bit is set."""
    if byte_mask is None:
        destination[:] = source
        return
    chosen = (byte_mask >> np.arange(16) & 1).astype(bool)
    destination.reshape(-1, 16)[:, chosen] = source.reshape(-1, 16)[:, chosen]
