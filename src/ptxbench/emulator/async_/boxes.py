"""Boxes of tensor copies: which global bytes a copy names for its coordinates; the copying itself is in copies.py.

A box is an image of `count` dense rows. In every mode each row is one run of bytes in global memory, and all rows that
touch the tensor are clipped alike, so a box is a list of row addresses plus one clip. Rules: PTX ISA, section Tensors,
with the answers of an H200 about alignment, negative coordinates and what is outside the tensor. An interleaved map has
slices of channels, 16 or 32 bytes, as innermost elements: coordinate 0 counts pixels, and the last dimension but one
counts slices, of which a box holds one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.async_.tensormap import FLOATS, TensorMap, Type
from ptxbench.emulator.errors import Fault, Unsupported

Coordinates = tuple[int, ...]

_ADDRESS = (1 << 64) - 1
_BLOCKED, _BLOCK = 128, 32
"""Pixels of a column of `im2col::w::128`, and of each of its blocks."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Distances of rows from the lowest of them, in bytes: int64 [rows]; kept and shared between boxes of one shape."""

    offsets: NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many there are."""
        return self.offsets.size

    @cached_property
    def highest(self) -> int:
        """The greatest distance; 0 when there is none."""
        return int(self.offsets.max()) if self.offsets.size else 0


@lru_cache(maxsize=256)
def units(rows: Rows, width: int) -> tuple[int, NDArray[np.int64]]:
    """Bytes of a unit, and the index of each unit of runs of `width` bytes: int64 [rows, units of a run]."""
    unit = 1 if width % 16 or (rows.offsets % 16).any() else 16
    return unit, (rows.offsets // unit)[:, None] + np.arange(width // unit)


@dataclass(frozen=True, eq=False)
class Box:
    """One copy's box.

    Attributes:
        map: The tensor map.
        count: Rows of the image in shared memory.
        inner: Bytes of a row in shared memory.
        first: Lowest global address that is touched; 0 when nothing is.
        rows: Address of each touched row minus `first`.
        places: Index in the image of each touched row: int64 [touched rows]. All other rows are filled.
        left: Bytes before the touched run of a row.
        width: Bytes of the touched run of a row.
    """

    map: TensorMap
    count: int
    inner: int
    first: int
    rows: Rows
    places: NDArray[np.int64]
    left: int
    width: int

    @property
    def bytes(self) -> int:
        """What a load signals to its mbarrier: the full box, whatever is clipped."""
        return self.count * self.inner

    @property
    def pitch(self) -> int:
        """Bytes from row to row in shared memory."""
        return self.inner if self.map.interleave else self.map.span or self.inner

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory from the first row to the end of the last."""
        return (self.count - 1) * self.pitch + self.inner

    @property
    def extent(self) -> int:
        """Bytes from `first` to the end of the highest touched run."""
        return self.rows.highest + self.width

    @property
    def whole(self) -> bool:
        """Whether every byte of the box lies inside the tensor."""
        return self.width == self.inner and self.rows.count == self.count


def tile_box(tensor_map: TensorMap, coordinates: Coordinates, *, store: bool = False) -> Box:
    """The box of a `.tile` copy.

    Args:
        tensor_map: A tiled map.
        coordinates: Innermost first, as signed numbers; as many as the map's rank.
        store: Whether the copy writes the tensor; then no coordinate may be negative.

    Raises:
        Fault: Coordinates that stop the kernel, or a map of the other mode.
        Unsupported: An interleaved map with element strides, or elements of 4 or 6 bits.
    """
    _check(tensor_map, coordinates, im2col=False, store=store)
    shape = _shape(tensor_map)
    first, place, lengths = tensor_map.address, 0, []
    for start, axis in zip(coordinates, shape.axes, strict=True):
        low, high = 0, axis.count
        if start < 0 or start + (axis.count - 1) * axis.step >= axis.dim:
            low, high = _touched(start, axis)
            if low >= high:
                return _outside(tensor_map, shape.count, shape.inner)
        lengths.append(high - low)
        first += (start + low * axis.step) * axis.stride
        place += low * axis.places
    outer = tuple(lengths[1:])
    return Box(
        map=tensor_map,
        count=shape.count,
        inner=shape.inner,
        first=first & _ADDRESS,
        rows=_grid(outer, shape.strides, 0),
        places=_grid(outer, shape.places, place).offsets,
        left=max(0, -coordinates[0]) * shape.axes[0].stride,
        width=lengths[0] * shape.axes[0].stride,
    )


def gather_box(tensor_map: TensorMap, column: int, rows: Coordinates, *, store: bool = False) -> Box:
    """The box of a `.tile::gather4` load or a `.tile::scatter4` store (sm_100a): four rows of a matrix.

    Raises:
        Fault: As `tile_box`, or a map whose box is not one row.
        Unsupported: As `tile_box`.
    """
    lines = [tile_box(tensor_map, (column, row), store=store) for row in rows]
    if any(line.count != 1 for line in lines):
        raise _illegal("a gather or scatter of rows needs a tensor map of rank 2 with a box of one row")
    touched = [(index, line) for index, line in enumerate(lines) if line.rows.count]
    if not touched:
        return _outside(tensor_map, len(lines), lines[0].inner)
    first = min(line.first for _, line in touched)
    return Box(
        map=tensor_map,
        count=len(lines),
        inner=lines[0].inner,
        first=first,
        rows=Rows(np.array([line.first - first for _, line in touched], dtype=np.int64)),
        places=np.array([index for index, _ in touched], dtype=np.int64),
        left=touched[0][1].left,
        width=touched[0][1].width,
    )


def im2col_box(
    tensor_map: TensorMap, coordinates: Coordinates, offsets: Coordinates = (), *, store: bool = False
) -> Box:
    """The box of an `.im2col` load, or of an `.im2col_no_offs` store (without `offsets`).

    The column's pixels go through the bounding box, W fastest, from the pixel that the coordinates name; each is then
    moved by `offsets` (the position within the filter).

    Args:
        tensor_map: An im2col map.
        coordinates: Channel, W, H, D (as far as there), N.
        offsets: Of W, H, D, unsigned.
        store: Whether the copy writes the tensor; then no coordinate may be negative.

    Raises:
        Fault: As `tile_box`, or a pixel outside of the bounding box (an illegal instruction on an H200).
        Unsupported: As `tile_box`.
    """
    _check(tensor_map, coordinates, im2col=True, store=store)
    im2col = tensor_map.im2col
    assert im2col is not None
    if im2col.wide:
        raise _illegal("an .im2col copy with a map of columns along W alone")
    space = tensor_map.rank - 2
    upper = _upper(tensor_map)
    for axis, (at, low, high) in enumerate(zip(coordinates[1:], im2col.lower, upper, strict=False)):
        if not low <= at <= high:
            raise _illegal(f"pixel {at} in dimension {axis + 1} is outside of the bounding box {low}..{high}")
    walk = _walk(tensor_map, coordinates, (im2col.lower, tuple(upper)))
    pixels = np.array(list(islice(walk, im2col.pixels)), dtype=np.int64)
    pixels[:, :space] += np.array(offsets or (0,) * space, dtype=np.int64)
    return _pixels(tensor_map, coordinates[0], pixels)


def wide_box(tensor_map: TensorMap, coordinates: Coordinates, halo: int, offset: int, *, blocks: bool = False) -> Box:
    """The box of an `.im2col::w` load, or of an `.im2col::w::128` one (sm_100a): pixels along W, then along N.

    Behind the column's pixels come `halo` more of the same walk. With `blocks` a column has 128 pixels in four blocks,
    and behind it come the `halo` pixels that follow each block: first of all blocks the first.

    Args:
        tensor_map: A map of cuTensorMapEncodeIm2colWide.
        coordinates: Channel, W, H, D (as far as there), N; only W may lie before the bounding box.
        halo: wHalo.
        offset: wOffset, added to W of every pixel.
        blocks: Whether it is `.im2col::w::128`.

    Raises:
        Fault: As `im2col_box`, or numbers out of range.
    """
    name = "im2col::w::128" if blocks else "im2col::w"
    _check(tensor_map, coordinates, im2col=True, store=False)
    im2col = tensor_map.im2col
    assert im2col is not None
    if im2col.wide != (2 if blocks else 1):
        raise _illegal(f"an .{name} copy with a map of another mode")
    most = 32 if blocks else 512
    if halo >= most or offset >= 32:
        raise _illegal(f".{name} with wHalo {halo} and wOffset {offset}; they are below {most} and 32")
    high = _upper(tensor_map)[0]
    if coordinates[1] > high:
        raise _illegal(f"pixel {coordinates[1]} along W is behind the bounding box, which ends at {high}")
    still = coordinates[2:-1]
    count = _BLOCKED if blocks else im2col.pixels
    walk = _walk(tensor_map, coordinates, ((*im2col.lower, *still), (high, *still)))
    pixels = np.array(list(islice(walk, count + halo)), dtype=np.int64)
    if blocks:
        behind = [_BLOCK * (block + 1) + place for place in range(halo) for block in range(_BLOCKED // _BLOCK)]
        pixels = pixels[[*range(_BLOCKED), *behind]]
    pixels[:, 0] += offset
    return _pixels(tensor_map, coordinates[0], pixels)


def _pixels(tensor_map: TensorMap, channel: int, pixels: NDArray[np.int64]) -> Box:
    """The box of these pixels (W, H, D, N), from a channel on; those outside of the tensor are filled."""
    assert tensor_map.im2col is not None
    channels, size = tensor_map.im2col.channels, tensor_map.element_bytes
    inner = channels * size
    low, high = _touched(channel, _Axis(tensor_map.dims[0], channels, 1, size, 0))
    inside = np.logical_and(pixels >= 0, pixels < np.array(tensor_map.dims[1:])).all(axis=1)
    if low >= high or not inside.any():
        return _outside(tensor_map, len(pixels), inner)
    starts = pixels[inside] @ np.array(tensor_map.strides, dtype=np.int64)
    lowest = int(starts.min())
    return Box(
        map=tensor_map,
        count=len(pixels),
        inner=inner,
        first=tensor_map.address + lowest + (channel + low) * size & _ADDRESS,
        rows=Rows(starts - lowest),
        places=np.flatnonzero(inside),
        left=low * size,
        width=(high - low) * size,
    )


def _walk(
    tensor_map: TensorMap, coordinates: Coordinates, box: tuple[Coordinates, Coordinates]
) -> Iterator[Coordinates]:
    """Pixels (W, H, D, N) of the bounding box (its first and last pixel) from the given one on, without end."""
    space = tensor_map.rank - 2
    at = list(coordinates[1:])
    lower, upper = box
    steps = tensor_map.element_strides[1 : 1 + space]
    while True:
        yield tuple(at)
        for axis in range(space):
            at[axis] += steps[axis]
            if at[axis] <= upper[axis]:
                break
            at[axis] = lower[axis]
        else:
            at[space] += 1


def _upper(tensor_map: TensorMap) -> list[int]:
    """The last pixel of the bounding box, per spatial dimension; of a wide map along W."""
    assert tensor_map.im2col is not None
    corners = tensor_map.im2col.upper
    return [size - 1 + corner for size, corner in zip(tensor_map.dims[1:], corners, strict=False)]


def _check(tensor_map: TensorMap, coordinates: Coordinates, *, im2col: bool, store: bool) -> None:
    if tensor_map.interleave and (im2col or set(tensor_map.element_strides) != {1}):
        raise Unsupported("tensor copy", 0, "interleaved im2col maps and interleaved maps with element strides")
    if (tensor_map.im2col is not None) != im2col:
        raise _illegal(f"an {'im2col' if im2col else 'tile'} copy with a tensor map of the other mode")
    if tensor_map.fill and tensor_map.type not in FLOATS:
        raise _illegal(f"a NaN fill with the type {Type(tensor_map.type).name}")
    if len(coordinates) != tensor_map.rank:
        raise _illegal(f"{len(coordinates)} coordinates with a tensor map of rank {tensor_map.rank}")
    if coordinates[0] * tensor_map.element_bytes % 16 and not tensor_map.interleave:
        raise _illegal(f"the innermost coordinate {coordinates[0]} is not at a multiple of 16 bytes")
    if store and min(coordinates) < 0:
        raise _illegal(f"a store at the negative coordinates {coordinates}")
    if store and tensor_map.im2col is not None and min(tensor_map.im2col.lower) < 0:
        raise _illegal(f"an im2col store with a map whose lower corner is {tensor_map.im2col.lower}")


@dataclass(frozen=True)
class _Axis:
    """One dimension of a tiled map: elements of the tensor, elements of the box, step, bytes, rows of the image."""

    dim: int
    count: int
    step: int
    stride: int
    places: int


@dataclass(frozen=True)
class _Shape:
    """What all boxes of a tiled map have in common."""

    axes: tuple[_Axis, ...]
    count: int
    inner: int
    strides: tuple[int, ...]
    """Bytes from row to row of the box per outer dimension."""
    places: tuple[int, ...]
    """Rows of the image per outer dimension."""


@lru_cache(maxsize=256)
def _shape(tensor_map: TensorMap) -> _Shape:
    size = 16 * tensor_map.interleave or tensor_map.element_bytes
    axes = [_Axis(tensor_map.dims[0], tensor_map.box[0], 1, size, 0)]
    count = 1
    for axis, stride in enumerate(tensor_map.strides, 1):
        step, length = tensor_map.element_strides[axis], tensor_map.box[axis]
        if tensor_map.interleave and axis == tensor_map.rank - 2:
            length = 1  # one slice of channels, however many the box names
        axes.append(_Axis(tensor_map.dims[axis], -(-length // step), step, stride, count))
        count *= axes[-1].count
    strides = tuple(axis.stride * axis.step for axis in axes[1:])
    return _Shape(tuple(axes), count, axes[0].count * size, strides, tuple(axis.places for axis in axes[1:]))


def _touched(start: int, axis: _Axis) -> tuple[int, int]:
    """Range of the indices 0..count-1 whose coordinate start + index * step lies in 0..dim-1."""
    return max(0, -(start // axis.step)), min(axis.count, -((start - axis.dim) // axis.step))


@lru_cache(maxsize=256)
def _grid(counts: tuple[int, ...], strides: tuple[int, ...], base: int) -> Rows:
    """Offsets of a strided grid, first dimension fastest."""
    result = np.array([base], dtype=np.int64)
    for count, stride in zip(counts, strides, strict=True):
        result = (result + np.arange(count, dtype=np.int64)[:, None] * stride).ravel()
    result.flags.writeable = False
    return Rows(result)


def _outside(tensor_map: TensorMap, count: int, inner: int) -> Box:
    nothing = Rows(np.empty(0, dtype=np.int64))
    return Box(tensor_map, count, inner, first=0, rows=nothing, places=nothing.offsets, left=0, width=0)


def _illegal(reason: str) -> Fault:
    return Fault("cudaErrorIllegalInstruction", f"tensor copy: {reason}")
