"""Elements of tcgen05 operands from bytes: 32 bytes of a row along K to numbers, and scale factors; no arithmetic.

PTX ISA, sections Packing formats of elements in Shared Memory / Tensor Memory, and Alternate Floating-Point Formats.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.tensor.formats import FORMATS, decode

_BITS = {"e2m1": 4, "e2m3": 6, "e3m2": 6}
_NARROW: dict[str, Any] = {
    "e2m1": ml_dtypes.float4_e2m1fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
}
_SCALES: dict[str, Any] = {"ue8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn}


def element_bytes(type_: str) -> int:
    """Bytes that an element takes where neighbours along M or N lie together; narrow ones count 1."""
    return 1 if type_ in _BITS else FORMATS[type_].bits // 8


@cache
def _table(type_: str) -> NDArray[np.float32]:
    codes = np.arange(1 << _BITS[type_], dtype=np.uint8)
    values: NDArray[np.float32] = codes.view(_NARROW[type_]).astype(np.float32)
    return values


def along_k(raw: NDArray[np.uint8], type_: str, packing: str) -> NDArray[np.float32]:
    """The numbers [rows, K] of K-major rows of whole 16-byte chunks.

    Args:
        raw: uint8 [rows, bytes].
        type_: Of the elements.
        packing: Of elements below 8 bits: `dense` (no gaps), `padded` (16 elements in 16 bytes, what they do not fill
            is left out) or `bytes` (each in the low bits of its own).
    """
    if type_ not in _BITS:
        return decode(np.ascontiguousarray(raw).view(FORMATS[type_].storage), FORMATS[type_])
    if packing == "bytes":
        return np.asarray(_table(type_)[raw & np.uint8((1 << _BITS[type_]) - 1)])
    return np.asarray(_table(type_)[codes(raw, _BITS[type_], packing)])


def codes(raw: NDArray[np.uint8], bits: int, packing: str) -> NDArray[np.uint8]:
    """The bits of elements of 4 or 6 bits, one to a byte: [rows, elements]."""
    rows = raw.shape[0]
    if packing == "padded":
        raw = raw.reshape(rows, -1, 16)[:, :, : 2 * bits]
    flat = np.unpackbits(np.ascontiguousarray(raw).reshape(rows, -1), axis=1, bitorder="little")
    weights = (1 << np.arange(bits)).astype(np.uint8)
    made: NDArray[np.uint8] = (flat.reshape(rows, -1, bits) * weights).sum(axis=2, dtype=np.uint8)
    return made


def along_mn(raw: NDArray[np.uint8], type_: str) -> NDArray[np.float32]:
    """The numbers [rows, K] of an MN-major operand: uint8 [K, bytes]."""
    return decode(np.ascontiguousarray(raw).view(FORMATS[type_].storage), FORMATS[type_]).T


@cache
def _scale_table(type_: str) -> NDArray[np.float32]:
    mask = 0x7F if type_ == "ue4m3" else 0xFF
    bits = (np.arange(256) & mask).astype(np.uint8)
    values: NDArray[np.float32] = bits.view(_SCALES[type_]).astype(np.float32)
    return values


def scales(raw: NDArray[np.uint8], type_: str) -> NDArray[np.float32]:
    """Scale factors from their bytes: `ue8m0` (2 to the value minus 127, 255 is NaN) or `ue4m3` (e4m3, no sign)."""
    return np.asarray(_scale_table(type_)[raw])
