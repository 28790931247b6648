"""`wmma.load` and `wmma.store` bound to memory; the products and the layout of fragments are elsewhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.bind_memory import space_of
from ptxbench.emulator.codegen.op import Op, items, typed
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine import access
from ptxbench.emulator.machine.unit import WARP, Lanes, Mask, Unit
from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor.wmma import WmmaMove


def move(ins: Instruction) -> Op:
    """A load or store of a fragment."""
    form, space = WmmaMove.parse(ins), space_of(ins)
    stores = ins.modifiers[0] == "store"
    vector, place = (ins.operands[1], ins.operands[0]) if stores else (ins.operands[0], ins.operands[1])
    address = address_sources(place, space)
    stride = typed(ins.operands[2:3], "b32")
    type_ = "b64" if form.format.bits == 64 else "b32"
    registers = typed((vector,), type_) if stores else ()
    split = len(address)

    def run(unit: Unit, mask: Mask | None, *given: Lanes) -> Lanes | list[Lanes] | None:
        base = given[0] if split == 1 else given[0] + given[1]
        warps = _whole_warps(unit, mask)
        first = warps * WARP
        pitch = int(given[split][first[0]]) if stride else None
        addresses = base[first][:, None] + form.offsets(pitch).astype(base.dtype)[None, :]
        width = form.element_bytes
        if stores:
            elements = form.store(given[split + len(stride) :])[warps]
            access.write(unit, space, addresses.ravel(), width, elements.ravel())
            return None
        elements = access.read(unit, space, addresses.ravel(), width).reshape(addresses.shape)
        whole = np.zeros((unit.lanes // WARP, elements.shape[1]), elements.dtype)
        whole[warps] = elements
        made = form.load(whole)
        return list(made) if len(made) > 1 else made[0]

    results = () if stores else tuple((item, type_) for item in items(vector))
    return Op((*address, *stride, *registers), results, run=run, machine=True)


def _whole_warps(unit: Unit, mask: Mask | None) -> NDArray[np.intp]:
    """The numbers of the warps that take part, all of whose lanes must."""
    lanes = unit.full(mask).reshape(-1, WARP)
    if (lanes.any(axis=1) != lanes.all(axis=1)).any():
        raise Fault("cudaErrorIllegalInstruction", "not all lanes of a warp take part in a wmma instruction")
    return np.flatnonzero(lanes.any(axis=1))
