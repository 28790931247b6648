"""What code generation knows of one instruction: its operands with types, and what to call; no text, no lanes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Immediate, Instruction, Operand, Pair, Vector

_BITS = re.compile(r"[a-z]+?(\d+)(x[248])?\Z")
BOOL = np.dtype(np.bool_)
U16 = np.dtype(np.uint16)
U32 = np.dtype(np.uint32)
U64 = np.dtype(np.uint64)
U128: np.dtype[Any] = np.dtype((np.uint64, (2,)))
_SIGNED: dict[np.dtype[Any], np.dtype[Any]] = {
    U16: np.dtype(np.int16),
    U32: np.dtype(np.int32),
    U64: np.dtype(np.int64),
}
_OF_BITS: dict[int, np.dtype[Any]] = {4: U16, 8: U16, 16: U16, 32: U32, 64: U64, 128: U128}


@lru_cache(maxsize=256)
def bits_of(type_: str) -> int:
    """Width of a PTX type; a predicate has 1, packed types the width of the whole."""
    if type_ == "pred":
        return 1
    if type_ in ("e4m3", "e5m2"):
        return 8
    if type_ in ("e4m3x2", "e5m2x2", "f16", "bf16"):
        return 16
    if type_ in ("tf32", "e4m3x4", "e5m2x4"):
        return 32
    match = _BITS.match(type_)
    assert match, type_
    return int(match[1]) * (int(match[2][1:]) if match[2] else 1)


@lru_cache(maxsize=256)
def dtype_of(type_: str) -> np.dtype[Any]:
    """The dtype in which a register of a PTX type keeps its bits."""
    return BOOL if type_ == "pred" else _OF_BITS[bits_of(type_)]


def signed(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The signed integer of the same width."""
    return _SIGNED[dtype]


@dataclass(frozen=True)
class Constant:
    """A source that each unit provides: a specification for `machine.cta.Constants`."""

    spec: tuple[Any, ...]


Source = Operand | Constant


@dataclass(frozen=True)
class Op:
    """How one instruction is executed.

    Attributes:
        sources: Operands whose values are the arguments, with the PTX type as which they are read.
        results: Operands that take the results, with the PTX type that is made.
        run: Called with the arguments, and before them with (unit, mask) if `machine`; the result is an array, a
            sequence with one array per result, or without results anything.
        expression: Python text with `{0}`, `{1}`, ... for the arguments, in place of `run`.
        machine: Whether `run` concerns more than its arguments; it then gets the mask and is never left out.
        touches: Register slots that it reads or writes in the unit itself.
    """

    sources: tuple[tuple[Source, str], ...] = ()
    results: tuple[tuple[Operand, str], ...] = ()
    run: Callable[..., Any] | None = None
    expression: str = ""
    machine: bool = False
    touches: tuple[int, ...] = ()
    refused: bool = False
    """Whether the emulator lacks the instruction."""
    warp: bool = False
    """Whether the executing lanes, as an array, come before the arguments."""


def items(operand: Operand) -> tuple[Operand, ...]:
    """The elements of a vector or a pair, or the operand alone."""
    if isinstance(operand, Vector):
        return operand.items
    if isinstance(operand, Pair):
        return (operand.first, operand.second)
    return (operand,)


def typed(operands: tuple[Operand, ...], type_: str) -> tuple[tuple[Operand, str], ...]:
    """All elements of the operands with one type."""
    return tuple((item, type_) for operand in operands for item in items(operand))


def immediate_bits(immediate: Immediate, type_: str) -> int:
    """The bits of a literal read as a type (PTX ISA, section Constants)."""
    width = bits_of(type_)
    floating = type_ in ("f16", "f32", "f64", "bf16", "tf32")
    if immediate.kind == "int":
        if floating and immediate.value:
            return _pack(float(immediate.value), type_)
        return immediate.value & ((1 << width) - 1)
    if immediate.kind == "f32" and width == 32:
        return immediate.value
    if immediate.kind == "f64" and width == 64:
        return immediate.value
    size, code = (4, "<f") if immediate.kind == "f32" else (8, "<d")
    value = struct.unpack(code, immediate.value.to_bytes(size, "little"))[0]
    return _pack(value, type_)


def _pack(value: float, type_: str) -> int:
    width = bits_of(type_)
    if type_ == "bf16":
        return int.from_bytes(struct.pack("<f", value), "little") >> 16
    dtype = {16: np.float16, 32: np.float32, 64: np.float64}[width]
    with np.errstate(all="ignore"):
        return int.from_bytes(np.asarray(value, dtype).tobytes(), "little")


def unsupported(ins: Instruction, reason: str = "") -> Op:
    """An instruction that ends the run when lanes execute it."""

    def refuse(_unit: object, mask: NDArray[np.bool_] | None, *_: object) -> None:
        if mask is None or mask.any():
            raise Unsupported(ins.name, ins.line, reason)

    return Op(run=refuse, machine=True, refused=True)
