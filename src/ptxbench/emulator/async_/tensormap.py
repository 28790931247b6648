"""Tensor maps: what the driver's encode calls take, and a 128-byte record of our own; checks are in encode.py.

Numbers of data types, swizzles and the rest are those of cuda.h; `replace` takes those of the PTX ISA, which differ.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any

from ptxbench.emulator.errors import Fault, Unsupported

BYTES = 128
"""Size of a tensor map."""

MAX_RANK = 5

MAGIC = b"ptxb.map"
"""First bytes of the record; the rest are `_LAYOUT`'s fields and zeros."""

_LAYOUT = struct.Struct("<8s 8B Q 5I 4Q 5H 5B 6h 2H")


class Type(IntEnum):
    """CUtensorMapDataType."""

    U8, U16, U32, S32, U64, S64, F16, F32, F64, BF16, F32_FTZ, TF32, TF32_FTZ, U4, U4_ALIGN16, U6_ALIGN16 = range(16)


FLOATS = (Type.F16, Type.F32, Type.F64, Type.BF16, Type.F32_FTZ, Type.TF32, Type.TF32_FTZ)
"""Types that have a NaN to fill with."""


class Swizzle(IntEnum):
    """CUtensorMapSwizzle."""

    NONE, B32, B64, B128, B128_ATOM32, B128_ATOM32_FLIP8, B128_ATOM64 = range(7)


_SIZES = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 8, 9: 2, 10: 4, 11: 4, 12: 4}
_SPANS = {0: 0, 1: 32, 2: 64, 3: 128, 4: 128, 5: 128, 6: 128}
# Types and swizzles as `tensormap.replace` numbers them.
_PTX_TYPES = (
    *(Type.U8, Type.U16, Type.U32, Type.S32, Type.U64, Type.S64, Type.F16, Type.F32, Type.F32_FTZ, Type.F64),
    *(Type.BF16, Type.TF32, Type.TF32_FTZ, Type.U4, Type.U4_ALIGN16, Type.U6_ALIGN16),
)
_ATOMS = (Swizzle.B128, Swizzle.B128_ATOM32, Swizzle.B128_ATOM32_FLIP8, Swizzle.B128_ATOM64)


@dataclass(frozen=True)
class TensorMap:
    """Arguments of cuTensorMapEncodeTiled or, with `im2col`, of one of the other two; dimension 0 is innermost.

    Attributes:
        type: A `Type`.
        address: Global address of element 0.
        dims: Size of the tensor per dimension, in elements.
        strides: Bytes from one element to the next in dimension 1, 2, ...; dimension 0 is dense.
        box: Elements of the box per dimension before the element strides; empty for im2col.
        element_strides: Step between elements of the box per dimension; entry 0 means nothing without interleave.
        interleave: 0 none, 1 16 bytes, 2 32 bytes.
        swizzle: A `Swizzle`.
        l2: L2 promotion 0, 64, 128, 256 bytes as 0..3.
        fill: 0 zeros outside the tensor, 1 the special NaN.
        im2col: The further arguments of the other call.
    """

    type: int
    address: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    interleave: int = 0
    swizzle: int = 0
    l2: int = 0
    fill: int = 0
    im2col: Im2col | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.dims)

    @property
    def element_bytes(self) -> int:
        """Bytes of an element.

        Raises:
            Unsupported: A type of 4 or 6 bits.
        """
        if self.type not in _SIZES:
            raise Unsupported("tensor copy", 0, f"tensor maps of type {Type(self.type).name}")
        return _SIZES[self.type]

    @property
    def span(self) -> int:
        """Bytes over which the swizzle works, which are then the pitch of rows in shared memory; 0 without swizzle."""
        return _SPANS[self.swizzle]


@dataclass(frozen=True)
class Im2col:
    """What cuTensorMapEncodeIm2col takes in place of a box; spatial dimensions in the order W, H, D.

    Attributes:
        lower: Offset of the bounding box's lower corner from the tensor's, per spatial dimension; of a wide map for W.
        upper: Offset of its upper corner from the tensor's upper corner (the last pixel).
        channels: Channels per pixel.
        pixels: Pixels per column.
        wide: Of cuTensorMapEncodeIm2colWide: 1 for `im2col::w`, 2 for `im2col::w::128`; 0 of the other call.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int
    wide: int = 0


def to_bytes(tensor_map: TensorMap) -> bytes:
    """The 128-byte record of any map, valid or not; what does not fit its field is cut off."""
    im2col = tensor_map.im2col or Im2col((), (), 0, 0)
    t = tensor_map
    kinds = (t.im2col is not None, t.type, t.rank, t.interleave, t.swizzle, t.l2, t.fill, im2col.wide)
    sizes = (
        *_resized(tuple(size - 1 & 0xFFFF_FFFF for size in t.dims), 5, 0),
        *_resized(tuple(stride & (1 << 64) - 1 for stride in t.strides), 4, 0),
        *_resized(tuple(size & 0xFFFF for size in t.box), 5, 0),
        *_resized(tuple(step & 0xFF for step in t.element_strides), 5, 0),
    )
    corners = (*_resized(im2col.lower, 3, 0), *_resized(im2col.upper, 3, 0))
    column = (im2col.channels, im2col.pixels)
    return _LAYOUT.pack(MAGIC, *kinds, t.address & (1 << 64) - 1, *sizes, *corners, *column).ljust(BYTES, b"\0")


def is_record(record: bytes) -> bool:
    """Whether these 128 bytes are a tensor map; a parameter of a kernel that is one is found by this."""
    if len(record) != BYTES or not record.startswith(MAGIC):
        return False
    im2col, kind, rank, interleave, swizzle, l2, fill, wide = record[8:16]
    fits = wide <= 2 * im2col and kind <= max(Type) and 1 <= rank <= MAX_RANK and swizzle <= max(Swizzle)
    return fits and im2col <= 1 and interleave <= 2 and l2 <= 3 and fill <= 1


@lru_cache(maxsize=1024)
def from_bytes(record: bytes) -> TensorMap:
    """The map behind a record.

    Raises:
        Fault: The bytes are no tensor map.
    """
    if not is_record(record):
        raise Fault("cudaErrorIllegalInstruction", "the 128 bytes at the tensor map's address are no tensor map")
    fields = _LAYOUT.unpack_from(record)
    im2col, kind, rank, interleave, swizzle, l2, fill, wide, address = fields[1:10]
    lower, upper = fields[29:32], fields[32:35]
    space = 1 if wide else max(rank - 2, 0)
    return TensorMap(
        type=kind,
        address=address,
        dims=tuple(size + 1 for size in fields[10 : 10 + rank]),
        strides=fields[15 : 14 + rank],
        box=() if im2col else fields[19 : 19 + rank],
        element_strides=fields[24 : 24 + rank],
        interleave=interleave,
        swizzle=swizzle,
        l2=l2,
        fill=fill,
        im2col=Im2col(lower[:space], upper[:space], fields[35], fields[36], wide) if im2col else None,
    )


def replace_field(record: bytes, field: str, value: int, ordinal: int = 0) -> bytes:
    """`tensormap.replace.tile.<field>`: the record with one field changed; a map that results may be invalid.

    Args:
        record: The 128 bytes.
        field: The modifier, such as `global_dim`.
        value: The new value as the instruction has it (numbers of types and the rank are not the driver's).
        ordinal: The dimension, for the fields that have one per dimension.

    Raises:
        Fault: The bytes are no tensor map, or the value or the dimension does not exist.
    """
    old = from_bytes(record)
    if field == "rank":
        return to_bytes(_with_rank(old, value + 1))
    change: dict[str, Any]
    if field in _SCALARS:
        name, values = _SCALARS[field]
        if values is not None and value not in range(len(values)):
            raise Fault("cudaErrorIllegalInstruction", f"tensormap.replace: {field} {value} does not exist")
        change = {name: value if values is None else values[value]}
    elif field == "swizzle_atomicity":
        change = {"swizzle": _ATOMS[value & 3]} if old.span == 128 else {}
    else:
        sizes = list(getattr(old, _PER_DIMENSION[field]))
        if not 0 <= ordinal < len(sizes):
            where = f"{field} {ordinal} in a map of rank {old.rank}"
            raise Fault("cudaErrorIllegalInstruction", f"tensormap.replace: no {where}")
        sizes[ordinal] = value
        change = {_PER_DIMENSION[field]: tuple(sizes)}
    return to_bytes(replace(old, **change))


_SCALARS: dict[str, tuple[str, tuple[int, ...] | None]] = {
    "global_address": ("address", None),
    "elemtype": ("type", _PTX_TYPES),
    "interleave_layout": ("interleave", (0, 1, 2)),
    "swizzle_mode": ("swizzle", (Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128)),
    "fill_mode": ("fill", (0, 1)),
}


_PER_DIMENSION = {
    "box_dim": "box",
    "global_dim": "dims",
    "global_stride": "strides",
    "element_stride": "element_strides",
}


def _with_rank(old: TensorMap, rank: int) -> TensorMap:
    if not 1 <= rank <= MAX_RANK:
        raise Fault("cudaErrorIllegalInstruction", f"tensormap.replace: rank field {rank - 1}")
    return replace(
        old,
        dims=_resized(old.dims, rank, 1),
        strides=_resized(old.strides, rank - 1, 0),
        box=_resized(old.box, rank, 1),
        element_strides=_resized(old.element_strides, rank, 1),
    )


def _resized(values: tuple[int, ...], count: int, fill: int) -> tuple[int, ...]:
    return (*values, *[fill] * count)[:count]
