"""mov with its packing and unpacking, and the address forms that only cut bits; reads no special register."""

from __future__ import annotations

import numpy as np

from ptxbench.emulator.codegen.scalar.form import Bits, Form, ScalarOp, dtype, same, width
from ptxbench.emulator.ptx.ir import Vector


def move(form: Form) -> ScalarOp:
    """`mov`: a copy, several registers into one, or one into several; the first element is the lowest."""
    target, source = form.ins.operands[:2]
    if isinstance(source, Vector):
        return _pack(form.type, len(source.items))
    if isinstance(target, Vector):
        return _unpack(form.type, len(target.items))
    return same(lambda a: a, form.type, 1)


def _part(type_: str, count: int) -> str:
    return f"b{width(type_) // count}"


def _pack(type_: str, count: int) -> ScalarOp:
    part = _part(type_, count)
    size = width(part)
    to = np.dtype(dtype(type_))
    mask = to.type((1 << size) - 1)

    def run(*parts: Bits) -> Bits:
        if size == 64:
            return np.stack(np.broadcast_arrays(*parts), axis=-1)
        if width(type_) == 128:
            low, high = (_joined(parts[i : i + 2], np.dtype(np.uint64), np.uint64(0xFFFFFFFF), 32) for i in (0, 2))
            return np.stack(np.broadcast_arrays(low, high), axis=-1)
        return _joined(parts, to, mask, size)

    return ScalarOp(run, (part,) * count, (type_,))


def _joined(parts: tuple[Bits, ...], to: np.dtype[np.unsignedinteger], mask: np.unsignedinteger, size: int) -> Bits:
    made: Bits = parts[0].astype(to) & mask
    for i, each in enumerate(parts[1:], 1):
        made = made | (each.astype(to) & mask) << to.type(i * size)
    return made


def _unpack(type_: str, count: int) -> ScalarOp:
    part = _part(type_, count)
    size, to = width(part), dtype(part)

    def run(a: Bits) -> tuple[Bits, ...]:
        words = [a[..., 0], a[..., 1]] if width(type_) == 128 else [a]
        each = count // len(words)
        mask = a.dtype.type((1 << size) - 1)
        return tuple((word >> a.dtype.type(i * size) & mask).astype(to) for word in words for i in range(each))

    return ScalarOp(run, (type_,), (part,) * count)


def map_address(form: Form) -> ScalarOp:
    """`mapa`: the same place in another CTA of the cluster; byte 3 of its address is the rank (H200)."""
    name = np.dtype(dtype(form.type))
    kept = name.type(0xFFFFFFFFFFFFFFFF & ~0xFF000000 & (1 << width(form.type)) - 1)

    def run(a: Bits, rank: Bits) -> Bits:
        moved: Bits = (a & kept) | rank.astype(name) << name.type(24)
        return moved

    return ScalarOp(run, (form.type, "u32"), (form.type,))


def rank_of(form: Form) -> ScalarOp:
    """`getctarank`: byte 3 of a shared or generic address."""
    shift = np.dtype(dtype(form.type)).type(24)
    return ScalarOp(lambda a: (a >> shift).astype(np.uint32) & np.uint32(255), (form.type,), ("u32",))


BUILDERS = {"mov": (move,), "mapa": (map_address,), "getctarank": (rank_of,)}
