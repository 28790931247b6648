"""Tensor-core instructions and the moves of matrices between shared memory and registers, bound to the machine."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen import bind_wmma
from ptxbench.emulator.codegen.lanes import core
from ptxbench.emulator.codegen.op import Op, Source, items, typed
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.errors import Fault, Unsupported
from ptxbench.emulator.machine import access
from ptxbench.emulator.machine.products import Operand, Product, Products, operand
from ptxbench.emulator.machine.spaces import Lanes, Region
from ptxbench.emulator.machine.unit import WARP, Mask, Unit
from ptxbench.emulator.ptx.ir import Immediate, Instruction, Register, Vector
from ptxbench.emulator.tensor.matrix_moves import MatrixMove, movmatrix
from ptxbench.emulator.tensor.mma import Mma
from ptxbench.emulator.tensor.warp_products import warp_product
from ptxbench.emulator.tensor.wgmma import LANES, Wgmma

_U32 = np.dtype(np.uint32)
_DEFINED = np.uint32(0x44444444)
"""Sparse metadata that has a meaning in all forms."""
_FORMS: dict[Wgmma, Wgmma] = {}
_MOST_KNOWN = 4096


def products_of(unit: Unit) -> Products:
    """The products of a warpgroup, made on first use."""
    if unit.matrices is None:
        unit.matrices = Products(unit, unit.cta.cluster.kernel.shape.numerics == "exact")
    made: Products = unit.matrices
    return made


def _whole(unit: Unit, mask: Mask | None) -> None:
    if unit.lanes != LANES or not (mask is None or mask.all()):
        raise Fault("cudaErrorIllegalInstruction", "not all four warps of the warpgroup take part")


def _wgmma(ins: Instruction, program: Program) -> Op | None:
    word = ins.modifiers[0]
    if word == "fence":
        return Op(run=_wgmma_fence, machine=True)
    if word == "commit_group":
        return Op(run=lambda unit, mask: products_of(unit).commit(), machine=True)
    if word == "wait_group":
        newest = ins.operands[0]
        assert isinstance(newest, Immediate)
        count = newest.value
        return Op(run=lambda unit, mask: products_of(unit).wait(count), machine=True)
    return _mma_async(ins)


def _wgmma_fence(unit: Unit, mask: Mask | None) -> None:
    for observer in unit.cta.cluster.observers:
        observer.fence(unit, ("wgmma",), mask)


def _mma_async(ins: Instruction) -> Op:
    if ins.guard is not None:
        raise Unsupported(ins.name, ins.line, "a guarded wgmma")
    # Equal forms are one object, so that chains of products are seen quickly.
    form = _FORMS.setdefault(Wgmma.parse(ins), Wgmma.parse(ins))
    line = ins.line
    target, first, second = ins.operands[:3]
    metadata, scale = ((ins.operands[3],), ins.operands[5]) if form.sparsity else ((), ins.operands[3])
    assert isinstance(target, Vector)
    slots = tuple(item.slot for item in target.items if isinstance(item, Register))
    if len(slots) != form.d_registers:
        raise Unsupported(ins.name, ins.line, "an accumulator with sinks")
    in_registers = isinstance(first, Vector)
    lent = tuple(each.slot for each in items(first) if isinstance(each, Register)) if in_registers else ()
    read: tuple[tuple[Source, str], ...] = typed((first,), "b32" if in_registers else "b64")
    # A dictionary by number is quicker than looking up the whole form every time.
    known: dict[int, Operand] = {}

    def behind(side: int, descriptor: Lanes) -> Operand:
        value = _uniform(descriptor) << 1 | side
        found = known.get(value)
        if found is None:
            if len(known) >= _MOST_KNOWN:
                known.clear()
            found = known[value] = operand(form, side, value >> 1)
        return found

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        _whole(unit, mask)
        *a, b, scale_d = arguments[: len(arguments) - len(metadata)]
        left = tuple(a) if in_registers else behind(0, a[0])
        right, places = behind(1, b), arguments[-1] if metadata else None
        product = Product(form, line, left, right, bool(scale_d[0]), slots, lent, places)
        for each in product.operands():
            if each.end > unit.cta.shared.limit:
                reason = f"wgmma reads up to shared+{each.end:#x}, beyond the shared memory"
                raise Fault("cudaErrorIllegalAddress", reason)
        products_of(unit).issue(product)

    sources = (*read, (second, "b64"), (scale, "pred"), *typed(metadata, "b32"))
    return Op(sources, run=run, machine=True, touches=slots)


def _uniform(values: Lanes) -> int:
    native = core()
    found = native.uniform(None, values) if native is not None else None
    if found is not None:
        return found[0]
    # Comparing the bytes of 128 words is quicker than comparing the words.
    raw, first = values.tobytes(), values[:1].tobytes()
    if raw != first * values.size:
        raise Fault("cudaErrorIllegalInstruction", "the lanes of a warpgroup give different matrix descriptors")
    return int(values[0])


def _mma(ins: Instruction, program: Program) -> Op:
    form = warp_product(ins)
    wide = "b64" if form.result.bits == 64 else "b32"
    target, a, b, c = ins.operands[:4]
    metadata = typed(ins.operands[4:5], "b32") if isinstance(form, Mma) and form.sparsity else ()
    first, second, third = accumulate(len(items(each)) for each in (a, b, c))

    def run(unit: Unit, mask: Mask | None, *registers: Lanes) -> Lanes | list[Lanes]:
        mode = unit.cta.cluster.kernel.shape.numerics
        left, right, addend = registers[:first], registers[first:second], registers[second:third]
        if metadata and isinstance(form, Mma):
            # Warps that do not take part may hold anything.
            places = registers[third] if mask is None else np.where(mask, registers[third], _DEFINED)
            made = form.multiply(left, right, addend, mode, places)
        else:
            made = form.multiply(left, right, addend, mode)
        return list(made) if len(made) > 1 else made[0]

    return Op((*typed((a, b, c), wide), *metadata), typed((target,), wide), run=run, machine=True)


def _wmma(ins: Instruction, program: Program) -> Op | None:
    return _mma(ins, program) if ins.modifiers[0] == "mma" else bind_wmma.move(ins)


def _rows(unit: Unit, mask: Mask | None, form: MatrixMove, parts: tuple[Any, ...]) -> tuple[Any, Any]:
    """Addresses of the rows of all active warps, flat, and which warps those are."""
    addresses = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    if addresses.dtype != _U32:
        addresses = addresses.astype(_U32)
    rows = form.row_addresses(addresses)
    if mask is None:
        return rows.ravel(), slice(None)
    warps = np.flatnonzero(mask.reshape(-1, WARP).any(axis=1))
    return rows[warps].ravel(), warps


def _lines(region: Region) -> NDArray[np.void]:
    return region.bytes.view(np.dtype("V16"))


def _watch(unit: Unit, region: Region, offsets: Lanes, write: bool) -> None:
    for observer in unit.cta.cluster.observers:
        observer.generic_access(unit, region, offsets, 16, write)


def _ldmatrix(ins: Instruction, program: Program) -> Op:
    form = MatrixMove.parse(ins)
    address = address_sources(ins.operands[1], "shared")
    target = ins.operands[0]

    def run(unit: Unit, mask: Mask | None, *parts: Lanes) -> Lanes | list[Lanes]:
        rows, warps = _rows(unit, mask, form, parts)
        count = unit.lanes // WARP
        data = np.zeros((count, form.address_lanes, 16), np.uint8)
        for region, offsets, places in access.shared_regions(unit, rows, 16):
            _watch(unit, region, offsets, False)
            got = _lines(region)[offsets >> np.uint32(4)].view(np.uint8).reshape(-1, 16)
            if places is not None:
                raise Fault("cudaErrorIllegalAddress", "ldmatrix: a row lies in another CTA's shared memory")
            data[warps] = got.reshape(-1, form.address_lanes, 16)
        made = form.load(data)
        return list(made) if len(made) > 1 else made[0]

    return Op(address, typed((target,), "b32"), run=run, machine=True)


def _stmatrix(ins: Instruction, program: Program) -> Op:
    form = MatrixMove.parse(ins)
    address = address_sources(ins.operands[0], "shared")
    split = len(address)

    def run(unit: Unit, mask: Mask | None, *parts: Lanes) -> None:
        rows, warps = _rows(unit, mask, form, parts[:split])
        data = form.store(parts[split:])[warps].reshape(-1, 16)
        unit.cta.cluster.changed += 1
        for region, offsets, places in access.shared_regions(unit, rows, 16):
            _watch(unit, region, offsets, True)
            chosen = data if places is None else data[places]
            _lines(region)[offsets >> np.uint32(4)] = np.ascontiguousarray(chosen).view("V16").ravel()

    return Op((*address, *typed(ins.operands[1:2], "b32")), run=run, machine=True)


def _movmatrix(ins: Instruction, program: Program) -> Op:
    return Op(typed(ins.operands[1:2], "b32"), typed(ins.operands[:1], "b32"), run=movmatrix)


BINDERS: dict[str, Callable[[Instruction, Program], Op | None]] = {
    **{"wgmma": _wgmma, "mma": _mma, "ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "movmatrix": _movmatrix},
    "wmma": _wmma,
}
