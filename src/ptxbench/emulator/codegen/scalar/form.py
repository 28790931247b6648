"""What a scalar operation is, and an instruction's words sorted for those who build one; computes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.ptx.ir import Immediate, Instruction, Operand, Pair, Register, Vector

Bits = NDArray[Any]
"""Register contents of all lanes, as unsigned integers or booleans; 0-d where all sources are constants."""
Run = Callable[..., Any]

_TYPE = re.compile(r"(?:pred|[bus]\d+(?:x2)?|f(?:16|32|64)(?:x2)?|bf16(?:x2)?|tf32|e\dm\d(?:x[24])?|ue8m0(?:x2)?)\Z")
_NARROW = {"e4m3x2": 16, "e5m2x2": 16, "e2m3x2": 16, "e3m2x2": 16, "ue8m0x2": 16, "e2m1x2": 8, "e2m1x4": 16}


@dataclass(frozen=True)
class ScalarOp:
    """A function of arrays over lanes.

    Sources and results are PTX types, one for each operand in their order, vectors and pairs flattened; the arrays have
    the dtype of a register of that type (`b128`: uint64 with a last axis of two). `run` returns an array for one result
    and a tuple otherwise; it computes all lanes, is total on any bits, and relies on its caller's
    `np.errstate(all="ignore")`.
    """

    run: Run
    sources: tuple[str, ...]
    results: tuple[str, ...]
    carry_in: bool = False
    """The carry flag (bool) follows the sources."""
    carry_out: bool = False
    """The carry flag (bool) follows the results."""
    warp: bool = False
    """The executing lanes (bool) come before the sources; lanes are whole warps."""


def width(type_: str) -> int:
    """Bits of a PTX type."""
    if type_ == "pred":
        return 1
    if type_ in _NARROW:
        return _NARROW[type_]
    if type_.startswith("tf"):
        return 32
    if type_.endswith("x4"):
        return 32
    number = re.search(r"(\d+)(x2)?\Z", type_)
    assert number, type_
    return int(number[1]) * (2 if number[2] else 1)


def dtype(type_: str) -> str:
    """NumPy dtype name of a register of a PTX type."""
    if type_ == "pred":
        return "bool"
    return {8: "uint16", 16: "uint16", 32: "uint32", 64: "uint64", 128: "uint64"}[width(type_)]


@dataclass(frozen=True)
class Form:
    """An instruction's words and operands, sorted."""

    ins: Instruction

    @cached_property
    def words(self) -> frozenset[str]:
        """All modifiers."""
        return frozenset(self.ins.modifiers)

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The type words, in order."""
        return tuple(word for word in self.ins.modifiers if _TYPE.match(word))

    @property
    def type(self) -> str:
        """The last type word; b32 without any."""
        return self.types[-1] if self.types else "b32"

    @property
    def ftz(self) -> bool:
        """Whether subnormals are flushed."""
        return "ftz" in self.words

    @property
    def rounding(self) -> str:
        """`rn`, `rz`, `rm` or `rp`; `rn` if the instruction names none."""
        return next((word for word in ("rz", "rm", "rp") if word in self.words), "rn")

    def has(self, *words: str) -> bool:
        """Whether all these modifiers are there."""
        return self.words.issuperset(words)

    def one_of(self, *words: str) -> str:
        """The first of these modifiers that is there, or an empty string."""
        return next((word for word in words if word in self.words), "")

    def register_type(self, place: int, fallback: str) -> str:
        """Type of the register at an operand's place: some instructions take wider ones than their type."""
        operand = self.ins.operands[place]
        return operand.type if isinstance(operand, Register) else fallback

    def immediate(self, place: int) -> int | None:
        """The integer that is written at an operand's place, if one is."""
        operand = self.ins.operands[place] if place < len(self.ins.operands) else None
        return operand.value if isinstance(operand, Immediate) and operand.kind == "int" else None

    @property
    def paired(self) -> bool:
        """Whether the destination is a pair `d|p`."""
        return isinstance(self.ins.operands[0], Pair)


def flat(operands: tuple[Operand, ...]) -> int:
    """How many registers or constants the operands are, vectors and pairs flattened."""
    return sum(len(each.items) if isinstance(each, Vector) else 2 if isinstance(each, Pair) else 1 for each in operands)


def same(run: Run, type_: str, sources: int) -> ScalarOp:
    """An operation whose sources and result are of one type."""
    return ScalarOp(run, (type_,) * sources, (type_,))


def signed(bits: Bits) -> Bits:
    """The bits as signed integers."""
    return bits.view(f"int{bits.dtype.itemsize * 8}")


def unsigned(values: Bits) -> Bits:
    """Signed integers as bits."""
    return values.view(f"uint{values.dtype.itemsize * 8}")


def halves(run: Run) -> Run:
    """A function of 16-bit values, made one of 32-bit registers that hold two of them each."""

    def both(*registers: Bits) -> Bits:
        words = np.broadcast_arrays(*registers)
        shape = words[0].shape
        parts = (np.ascontiguousarray(each).reshape(-1).view(np.uint16) for each in words)
        made: Bits = np.ascontiguousarray(run(*parts)).view(np.uint32).reshape(shape)
        return made

    return both
