"""Tensor maps that a kernel changes: `tensormap.replace` and `tensormap.cp_fenceproxy`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxbench.emulator.async_.tensormap import BYTES, replace_field
from ptxbench.emulator.codegen.op import Op, Source, typed
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine import access
from ptxbench.emulator.machine.spaces import Region
from ptxbench.emulator.machine.unit import Lanes, Mask, Unit
from ptxbench.emulator.ptx.ir import Immediate, Instruction


def _tensormap(ins: Instruction, program: Program) -> Op | None:
    return {"replace": _replace, "cp_fenceproxy": _publish}[ins.modifiers[0]](ins)


def _record(unit: Unit, space: str, address: int) -> tuple[Region, int]:
    """Where a map lies: the region and the offset.

    Raises:
        Fault: It is not all there.
    """
    place = np.asarray([address], np.uint32 if space == "shared" else np.uint64)
    [(region, offsets, _)] = access.locate(unit, space, place, (8, 1))
    offset = int(offsets[0])
    if offset + BYTES > region.limit:
        raise Fault("cudaErrorIllegalAddress", f"a tensor map of {BYTES} bytes does not fit at {address:#x}")
    return region, offset


def _replace(ins: Instruction) -> Op:
    """`tensormap.replace.tile.<field>`."""
    field = ins.modifiers[2]
    space = next((word.split("::")[0] for word in ins.modifiers if word in ("global", "shared::cta")), "generic")
    address = address_sources(ins.operands[0], space)
    rest = ins.operands[1:]
    ordinal = 0
    if len(rest) > 1:
        assert isinstance(rest[0], Immediate)
        ordinal = rest[0].value
    value: tuple[tuple[Source, str], ...] = typed(rest[-1:], ins.modifiers[-1])
    split = len(address)

    def run(unit: Unit, mask: Mask | None, *given: Lanes) -> None:
        for lane in unit.active(mask).tolist():
            where = sum(int(part[lane]) for part in given[:split])
            region, offset = _record(unit, space, where)
            old = region.bytes[offset : offset + BYTES].tobytes()
            new = replace_field(old, field, int(given[split][lane]), ordinal)
            region.bytes[offset : offset + BYTES] = np.frombuffer(new, np.uint8)

    return Op((*address, *value), run=run, machine=True)


def _publish(ins: Instruction) -> Op:
    """`tensormap.cp_fenceproxy`: a map from shared to global memory, released to the tensor proxy."""
    target, source = address_sources(ins.operands[0], "global"), address_sources(ins.operands[1], "shared")
    split = len(target)

    def run(unit: Unit, mask: Mask | None, *given: Lanes) -> None:
        for lane in unit.active(mask)[::32].tolist():
            there, to = _record(unit, "global", sum(int(part[lane]) for part in given[:split]))
            here, of = _record(unit, "shared", sum(int(part[lane]) for part in given[split:]))
            there.bytes[to : to + BYTES] = here.bytes[of : of + BYTES]

    return Op((*target, *source), run=run, machine=True)


BINDERS: dict[str, Callable[[Instruction, Program], Op | None]] = {"tensormap": _tensormap}
