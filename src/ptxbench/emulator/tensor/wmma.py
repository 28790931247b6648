"""`wmma`: loads, stores and products of opaque fragments, on whole warps; reads no memory.

PTX ISA, section wmma. The ISA leaves open which lane holds which element, so that only wmma itself can look into a
fragment. Here an operand lies row by row (B: column by column) over registers, lanes and places; where the ISA gives it
more registers than that takes, they repeat.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Instruction, Vector
from ptxbench.emulator.tensor import exact, fast
from ptxbench.emulator.tensor.formats import FORMATS, Bits, Format
from ptxbench.emulator.tensor.fragments import Fragment, Index, fragment, unpack
from ptxbench.emulator.tensor.mma import double_product

LANES = 32
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)\Z")


def _shape(ins: Instruction) -> tuple[int, int, int]:
    found = next((match for word in ins.modifiers if (match := _SHAPE.match(word))), None)
    if ins.opcode != "wmma" or found is None:
        raise Unsupported(ins.name, ins.line)
    return int(found[1]), int(found[2]), int(found[3])


@lru_cache(maxsize=64)
def _linear(rows: int, columns: int, width: int) -> Fragment:
    """A matrix row by row."""
    places = max(width, 32) // width

    def place(r: Index, lane: Index, i: Index) -> Index:
        return (r * LANES + lane) * places + i

    return fragment(
        (rows, columns),
        LANES,
        width,
        lambda r, lane, i: place(r, lane, i) // columns,
        lambda r, lane, i: place(r, lane, i) % columns,
        max(width, 32),
    )


@dataclass(frozen=True)
class _Stored:
    """A matrix as memory and registers know it: elements below 8 bits go as 32-bit words."""

    rows: int
    columns: int
    format: Format

    @property
    def element(self) -> int:
        """Bits of what is moved at once."""
        return self.format.bits if self.format.bits >= 8 else 32

    @property
    def fragment(self) -> Fragment:
        """The registers that hold it once."""
        return _linear(self.rows, self.columns * self.format.bits // self.element, self.element)

    def matrix(self, registers: Sequence[Bits] | Bits) -> Bits:
        """Element bits [warps, rows, columns]."""
        held = self.fragment.matrix(np.asarray(registers)[: self.fragment.registers])
        return unpack(np.ascontiguousarray(held), self.format.bits) if self.format.bits < 8 else held

    def spread(self, matrices: Bits, registers: int) -> Bits:
        """Registers of matrices whose elements are of `element` bits, repeated to that many."""
        once = self.fragment.spread(matrices)
        return np.concatenate([once] * (registers // len(once)))


def _stored(operand: str, shape: tuple[int, int, int], format_: Format) -> _Stored:
    m, n, k = shape
    rows, columns = {"a": (m, k), "b": (n, k), "c": (m, n), "d": (m, n)}[operand]
    return _Stored(rows, columns, format_)


@dataclass(frozen=True)
class WmmaMove:
    """A form of `wmma.load` or `wmma.store`."""

    operand: str
    """`a`, `b`, `c` or `d`."""
    shape: tuple[int, int, int]
    """M, N, K."""
    format: Format
    along_rows: bool
    """Whether the elements that lie together in memory are those of one row of `_Stored` (B: of one column of B)."""
    registers: int

    @classmethod
    def parse(cls, ins: Instruction) -> WmmaMove:
        """The form of the instruction.

        Raises:
            Unsupported: It is no wmma.load and no wmma.store.
        """
        words = ins.modifiers
        shape = _shape(ins)
        if words[0] not in ("load", "store"):
            raise Unsupported(ins.name, ins.line)
        vector = ins.operands[0 if words[0] == "load" else 1]
        count = len(vector.items) if isinstance(vector, Vector) else 1
        along = ("row" in words) != (words[1] == "b")
        return cls(words[1], shape, FORMATS[words[-1]], along, count)

    @property
    def element_bytes(self) -> int:
        """Bytes that are moved at once."""
        return self._stored.element // 8

    @property
    def _stored(self) -> _Stored:
        return _stored(self.operand, self.shape, self.format)

    def offsets(self, stride: int | None = None) -> NDArray[np.int64]:
        """Byte offsets of the elements from the matrix's address, in the order of `load` and `store`.

        Args:
            stride: Elements of the format from one row (or column) to the next; None: they are dense.
        """
        stored = self._stored
        rows, columns = stored.fragment.shape
        row, column = np.divmod(np.arange(rows * columns, dtype=np.int64), columns)
        dense = stored.columns if self.along_rows else stored.rows
        pitch = (dense if stride is None else stride) * self.format.bits // 8
        outer, inner = (row, column) if self.along_rows else (column, row)
        made: NDArray[np.int64] = outer * pitch + inner * self.element_bytes
        return made

    def load(self, elements: Bits) -> Bits:
        """Registers [registers, lanes] from the elements that memory has at `offsets`: [warps, elements]."""
        stored = self._stored
        return stored.spread(elements.reshape(-1, *stored.fragment.shape), self.registers)

    def store(self, registers: Sequence[Bits] | Bits) -> Bits:
        """The elements [warps, elements] that go to `offsets`."""
        held = self._stored.fragment.matrix(np.asarray(registers))
        return held.reshape(held.shape[0], -1)


@dataclass(frozen=True)
class Wmma:
    """A form of `wmma.mma`."""

    shape: tuple[int, int, int]
    types: tuple[Format, Format]
    """Of A and B."""
    result: Format
    addend: Format
    rounding: str = "rn"
    satfinite: bool = False
    xor: bool = False

    @classmethod
    def parse(cls, ins: Instruction) -> Wmma:
        """The form of the instruction.

        Raises:
            Unsupported: It is no wmma.mma.
        """
        words = ins.modifiers
        shape = _shape(ins)
        types = [FORMATS[word] for word in words if word in FORMATS]
        if words[0] != "mma":
            raise Unsupported(ins.name, ins.line)
        if len(types) == 2:  # f16 factors are not named
            types = [types[0], FORMATS["f16"], FORMATS["f16"], types[1]]
        rounding = next((word for word in ("rz", "rm", "rp") if word in words), "rn")
        return cls(shape, (types[1], types[2]), types[0], types[3], rounding, "satfinite" in words, "xor" in words)

    @property
    def d_registers(self) -> int:
        """Registers of the result in each lane."""
        return _stored("d", self.shape, self.result).fragment.registers

    @np.errstate(all="ignore")
    def multiply(
        self, a: Sequence[Bits] | Bits, b: Sequence[Bits] | Bits, c: Sequence[Bits] | Bits, mode: str = "fast"
    ) -> Bits:
        """Registers of D [registers, lanes] from those of A, B and C; `mode` is `fast` or `exact`."""
        left = _stored("a", self.shape, self.types[0]).matrix(a)
        right = _stored("b", self.shape, self.types[1]).matrix(b)
        addend = _stored("c", self.shape, self.addend).matrix(c)
        if self.result.name == "f64":
            made = double_product(left, right, addend, self.rounding, mode)
        elif self.types[0].floating:
            made = self._floating(left, right, addend, mode)
        else:
            made = fast.integer_product(left, right, self.types, addend, self.satfinite, self.xor)
        return _stored("d", self.shape, self.result).fragment.spread(made)

    def _floating(self, a: Bits, b: Bits, c: Bits, mode: str) -> Bits:
        addend = exact.as_f32(c)
        half = self.result.bits == 16
        if mode == "exact" and self.types[0].name == "tf32":
            # The device takes two steps of four along K.
            first = exact.fused(a[..., :4], b[..., :4], self.types, addend, exact.WIDE)
            made = exact.fused(a[..., 4:], b[..., 4:], self.types, exact.as_f32(first), exact.WIDE)
        elif mode == "exact":
            made = exact.fused(a, b, self.types, addend, exact.WIDE_HALF if half else exact.WIDE)
        else:
            total = fast.product(a, b, self.types) + addend
            made = fast.to_f16(total) if half else fast.to_f32(total)
        return fast.clamped(made) if self.satfinite else made
