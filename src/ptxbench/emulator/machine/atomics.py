"""Atomic operations of lanes, one lane after the other; arithmetic of single elements, no addresses of instructions.

PTX ISA, sections atom and red. `add.f32` flushes subnormals in global memory, not in shared memory (ptxas 13.0).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.machine import access
from ptxbench.emulator.machine.spaces import DTYPES, Lanes
from ptxbench.emulator.machine.unit import Mask, Unit

Array = NDArray[Any]
Update = Callable[[Array, Array, Array | None], Array]
_FLOATS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
_NAN = {"f16": 0x7FFF, "bf16": 0x7FFF, "f32": 0x7FFFFFFF, "f64": 0x7FFFFFFFFFFFFFFF}
_SIMPLE: dict[str, Any] = {
    **{"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "add": np.add},
    **{"min": np.minimum, "max": np.maximum},
}


def update_of(operation: str, type_: str, *, flush: bool) -> Update:
    """The new value from the old one, the operand and (for `cas`) the replacement; arrays of bits.

    Args:
        operation: `add`, `min`, `max`, `and`, `or`, `xor`, `inc`, `dec`, `exch` or `cas`.
        type_: Of an element, such as `u32`, `bf16`.
        flush: Whether subnormal f32 count as zeros.
    """
    if operation == "exch":
        return lambda old, new, _: new
    if operation == "cas":
        return _compare_and_swap
    if operation == "inc":
        return lambda old, bound, _: np.where(old >= bound, old.dtype.type(0), old + old.dtype.type(1))
    if operation == "dec":
        return lambda old, bound, _: np.where((old == 0) | (old > bound), bound, old - old.dtype.type(1))
    function = _SIMPLE[operation]
    if type_ in _FLOATS:
        return _floating(operation, type_, flush)
    if type_.startswith("s") and operation in ("min", "max"):
        return lambda old, new, _: function(_signed(old), _signed(new)).view(old.dtype)
    return lambda old, new, _: function(old, new)


def _compare_and_swap(old: Array, compare: Array, new: Array | None) -> Array:
    assert new is not None
    return np.where(old == compare, new, old)


def _signed(bits: Array) -> Array:
    return bits.view(f"i{bits.dtype.itemsize}")


def _floating(operation: str, type_: str, flush: bool) -> Update:
    dtype, nan = np.dtype(_FLOATS[type_]), _NAN[type_]

    def run(old: Array, new: Array, _: Array | None) -> Array:
        a, b = np.ascontiguousarray(old).view(dtype), np.ascontiguousarray(new).view(dtype)
        if flush and type_ == "f32":
            a, b = _flushed(a), _flushed(b)
        if operation == "add":
            made = a + b
            made = _flushed(made) if flush and type_ == "f32" else made
        else:
            wide_a, wide_b = a.astype(np.float32), b.astype(np.float32)
            below = (wide_a < wide_b) | ((wide_a == wide_b) & np.signbit(wide_a))
            first = ~np.isnan(wide_a) & (np.isnan(wide_b) | (below if operation == "min" else ~below))
            made = np.where(first, a, b)
        bits = np.ascontiguousarray(made).view(old.dtype).copy()
        if type_ == "f64":
            # A NaN goes through: as it is in global memory; quiet, as of add.f64, in shared memory.
            return np.where(np.isnan(b), new, np.where(np.isnan(a), old, bits)) if flush else bits
        bits[np.isnan(made.astype(np.float64))] = nan
        return bits

    return run


def _flushed(values: Array) -> Array:
    made: Array = np.where(np.abs(values) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), values), values)
    return made


def atomic(
    unit: Unit, space: str, addresses: Lanes, mask: Mask | None, update: Update, values: list[list[Array]]
) -> list[Array]:
    """Update memory lane by lane; the old values, zeros for lanes outside the mask.

    Args:
        unit: The lanes.
        space: As of `access.load`.
        addresses: Over lanes.
        mask: Lanes that take part.
        update: From `update_of`.
        values: For each element of the vector its operand and perhaps its replacement, over lanes.

    Raises:
        Fault: An address is misaligned or nothing is there.
    """
    lanes = np.flatnonzero(unit.full(mask))
    count, width = len(values), values[0][0].dtype.itemsize
    made = [np.zeros(unit.lanes, DTYPES[width]) for _ in range(count)]
    shape = (width, count)
    # Lanes with different addresses cannot see each other: they go in one step, the rest in further ones.
    while lanes.size:
        _, first = np.unique(addresses[lanes], return_index=True)
        turn = lanes[np.sort(first)]
        chosen = np.zeros(unit.lanes, np.bool_)
        chosen[turn] = True
        old = access.load(unit, space, addresses, chosen, shape)
        new = []
        for place, parts in enumerate(values):
            rest = parts[1] if len(parts) > 1 else None
            new.append(update(old[place], parts[0], rest))
            made[place] = np.where(chosen, old[place], made[place])
        before = unit.cta.cluster.changed
        access.store(unit, space, addresses, chosen, shape, new)
        if all((a[turn] == b[turn]).all() for a, b in zip(old, new, strict=True)):
            unit.cta.cluster.changed = before
        lanes = np.setdiff1d(lanes, turn, assume_unique=True)
    return made
