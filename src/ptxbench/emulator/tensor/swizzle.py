"""The XOR patterns that spread rows of shared memory over its banks; not the layouts that are built on them.

A pattern of span 32, 64 or 128 bytes exchanges the 16-byte chunks of a 128-byte line by the line's number (PTX ISA,
sections Tensor Swizzling Modes and Matrix Descriptor Format). It works on absolute shared-memory addresses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SPANS = (0, 32, 64, 128)
"""Bytes; 0 is no pattern."""

_LINE_MASK = {0: 0, 32: 1, 64: 3, 128: 7}


def swizzle(addresses: NDArray[np.int64], span: int, base_offset: int = 0) -> NDArray[np.int64]:
    """Where the bytes lie that a dense layout has at `addresses`.

    Args:
        addresses: int64, any shape, bytes from the start of shared memory.
        span: 0, 32, 64 or 128.
        base_offset: The descriptor's field of that name; a pattern that starts in line j of its period has j here.
            Measured on an H200: it is subtracted from the line's number.

    Returns:
        int64 of the same shape. Without a base offset the function is its own inverse.
    """
    mask = _LINE_MASK[span]
    if not mask:
        return addresses
    return addresses ^ ((((addresses >> 7) - base_offset) & mask) << 4)
