"""The zero-column mask descriptor of `tcgen05.mma.ws`: which columns of B count as zero, and which is the first.

PTX ISA, section Zero-Column Mask Descriptor. Its table calls the skip span the columns that are used, its examples have
it the other way; the examples count here, as other emulators found them to on hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault

_ENABLED = 39


@dataclass(frozen=True, eq=False)
class ZeroColumns:
    """What a mask descriptor means for one product.

    Attributes:
        first: Row of B (column of the product) that is the first to be used.
        zero: Columns of the product for which B counts as zero: bool [N].
        doubtful: What no source tells; empty if nothing.
    """

    first: int
    zero: NDArray[np.bool_]
    doubtful: str = ""


@lru_cache(maxsize=256)
def decode(value: int, m: int, n: int) -> ZeroColumns:
    """The columns behind a descriptor, for a product of M rows and N columns.

    Raises:
        Fault: A field is not allowed; the message names its bits.
    """
    for low, high in ((36, 38), (62, 63)):
        if value >> low & ((1 << (high - low + 1)) - 1):
            raise _refused(value, f"{low}-{high}", "reserved, they must be 0")
    first, most = value >> 56 & 63, 16 if m == 32 else 32
    if first > most:
        raise _refused(value, "56-61", f"the column shift is {most} at most for M = {m}")
    if not value >> _ENABLED & 1:
        return ZeroColumns(first, np.zeros(n, np.bool_))
    spans = {1: (value >> 40 & 255) + 1, 0: (value >> 48 & 255) + 1}
    parts, doubt = [], ""
    for part in range(128 // m):
        start, bit = value >> 8 * part & 255, value >> (32 + part) & 1
        if start >= spans[bit]:
            doubt = f"start count {part} of a zero-column mask skips {start} columns of a span of {spans[bit]}"
            start = spans[bit] - 1
        parts.append(_pattern(bit, spans, start, n * m // 128))
    return ZeroColumns(first, np.concatenate(parts), doubt)


def _pattern(bit: int, spans: dict[int, int], start: int, count: int) -> NDArray[np.bool_]:
    """Spans in turn, `bit` first, without the first `start` columns."""
    period = np.repeat(np.array([bit, 1 - bit], np.bool_), (spans[bit], spans[1 - bit]))
    return np.asarray(period[(np.arange(count) + start) % period.size])


def _refused(value: int, bits: str, wanted: str) -> Fault:
    return Fault("cudaErrorIllegalInstruction", f"zero-column mask descriptor {value:#018x}: bits {bits}: {wanted}")
