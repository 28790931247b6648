"""The operations of `cp.reduce.async.bulk` on arrays of bits; where the data lies is not known here.

PTX ISA, sections cp.reduce.async.bulk and red. Sums keep subnormals, `f32` too, though the ISA says that it flushes
them (H200); a NaN of `f64` goes through as it is. Minimum and maximum of floats prefer the number to the NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault

Bytes = NDArray[np.uint8]
Array = NDArray[Any]

_DTYPES: dict[str, Any] = {
    **{"u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64},
    **{"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f32.ftz": np.float32, "f64": np.float64},
}
_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFF_FFFF, "f32.ftz": 0x7FFF_FFFF, "f64": 0x7FFF_FFFF_FFFF_FFFF}
_BITS: dict[int, Any] = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_ORDERED = ("u32", "s32", "u64", "s64", "f16", "bf16")
_LEGAL = {
    "add": ("u32", "s32", "u64", "f16", "bf16", "f32", "f32.ftz", "f64"),
    "min": _ORDERED,
    "max": _ORDERED,
    "inc": ("u32",),
    "dec": ("u32",),
    "and": ("b32", "b64"),
    "or": ("b32", "b64"),
    "xor": ("b32", "b64"),
}


def combine(operation: str, kind: str, old: Bytes, new: Bytes) -> Bytes:
    """What memory holds after `old` was reduced with `new`.

    Args:
        operation: `add`, `min`, `max`, `inc`, `dec`, `and`, `or` or `xor`.
        kind: PTX type, such as `u32`, `bf16`, `b64`, or `f32.ftz`.
        old: Bytes in memory, contiguous.
        new: As many bytes of the source.

    Raises:
        Fault: The pair of operation and type does not exist.
    """
    if kind not in _LEGAL[operation]:
        raise Fault("cudaErrorIllegalInstruction", f"reduction: no {operation} of type {kind}")
    a, b = (np.ascontiguousarray(part).view(_DTYPES[kind]) for part in (old, new))
    with np.errstate(all="ignore"):
        result = _FLOAT[operation](a, b, kind) if kind in _NAN else _INTEGER[operation](a, b)
    return np.ascontiguousarray(result).view(np.uint8)


def _inc(a: Array, b: Array) -> Array:
    return np.where(a >= b, np.uint32(0), a + np.uint32(1))


def _dec(a: Array, b: Array) -> Array:
    return np.where((a == 0) | (a > b), b, a - np.uint32(1))


def _float_add(a: Array, b: Array, kind: str) -> Array:
    if kind == "f64":
        return np.where(np.isnan(b), b, np.where(np.isnan(a), a, a + b))
    if kind == "f32.ftz":
        return _canonical(_flushed(_flushed(a) + _flushed(b)), kind)
    return _canonical(a + b, kind)


def _flushed(a: Array) -> Array:
    """Subnormals as zeros of the same sign."""
    flushed: Array = np.where(np.abs(a) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), a), a)
    return flushed


def _extreme(a: Array, b: Array, kind: str, *, least: bool) -> Array:
    """Minimum or maximum: a NaN loses, and -0 is less than +0."""
    wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
    below = (wide_a < wide_b) | ((wide_a == wide_b) & np.signbit(wide_a))
    take_a = ~np.isnan(wide_a) & (np.isnan(wide_b) | (below if least else ~below))
    return _canonical(np.where(take_a, a, b), kind)


def _canonical(result: Array, kind: str) -> Array:
    bits: Array = np.array(result).view(_BITS[result.dtype.itemsize])
    bits[np.isnan(result.astype(np.float64))] = _NAN[kind]
    return bits


_INTEGER: dict[str, Callable[[Array, Array], Array]] = {
    "add": lambda a, b: a + b,
    "min": np.minimum,
    "max": np.maximum,
    "inc": _inc,
    "dec": _dec,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_FLOAT: dict[str, Callable[[Array, Array, str], Array]] = {
    "add": _float_add,
    "min": lambda a, b, kind: _extreme(a, b, kind, least=True),
    "max": lambda a, b, kind: _extreme(a, b, kind, least=False),
}
