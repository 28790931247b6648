"""tcgen05.mma at work: operands from shared and tensor memory, one float32 product for a chain, accumulators in place.

No hardware's answers are known for sm_100a, so both numerics modes multiply by BLAS in float32: sums are formed in
another order than the device forms them, integers are exact.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.cta import Cta
from ptxbench.emulator.machine.products import Operand
from ptxbench.emulator.machine.tensor_memory import ILLEGAL, Region, TensorMemory, shift_down
from ptxbench.emulator.tensor import fast
from ptxbench.emulator.tensor.accumulators import Piece, accumulator, half_lanes
from ptxbench.emulator.tensor.narrow import along_k, along_mn
from ptxbench.emulator.tensor.shared_descriptor import SharedDescriptor, chunk_addresses
from ptxbench.emulator.tensor.tcgen05 import Form, Shape
from ptxbench.emulator.tensor.tensor_sparse import kept_places, metadata_columns, with_zeros
from ptxbench.emulator.tensor.tmem import LANES
from ptxbench.emulator.tensor.zero_columns import ZeroColumns

_CHUNK = np.dtype("V16")
DEPTH = 32
"""Bytes of a row along K in one product; a sparse one has twice as many of B."""
A_COLUMNS = DEPTH // 4


@lru_cache(maxsize=4096)
def shared_operand(value: int, rows: int, depth: int, size: int, mn_major: bool) -> Operand:
    """The operand behind a descriptor: rows in one CTA, bytes along K, bytes of an element, layout.

    Raises:
        Fault: The descriptor is not allowed.
    """
    descriptor = SharedDescriptor.decode(value)
    addresses = chunk_addresses(descriptor, rows, depth, size, mn_major)
    return Operand(descriptor.fields, addresses >> 4, int(addresses.min()), int(addresses.max()) + 16)


@lru_cache(maxsize=4096)
def overlaps(operand: Operand) -> bool:
    """Whether some bytes belong to several rows."""
    return np.unique(operand.chunks).size < operand.chunks.size


@lru_cache(maxsize=4096)
def _chain(operands: tuple[Operand, ...], axis: int) -> NDArray[np.int64]:
    return np.concatenate([each.chunks for each in operands], axis=axis)


@dataclass(frozen=True, eq=False)
class Sides:
    """Where one product finds its operands.

    Attributes:
        a: Behind a descriptor, or the column (and lane) of an address in tensor memory.
        factors: Multiplies A and B by their scale factors; None without.
    """

    a: Operand | tuple[int, int]
    b: Operand
    factors: Any = None
    others: tuple[Region, ...] = ()
    """Tensor memory that is read besides A, its metadata and D."""
    metadata: tuple[int, int] | None = None
    """Lane and column of a sparse A's metadata."""


@dataclass(eq=False)
class Product:
    """One issued tcgen05.mma.

    Attributes:
        ctas: The CTA, or both of a pair, the even one first.
        target: Lane and column of D.
        accumulate: enable-input-d.
        down: Times that D is halved before (scale-input-d).
        kept: Lanes of each CTA that are left as they are: bool [group, 128], or None.
        zero: Columns for which B counts as zero (`.ws`), or None.
    """

    form: Form
    shape: Shape
    ctas: tuple[Cta, ...]
    target: tuple[int, int]
    sides: Sides
    accumulate: bool
    down: int = 0
    kept: Any = None
    zero: ZeroColumns | None = None
    done: bool = False
    rest: list[Product] = field(default_factory=list)

    def continued_by(self, other: Product | None) -> bool:
        """Whether the other adds to this one's accumulator, so that both are one product along K."""
        return (
            other is not None
            and other.accumulate
            and not other.down
            and self.shape.result == "f32"
            and other.kept is None
            and self.kept is None
            and not self.form.shifts
            and other.zero is None
            and self.zero is None
            and other.target == self.target
            and other.shape is self.shape
            and other.form is self.form
        )

    def join(self, others: list[Product]) -> None:
        """Do these together with this one."""
        self.rest = others

    def regions(self) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
        """Tensor memory that is read, and that is written."""
        written = tuple(self._region(each, self.target[1], _width(each)) for each in self.pieces)
        read = written if self.accumulate else ()
        if isinstance(self.sides.a, tuple):
            column = self.sides.a[1]
            left = tuple(self._region(each, column, A_COLUMNS) for each in self.pieces)
            read, written = (*read, *left), (*written, *left) if self.form.shifts else written
        if self.sides.metadata is not None:
            column, wide = self.sides.metadata[1], metadata_columns(self.form)
            read = (*read, *(self._region(each, column, wide) for each in self.pieces))
        read = (*read, *self.sides.others)
        return read, written

    def overlap(self) -> str:
        """Which operands in tensor memory lie in the accumulator, which it overwrites while they are read."""
        written = [self._region(each, self.target[1], _width(each)) for each in self.pieces]
        read = {"its scale factors": list(self.sides.others)}
        if isinstance(self.sides.a, tuple):
            read["A"] = [self._region(each, self.sides.a[1], A_COLUMNS) for each in self.pieces]
        if self.sides.metadata is not None:
            column, wide = self.sides.metadata[1], metadata_columns(self.form)
            read["A's metadata"] = [self._region(each, column, wide) for each in self.pieces]
        found = (name for name, regions in read.items() if any(a.meets(b) for a in regions for b in written))
        return " and ".join(sorted(found))

    def _region(self, piece: Piece, column: int, width: int) -> Region:
        return Region(self.ctas[piece.cta], piece.groups, slice(column, column + width))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The blocks of D."""
        return accumulator(self.form, self.shape, self.target[0])

    def operands(self) -> list[tuple[Cta, Any, int]]:
        """Shared memory that is read, for the checks."""
        found = [self.sides.b] if isinstance(self.sides.a, tuple) else [self.sides.b, self.sides.a]
        return [(cta, each.places, each.descriptor.span) for each in found for cta in self.ctas]

    @np.errstate(all="ignore")
    def run(self) -> None:
        """Multiply, with all that was joined; sums are formed in one order, joined or not."""
        if self.done:
            return
        chain = [self, *self.rest]
        b = self._right(chain)
        steps = [slice(place * self.form.k, (place + 1) * self.form.k) for place in range(len(chain))]
        made: dict[int, list[NDArray[np.float32]]] = {}
        for piece in self.pieces:
            part = piece.part if self._apart else 0
            if part not in made:
                a = self._left(chain, part)
                made[part] = [np.matmul(a[:, step], b[:, step].T) for step in steps]
            self._write(piece, [each[piece.rows, piece.columns] for each in made[part]])
        if self.form.shifts and isinstance(self.sides.a, tuple):
            for cta in self.ctas:
                shift_down(cta, 0, self.sides.a[1])
        for each in chain:
            each.done = True

    @property
    def _apart(self) -> bool:
        """Whether each part of the lanes has an A of its own."""
        return isinstance(self.sides.a, tuple) or self.form.sparse

    def _left(self, chain: list[Product], part: int) -> NDArray[np.float32]:
        """A of one part of the lanes: [M, K] of the chain."""
        lanes = [piece for piece in self.pieces if piece.part == part]
        if isinstance(self.sides.a, tuple):
            made = np.concatenate([each._from_tensor(lanes) for each in chain], axis=1)
        else:
            parts = tuple(each.sides.a for each in chain if isinstance(each.sides.a, Operand))
            made = self._from_shared(parts, 0, self.shape.m // self.form.group)
        if self.form.sparse:
            made = with_zeros(made, np.concatenate([each._kept(lanes, n) for n, each in enumerate(chain)], axis=1))
        made = self._scaled(made, chain, 0)
        return -made if self.shape.negated[0] != self.shape.negated[1] else made

    def _right(self, chain: list[Product]) -> NDArray[np.float32]:
        """B: [N, K] of the chain."""
        first = self.zero.first if self.zero is not None else 0
        rows = self.shape.n // self.form.group + first
        made = self._from_shared(tuple(each.sides.b for each in chain), 1, rows)
        if self.zero is not None:
            made = np.where(self.zero.zero[:, None], np.float32(0), made[first:])
        return self._scaled(made, chain, 1)

    def _scaled(self, values: NDArray[np.float32], chain: list[Product], side: int) -> NDArray[np.float32]:
        if self.sides.factors is None:
            return values
        factors: NDArray[np.float32] = np.concatenate([each.sides.factors(side) for each in chain], axis=1)
        return values * factors

    def _from_shared(self, operands: tuple[Operand, ...], side: int, rows: int) -> NDArray[np.float32]:
        mn_major, type_ = self.shape.transposed[side], self.shape.types[side]
        chunks = operands[0].chunks if len(operands) == 1 else _chain(operands, 0 if mn_major else 1)
        made = []
        for cta in self.ctas:
            raw = cta.shared.bytes.view(_CHUNK)[chunks].view(np.uint8).reshape(chunks.shape[0], -1)
            made.append(along_mn(raw, type_)[:rows] if mn_major else along_k(raw, type_, self._packing()))
        whole: NDArray[np.float32] = made[0] if len(made) == 1 else np.concatenate(made)
        return whole

    def _packing(self) -> str:
        return "padded" if self.form.kind in ("f8f6f4", "mxf8f6f4") else "dense"

    def _from_tensor(self, pieces: list[Piece]) -> NDArray[np.float32]:
        """A in the lanes of these pieces, the even CTA's first: [M, K], of a sparse one what it keeps."""
        assert isinstance(self.sides.a, tuple)
        column, made = self.sides.a[1], []
        for piece in pieces:
            cells = TensorMemory.of(self.ctas[piece.cta]).cells[piece.lanes, column : column + A_COLUMNS]
            raw = np.ascontiguousarray(cells).view(np.uint8)
            made.append(along_k(raw, self.shape.types[0], "bytes" if self._packing() == "padded" else "dense"))
        return np.concatenate(made)

    def _kept(self, pieces: list[Piece], number: int) -> NDArray[np.int64]:
        """Places of A's kept elements along K of the chain, of which this is the product with that number."""
        assert self.sides.metadata is not None
        column, made = self.sides.metadata[1], []
        for piece in pieces:
            cells = TensorMemory.of(self.ctas[piece.cta]).cells[:, column : column + metadata_columns(self.form)]
            made.append(kept_places(self.form, cells, np.arange(LANES)[piece.lanes]))
        return np.concatenate(made) + number * self.form.k

    def _write(self, piece: Piece, new: list[NDArray[np.float32]]) -> None:
        """Add to the accumulator's cells, or replace them."""
        cells = TensorMemory.of(self.ctas[piece.cta]).cells
        start = self.target[1]
        where = (piece.lanes, slice(start, start + _width(piece)))
        old = cells[where]
        bits = self._bits(new, old)
        if self.kept is not None:
            bits = np.where(self.kept[piece.cta][piece.lanes][:, None], old, bits)
        cells[where] = bits

    def _bits(self, parts: list[NDArray[np.float32]], old: NDArray[np.uint32]) -> NDArray[Any]:
        """What the cells become; only float32 accumulators have more than one part."""
        new, *others = parts
        if self.shape.result == "s32":
            total = new.astype(np.int64)
            if self.accumulate:
                total = total + old.view(np.int32)
            return fast.to_s32(total, self.shape.saturate)
        half = self.shape.result == "f16"
        if self.accumulate:
            had = (old & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float32) if half else old.view(np.float32)
            new = new + (np.ldexp(had, -self.down) if self.down else had)
        for other in others:
            new = new + other
        return fast.to_f16(new) if half else fast.to_f32(np.ascontiguousarray(new))


def _width(piece: Piece) -> int:
    return int(piece.columns.stop - piece.columns.start)


def check_lane(form: Form, shape: Shape, lane: int, what: str, home: int | None = None) -> None:
    """Refuse an address whose lane does not fit the layout, or is not that of the accumulator, `home`.

    Raises:
        Fault: The lane is neither 0 nor, for half of the lanes, 16, or D has the other half.
    """
    allowed = (0, 16) if half_lanes(form, shape) else (0,)
    if lane not in allowed:
        names = " or ".join(str(each) for each in allowed)
        raise Fault(ILLEGAL, f"{what} begins at lane {lane} of tensor memory; M = {shape.m} needs lane {names}")
    if home is not None and lane != home:
        raise Fault(ILLEGAL, f"{what} begins at lane {lane} of tensor memory, the accumulator at {home}: both use half")
