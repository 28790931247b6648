"""The driver's checks of cuTensorMapEncodeTiled, -Im2col and -Im2colWide; what a map then does is not known here.

The rules are those that the driver API documents, corrected by what driver 580 accepted and refused on an H200:
strides may be 0 or smaller than a row, and a box may be larger than its tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxbench.emulator.async_.tensormap import FLOATS, MAX_RANK, Swizzle, TensorMap, Type, to_bytes

_WIDE = (Type.U4_ALIGN16, Type.U6_ALIGN16)
_BITS = {Type.U4: 4, Type.U4_ALIGN16: 8, Type.U6_ALIGN16: 8}  # of shared memory that an element takes
_WIDE_SWIZZLES = (Swizzle.B64, Swizzle.B128, Swizzle.B128_ATOM32)
_CORNER = {3: 1 << 15, 4: 1 << 7, 5: 1 << 4}


@dataclass(frozen=True)
class Refused:
    """The driver's answer to bad arguments.

    Attributes:
        reason: The rule that they break.
        code: The CUresult, CUDA_ERROR_INVALID_VALUE.
    """

    reason: str
    code: int = 1


def encode(arguments: TensorMap) -> bytes | Refused:
    """Both encode calls: the 128-byte record of our own, or what the driver would refuse."""
    for check in (_numbers, _tensor, _strides, _box if arguments.im2col is None else _im2col, _inner, _combination):
        if reason := check(arguments):
            return Refused(reason)
    return to_bytes(arguments)


def _numbers(t: TensorMap) -> str:
    ranges = {
        "tensorDataType": (t.type, 16),
        "interleave": (t.interleave, 3),
        "swizzle": (t.swizzle, 7),
        "l2Promotion": (t.l2, 4),
        "oobFill": (t.fill, 2),
    }
    for name, (value, count) in ranges.items():
        if value not in range(count):
            return f"{name} {value} does not exist"
    return ""


def _tensor(t: TensorMap) -> str:
    least = 3 if t.interleave or t.im2col else 1
    if not least <= t.rank <= MAX_RANK:
        return f"tensorRank {t.rank} is outside {least}..{MAX_RANK}"
    if t.address % _alignment(t):
        return f"globalAddress {t.address:#x} is not a multiple of {_alignment(t)}"
    for index, size in enumerate(t.dims):
        if not 1 <= size <= 1 << 32:
            return f"globalDim[{index}] {size} is outside 1..2^32"
    if t.type in _WIDE and t.dims[0] % 128:
        return f"globalDim[0] {t.dims[0]} is not a multiple of 128"
    return ""


def _strides(t: TensorMap) -> str:
    for index, stride in enumerate(t.strides):
        if stride % _alignment(t) or not 0 <= stride < 1 << 40:
            return f"globalStrides[{index}] {stride} is not a multiple of {_alignment(t)} below 2^40"
    for index, step in enumerate(t.element_strides):
        if not 1 <= step <= 8:
            return f"elementStrides[{index}] {step} is outside 1..8"
    return ""


def _box(t: TensorMap) -> str:
    for index, size in enumerate(t.box):
        if not 1 <= size <= 256:
            return f"boxDim[{index}] {size} is outside 1..256"
    if t.type in _WIDE and t.box[0] != 128:
        return f"boxDim[0] {t.box[0]} is not 128"
    return ""


def _im2col(t: TensorMap) -> str:
    assert t.im2col is not None
    if not 1 <= t.im2col.channels <= 256:
        return f"channelsPerPixel {t.im2col.channels} is outside 1..256"
    if not 1 <= t.im2col.pixels <= 1024 and t.im2col.wide != 2:
        return f"pixelsPerColumn {t.im2col.pixels} is outside 1..1024"
    if t.im2col.wide and t.swizzle not in _WIDE_SWIZZLES:
        return f"swizzle {Swizzle(t.swizzle).name} in a map of columns along W alone"
    bound = _CORNER[3 if t.im2col.wide else t.rank]
    for name, corner in (("Lower", t.im2col.lower), ("Upper", t.im2col.upper)):
        for value in corner:
            if not -bound <= value < bound:
                return f"pixelBox{name}Corner {value} is outside -{bound}..{bound - 1}"
    return ""


def _inner(t: TensorMap) -> str:
    inner = (t.im2col.channels if t.im2col else t.box[0]) * _element_bits(t) // 8
    if inner % 16:
        return f"the box's inner dimension has {inner} bytes, which is not a multiple of 16"
    if t.swizzle and inner > t.span and not t.interleave:
        return f"the box's inner dimension has {inner} bytes, more than the swizzle's {t.span}"
    return ""


def _combination(t: TensorMap) -> str:
    if t.interleave == 2 and t.swizzle != Swizzle.B32:
        return "interleave 32B needs swizzle 32B"
    if t.fill and t.type not in FLOATS:
        return f"a NaN fill with the type {Type(t.type).name}"
    if t.type in _WIDE and t.swizzle not in (Swizzle.NONE, Swizzle.B128, Swizzle.B128_ATOM32):
        return f"swizzle {Swizzle(t.swizzle).name} with the type {Type(t.type).name}"
    return ""


def _alignment(t: TensorMap) -> int:
    return 32 if t.interleave == 2 or t.type in _WIDE else 16


def _element_bits(t: TensorMap) -> int:
    return _BITS[Type(t.type)] if t.type in _BITS else 8 * t.element_bytes
