"""Moves the bytes of a box between arrays: loads, stores and reductions; when that happens is decided elsewhere.

Shared memory is a uint8 array indexed by the shared address (its low 24 bits); it starts at a multiple of 1024 of it.
Global memory is a function (address, size) -> uint8 array that is a view, and that raises for what is not allocated.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.async_.boxes import Box, units
from ptxbench.emulator.async_.reduce import combine
from ptxbench.emulator.async_.swizzle import PERIOD, placement, unit_of
from ptxbench.emulator.async_.tensormap import Type
from ptxbench.emulator.errors import Fault

Bytes = NDArray[np.uint8]
View = Callable[[int, int], Bytes]

_OOB_NAN = 0x7FF7
"""What a NaN fill writes into every 16 bits."""

# The types that a reduction works on, as an H200 took them; other types of a map have none.
_TYPES = {
    **{Type.U32: "u32", Type.S32: "s32", Type.U64: "u64", Type.S64: "s64", Type.F16: "f16", Type.BF16: "bf16"},
    **{Type.F32: "f32", Type.TF32: "f32", Type.F32_FTZ: "f32.ftz", Type.TF32_FTZ: "f32.ftz", Type.F64: "f64"},
}
_BITS = {Type.U32: "b32", Type.S32: "b32", Type.U64: "b64"}
"""The same for `and`, `or` and `xor`."""


def load_box(box: Box, memory: View, shared: Bytes, address: int) -> None:
    """Global to shared: `box` at the shared address `address`; fills what lies outside the tensor.

    Raises:
        Fault: An address that is not aligned or not allocated.
    """
    chunks, index = _shared_units(box, shared, address)
    if box.whole and box.map.type not in (Type.TF32, Type.TF32_FTZ):
        chunks[index] = _gather(box, memory).view(chunks.dtype).ravel()
        return
    image = np.zeros((box.count, box.inner), dtype=np.uint8)
    if box.map.fill:
        image.view(np.uint16)[:] = _OOB_NAN
    if box.rows.count:
        data = _gather(box, memory)
        if box.map.type in (Type.TF32, Type.TF32_FTZ):
            data = to_tf32(data.view(np.uint32)).view(np.uint8)
        image[box.places, box.left : box.left + box.width] = data
    chunks[index] = image.view(chunks.dtype).ravel()


def store_box(box: Box, memory: View, shared: Bytes, address: int) -> None:
    """Shared to global: the part of the box inside the tensor.

    Raises:
        Fault: An address that is not aligned or not allocated.
    """
    image = _image(box, shared, address)
    if box.rows.count:
        _scatter(box, memory, image[box.places, box.left : box.left + box.width])


def reduce_box(box: Box, memory: View, shared: Bytes, address: int, operation: str) -> None:
    """`cp.reduce.async.bulk.tensor`: combines the part of the box inside the tensor with what is there.

    Args:
        box: The box, made with `store=True`.
        memory: Global memory.
        shared: Shared memory of the CTA.
        address: Shared address of the image.
        operation: `add`, `min`, `max`, `inc`, `dec`, `and`, `or` or `xor`.

    Raises:
        Fault: An address that is not aligned or not allocated, or a type that has no such operation.
    """
    kind = (_BITS if operation in ("and", "or", "xor") else _TYPES).get(Type(box.map.type), "none")
    image = _image(box, shared, address)[box.places, box.left : box.left + box.width]
    if not box.rows.count:
        combine(operation, kind, image.ravel(), image.ravel())  # an illegal type is an error here too
        return
    if (np.diff(np.sort(box.rows.offsets)) < box.width).any():  # rows share bytes, and each must count
        span = memory(box.first, box.extent)
        for row, data in zip(box.rows.offsets, image, strict=True):
            line = span[row : row + box.width]
            line[:] = combine(operation, kind, line, data)
        return
    old = _gather(box, memory)
    _scatter(box, memory, combine(operation, kind, old.ravel(), image.ravel()).reshape(image.shape))


def to_tf32(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """f32 bits rounded to tf32, to nearest even; every NaN becomes 0x7fffe000 (as `cvt.rn.tf32.f32`)."""
    rounded = (bits + np.uint32(0xFFF) + (bits >> np.uint32(13) & np.uint32(1))) & np.uint32(0xFFFF_E000)
    is_nan = bits & np.uint32(0x7FFF_FFFF) > np.uint32(0x7F80_0000)
    return np.where(is_nan, np.uint32(0x7FFF_E000), rounded).astype(np.uint32)


def _shared_units(box: Box, shared: Bytes, address: int) -> tuple[NDArray[np.void], NDArray[np.int64]]:
    """The units of shared memory around the image, and the index of each unit of the image among them."""
    if address % 128:
        raise Fault("cudaErrorMisalignedAddress", f"tensor copy: shared address {address:#x} is not a multiple of 128")
    unit = unit_of(box.map.swizzle)
    start = address - address % PERIOD
    index, reach = placement(box.count, box.inner, box.pitch, box.map.swizzle, address - start)
    if start + reach > shared.size:
        where = f"{address:#x}..{start + reach:#x}"
        raise Fault("cudaErrorIllegalAddress", f"tensor copy: the shared bytes {where} are not all there")
    return shared[start : start + reach].view(f"V{unit}"), index


def _image(box: Box, shared: Bytes, address: int) -> Bytes:
    chunks, index = _shared_units(box, shared, address)
    return chunks[index].view(np.uint8).reshape(box.count, box.inner)


def _gather(box: Box, memory: View) -> Bytes:
    """Touched bytes: uint8 [touched rows, width], a copy."""
    unit, index = units(box.rows, box.width)
    return _span(box, memory, unit)[index].view(np.uint8).reshape(box.rows.count, box.width)


def _scatter(box: Box, memory: View, data: Bytes) -> None:
    unit, index = units(box.rows, box.width)
    _span(box, memory, unit)[index] = np.ascontiguousarray(data).view(f"V{unit}")


def _span(box: Box, memory: View, unit: int) -> NDArray[np.void]:
    """The units of global memory around the box; every run starts at one."""
    return memory(box.first, box.extent).view(f"V{unit}")
