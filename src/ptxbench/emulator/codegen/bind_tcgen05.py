"""tcgen05 bound to the machine: loads and stores of warps, their waits, fences; products and copies lie beside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxbench.emulator.codegen import bind_tcgen05_copy, bind_tcgen05_mma
from ptxbench.emulator.codegen.op import Op, Source, items, typed
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.codegen.values import address_sources
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.spaces import Lanes
from ptxbench.emulator.machine.tensor_memory import ILLEGAL, Region, TensorMemory, rule
from ptxbench.emulator.machine.tensor_work import WarpMove, WarpMoves, lanes_of
from ptxbench.emulator.machine.unit import WARP, Mask, Unit
from ptxbench.emulator.ptx.ir import Instruction, Register
from ptxbench.emulator.tensor.tmem import COLUMNS, QUARTER, TensorMove

_LOW = np.uint32(0xFFFF)
_HALF = np.uint32(16)


def bind(ins: Instruction, program: Program) -> Op | None:
    """Any tcgen05 that no lane waits at; None for what this room does not have."""
    word = ins.modifiers[0]
    if word in ("ld", "st"):
        return _move(ins)
    maker = _SMALL.get(word) or _THREADS.get(word)
    return maker(ins) if maker else None


def group_of(ins: Instruction) -> int:
    """The number of `.cta_group`."""
    return 2 if "cta_group::2" in ins.modifiers else 1


def total(parts: tuple[Lanes, ...]) -> Lanes:
    """Base and offset of an address."""
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _relinquish(ins: Instruction) -> Op:
    line, group = ins.line, group_of(ins)

    def run(unit: Unit, mask: Mask | None) -> None:
        memory = TensorMemory.of(unit.cta)
        memory.use_group(group)
        memory.closed = line

    return Op(run=run, machine=True)


def _wait(ins: Instruction) -> Op:
    loads = ins.modifiers[0] == "wait::ld"
    return Op(run=lambda unit, mask: WarpMoves.of(unit).wait(unit.full(mask), loads=loads), machine=True)


def _fence(ins: Instruction) -> Op:
    words = ("tcgen05", ins.modifiers[0].removeprefix("fence::"))

    def run(unit: Unit, mask: Mask | None) -> None:
        for observer in unit.cta.cluster.observers:
            observer.fence(unit, words, mask)

    return Op(run=run, machine=True)


_SMALL: dict[str, Callable[[Instruction], Op]] = {
    **{"relinquish_alloc_permit": _relinquish, "wait::ld": _wait, "wait::st": _wait},
    **dict.fromkeys(("fence::before_thread_sync", "fence::after_thread_sync"), _fence),
}


_THREADS: dict[str, Callable[[Instruction], Op]] = {
    **{"mma": bind_tcgen05_mma.product, "commit": bind_tcgen05_mma.commit},
    **{"cp": bind_tcgen05_copy.copy, "shift": bind_tcgen05_copy.shift},
}


def _move(ins: Instruction) -> Op:
    form, load, line = TensorMove.parse(ins), ins.modifiers[0] == "ld", ins.line
    address = address_sources(ins.operands[1 if load else 0], "shared")
    registers = items(ins.operands[0 if load else -1])
    slots = tuple(each.slot if isinstance(each, Register) else -1 for each in registers) if load else ()
    data: tuple[tuple[Source, str], ...] = () if load else typed(registers, "b32")

    def run(unit: Unit, mask: Mask | None, *arguments: Lanes) -> None:
        where = total(arguments[: len(address)])
        for warp in range(unit.lanes // WARP):
            lanes = slice(warp * WARP, (warp + 1) * WARP)
            if mask is not None and not mask[lanes].any():
                continue
            place, region = _placed(unit, mask, warp, (form, ins.modifiers[0]), where[lanes])
            if load:
                work = _load(unit, lanes, (form, slots), place)
                work.sources = (region,)
            else:
                values = np.stack([each[lanes] for each in arguments[len(address) :]])
                work = _store(unit, (form, values), place)
                work.targets = (region,)
            work.line, work.lanes = line, lanes_of(unit, warp)
            WarpMoves.of(unit).add(work)

    return Op((*address, *data), run=run, machine=True, touches=tuple(slot for slot in slots if slot >= 0))


def _placed(unit: Unit, mask: Mask | None, warp: int, what: tuple[TensorMove, str], where: Lanes) -> tuple[int, Region]:
    """The first cell, as `lane * 512 + column`, and the region that a warp's access reaches.

    Raises:
        Fault: The warp is not whole, its lanes differ, or it may not reach these cells.
    """
    form, name = what
    live = unit.live[warp * WARP : (warp + 1) * WARP]
    if not live.all() or (mask is not None and not mask[warp * WARP : (warp + 1) * WARP].all()):
        raise Fault(ILLEGAL, f"tcgen05.{name} is for whole warps; some lanes are elsewhere or have exited")
    address = int(where[0])
    if (where != where[0]).any():
        raise Fault(ILLEGAL, f"tcgen05.{name}: the lanes of a warp give different addresses")
    lane, column = TensorMemory.of(unit.cta).check(address, form.columns, f"tcgen05.{name} at {address:#x}")
    if address >> 16 > 127:
        message = f"tcgen05.{name} at {address:#x} names lane {address >> 16}, taken modulo 128"
        rule(unit, ("tensor-lane-wrap", "warning"), message, unit.line)
    lane = _own_quarter(unit, warp, (form, f"tcgen05.{name}.{form.shape} at {address:#x}"), lane)
    groups = slice(lane // 16, lane // 16 + form.lanes // 16)
    return lane * COLUMNS + column, Region(unit.cta, groups, slice(column, column + form.columns))


def _own_quarter(unit: Unit, warp: int, what: tuple[TensorMove, str], lane: int) -> int:
    """The lane at which a warp's access begins; without a quarter in the address it is in the warp's own.

    Kernels of libraries leave the quarter out (DeepGEMM does), against PTX ISA 9.0, 9.7.16.8.

    Raises:
        Fault: The address names the quarter of another warp.
    """
    form, name = what
    number = unit.first // WARP + warp
    first = number % 4 * QUARTER
    if lane - first in form.address_lanes():
        return lane
    reach = f"warp {number} reaches lanes {first} to {first + QUARTER - 1} (its number modulo 4)"
    if lane not in form.address_lanes():
        allowed = " or ".join(str(first + each) for each in form.address_lanes())
        raise Fault(ILLEGAL, f"{name} names lane {lane}; {reach}, so the lane must be {allowed}")
    message = f"{name} names lane {lane}, taken as {first + lane}: {reach}"
    rule(unit, ("tensor-lane-quarter", "warning"), message, unit.line)
    return first + lane


def _load(unit: Unit, lanes: slice, what: tuple[TensorMove, tuple[int, ...]], place: int) -> WarpMove:
    form, slots = what

    def move() -> None:
        got = TensorMemory.of(unit.cta).cells.ravel()[form.places + place]
        rows = got[0] & _LOW | got[1] << _HALF if form.packed else got[0]
        for slot, row in zip(slots, rows, strict=True):
            if slot < 0:
                continue
            if unit.lanes == WARP:
                unit.registers[slot] = row
                continue
            new = unit.registers[slot].copy()
            new[lanes] = row
            unit.registers[slot] = new

    return WarpMove(unit, 0, move, kind="tcgen05.ld", slots=slots)


def _store(unit: Unit, what: tuple[TensorMove, Lanes], place: int) -> WarpMove:
    form, values = what

    def move() -> None:
        cells = TensorMemory.of(unit.cta).cells.reshape(-1)
        if not form.packed:
            cells[form.places[0] + place] = values
            return
        cells[form.places[0] + place] = values & _LOW
        cells[form.places[1] + place] = values >> _HALF

    return WarpMove(unit, 0, move, kind="tcgen05.st")


BINDERS: dict[str, Callable[[Instruction, Program], Op | None]] = {"tcgen05": bind}
