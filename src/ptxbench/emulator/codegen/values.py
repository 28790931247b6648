"""Operands of the machine's instructions: addresses with their offsets, values that are the same for many lanes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ptxbench.emulator.codegen.lanes import core
from ptxbench.emulator.codegen.op import Source
from ptxbench.emulator.machine.spaces import Lanes
from ptxbench.emulator.machine.unit import Mask, Unit
from ptxbench.emulator.ptx.ir import Address, Immediate, Operand, Register, Symbol


def address_sources(operand: Operand, space: str) -> tuple[tuple[Source, str], ...]:
    """Base and, where there is one, offset of an address, as wide as addresses of the space are."""
    offset = 0
    base: Operand = operand
    if isinstance(operand, Address):
        base, offset = operand.base, operand.offset
    type_ = "b32" if space == "shared" else "b64"
    if isinstance(base, Symbol):
        return ((Symbol(base.name, base.offset + offset), type_),)
    if isinstance(base, Immediate):
        return ((Immediate(base.value + offset, "int"), type_),)
    assert isinstance(base, Register)
    if not offset:
        return ((base, type_),)
    return ((base, type_), (Immediate(offset, "int"), type_))


def uniform_groups(unit: Unit, mask: Mask | None, *values: Lanes) -> list[tuple[tuple[int, ...], Mask]]:
    """The different tuples of values among the lanes, each with the lanes that have it."""
    lanes = unit.full(mask)
    native = core()
    if native is not None:
        found = native.uniform(mask, *values)
        if found is not None:
            return [(found, lanes)]
    chosen = unit.active(mask)
    if not chosen.size:
        return []
    if chosen.size == 1:
        lane = chosen[0]
        return [(tuple(int(value[lane]) for value in values), lanes)]
    taken = values if mask is None else [value[chosen] for value in values]
    first = [value[0] for value in taken]
    if all(np.count_nonzero(value != one) == 0 for value, one in zip(taken, first, strict=True)):
        return [(tuple(map(int, first)), lanes)]
    return _different(lanes, chosen, taken)


def _different(lanes: Mask, chosen: Lanes, taken: Sequence[Any]) -> list[tuple[tuple[int, ...], Mask]]:
    places: dict[tuple[int, ...], list[int]] = {}
    for lane, *row in zip(chosen.tolist(), *(value.tolist() for value in taken), strict=True):
        places.setdefault(tuple(row), []).append(lane)
    made = []
    for values, own in places.items():
        mask = np.zeros_like(lanes)
        mask[own] = True
        made.append((values, mask))
    return made


def first_lane(mask: Mask | None) -> int:
    """The lowest lane of a mask that has one."""
    return 0 if mask is None else int(np.argmax(mask))
