"""Operands of the machine's instructions: addresses with their offsets, values that are the same for many lanes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ptxbench.emulator.codegen.op import Source
from ptxbench.emulator.machine.unit import Mask
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


def uniform_groups(lanes: Mask, *values: Any) -> Iterator[tuple[tuple[int, ...], Mask]]:
    """The different tuples of values among the lanes, each with the lanes that have it."""
    if not values:
        yield (), lanes
        return
    chosen = np.flatnonzero(lanes)
    if not chosen.size:
        return
    if chosen.size == 1:
        yield tuple(int(value[chosen[0]]) for value in values), lanes
        return
    taken = [value[chosen] for value in values]
    first = tuple(int(value[0]) for value in taken)
    if all((value == value[0]).all() for value in taken):
        yield first, lanes
        return
    rows = list(zip(*(value.tolist() for value in taken), strict=True))
    for row in dict.fromkeys(rows):
        mask = np.zeros_like(lanes)
        mask[chosen[[each == row for each in rows]]] = True
        yield tuple(row), mask


def first_lane(mask: Mask | None) -> int:
    """The lowest lane of a mask that has one."""
    return 0 if mask is None else int(np.argmax(mask))
