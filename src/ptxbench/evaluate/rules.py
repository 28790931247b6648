"""When a result counts as right: the published rule and the precision contract; runs no kernel.

Works on NumPy arrays in the core and on torch tensors in the judge: the caller passes the array library as `Ops`.
Arrays are worked through in pieces, so that temporaries stay below about 1 GB at every size.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxbench.schema.stages import BlockError

PIECE_ELEMENTS = 2**25
"""Elements per piece: about seven float32 temporaries of this many elements are alive at once (0.94 GB)."""

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16, "float32": np.float32, "float64": np.float64}
"""NumPy's type for each name of `schema.problem.DType`, and float64 for oracles."""

Floats = NDArray[np.float64]

Array: TypeAlias = Any
"""An array of the library that `Ops` stands for; the core cannot name torch's type."""


class Ops(Protocol):
    """An array library: a namespace of the functions that NumPy and torch share, and what they name differently."""

    xp: Any
    """Module with `abs`, `clip`, `isfinite`, `sum`, `amax`, `argmax`, `stack`, `count_nonzero` and `nan_to_num`."""

    def cast(self, array: Array, dtype: str) -> Array:
        """The array in another element type, rounded to nearest even."""

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """A small array on the host."""


class NumpyOps:
    """`Ops` for the core and for tests."""

    xp: Any = np

    def cast(self, array: Array, dtype: str) -> Array:
        """See `Ops.cast`."""
        return array.astype(DTYPES[dtype], copy=False)

    def to_numpy(self, array: Array) -> NDArray[Any]:
        """See `Ops.to_numpy`."""
        return np.asarray(array)


NUMPY = NumpyOps()


@dataclass(frozen=True)
class Layout:
    """A tensor seen as `heads` matrices of `rows` by `columns`; blocks of rows never straddle two heads.

    An even rank ends in (rows, columns): C [M, N], O [B, H, S, D]. An odd rank has one number per row: LSE [B, H, S].
    """

    heads: int
    rows: int
    columns: int

    @classmethod
    def of(cls, shape: Sequence[int]) -> Layout:
        """The layout of a contiguous tensor of this shape.

        Raises:
            ValueError: The tensor has no elements; comparing nothing is never a pass.
        """
        if not shape or math.prod(shape) == 0:
            raise ValueError(f"a tensor of shape {tuple(shape)} has nothing to compare")
        if len(shape) % 2:
            return cls(heads=math.prod(shape[:-1]), rows=shape[-1], columns=1)
        return cls(heads=math.prod(shape[:-2]), rows=shape[-2], columns=shape[-1])

    @property
    def shape(self) -> tuple[int, int, int]:
        """(heads, rows, columns)."""
        return (self.heads, self.rows, self.columns)

    def blocks(self, block_rows: int) -> int:
        """How many blocks of rows there are; the last one of each head may be shorter."""
        return self.heads * -(-self.rows // block_rows)


@dataclass(frozen=True)
class Piece:
    """A rectangle of whole rows: heads [head, head_stop), rows [row, row_stop)."""

    head: int
    head_stop: int
    row: int
    row_stop: int

    def of(self, array: Array) -> Array:
        """The part of an array of `Layout.shape`."""
        return array[self.head : self.head_stop, self.row : self.row_stop]


def pieces(layout: Layout, block_rows: int, limit: int | None = None) -> Iterator[Piece]:
    """Cut a tensor into rectangles of whole blocks, each of at most `limit` elements where one block allows it."""
    most = PIECE_ELEMENTS if limit is None else limit
    per_head = layout.rows * layout.columns
    if per_head <= most:
        step = most // per_head
        for head in range(0, layout.heads, step):
            yield Piece(head, min(head + step, layout.heads), 0, layout.rows)
        return
    rows = max(block_rows, most // layout.columns // block_rows * block_rows)
    for head in range(layout.heads):
        for row in range(0, layout.rows, rows):
            yield Piece(head, head + 1, row, min(row + rows, layout.rows))


# ---- the published rule (E16) ----


@dataclass(frozen=True)
class PublishedResult:
    """What the published rule found in one output."""

    failing: int
    total: int
    max_abs: float
    max_rel: float

    @property
    def passed(self) -> bool:
        """No element may fail."""
        return self.failing == 0


def element_fails(ops: Ops, got: Array, expected: Array, atol: float, rtol: float) -> tuple[Array, Array, Array]:
    """Where |x - y| > max(atol, rtol * |y|), and |x - y| and |y|, all in float32.

    This is the strict form that the published code uses; `torch.allclose` would allow the sum of both tolerances.
    A NaN on either side and an infinite result fail, because the comparison is written so that only a proven
    small difference passes.
    """
    xp = ops.xp
    wanted = ops.cast(expected, "float32")
    difference = xp.abs(ops.cast(got, "float32") - wanted)
    size = xp.abs(wanted)
    passes = difference <= xp.clip(size * rtol, atol, None)
    return ~(passes & xp.isfinite(difference)), difference, size


def published_rule(ops: Ops, got: Array, expected: Array, atol: float, rtol: float) -> PublishedResult:
    """Compare every element of `got` with `expected` (same shape, any float types) by E16.

    `max_rel` is max |x - y| / (|y| + 1e-8), as published. Both maxima are taken over finite differences.

    Raises:
        ValueError: The shapes differ, or there is nothing to compare.
    """
    layout = same_layout(got, expected)
    xp = ops.xp
    got, expected = got.reshape(layout.shape), expected.reshape(layout.shape)
    counts, largest, relative = [], [], []
    for piece in pieces(layout, 1):
        fails, difference, size = element_fails(ops, piece.of(got), piece.of(expected), atol, rtol)
        counts.append(xp.count_nonzero(fails))
        difference = xp.nan_to_num(difference, nan=0.0, posinf=0.0)
        largest.append(xp.amax(difference))
        relative.append(xp.amax(difference / (size + 1e-8)))
    numbers = [ops.to_numpy(xp.stack(each)) for each in (counts, largest, relative)]
    return PublishedResult(
        failing=int(numbers[0].sum()),
        total=math.prod(layout.shape),
        max_abs=float(numbers[1].max()),
        max_rel=float(np.nan_to_num(numbers[2], nan=0.0).max()),
    )


# ---- the contract (E17) ----


def block_errors(ops: Ops, got: Array, oracle: Array, block_rows: int) -> Floats:
    """RMS-relative error sqrt(sum (x - y)^2 / sum y^2) of each block of rows, as float64 [heads * blocks per head].

    A block with a non-finite result has error infinity. A block whose oracle is all zero has error 0 if the result
    is zero too, else infinity. Differences are taken in float64 where the oracle is float64, else in float32.

    Raises:
        ValueError: The shapes differ, or there is nothing to compare.
    """
    wide = "float64" if str(oracle.dtype).endswith("float64") else "float32"
    layout = same_layout(got, oracle)
    got, oracle = got.reshape(layout.shape), oracle.reshape(layout.shape)

    def sums(piece: Piece) -> tuple[Array, Array]:
        expected = ops.cast(piece.of(oracle), wide)
        difference = ops.cast(piece.of(got), wide) - expected
        return _block_sums(ops, difference, block_rows), _block_sums(ops, expected, block_rows)

    return _relative(ops, [sums(piece) for piece in pieces(layout, block_rows)])


def rounding_errors(ops: Ops, oracle: Array, dtype: str, block_rows: int) -> Floats:
    """One rounding step: the RMS-relative error of each block of the oracle rounded to the output's type."""
    return block_errors(ops, ops.cast(oracle, dtype), oracle, block_rows)


def contract_bounds(rounding: Floats, library: Floats, factor: float) -> Floats:
    """What each block may miss: the larger of `factor` times the library's own error and one rounding step."""
    if rounding.shape != library.shape:
        raise ValueError(f"{library.size} library errors for {rounding.size} blocks")
    return np.maximum(factor * library, rounding)


def worst_block(errors: Floats, bounds: Floats) -> BlockError:
    """The block with the largest share of what it may miss."""
    if errors.size == 0 or errors.shape != bounds.shape:
        raise ValueError(f"{errors.size} block errors cannot be held against {bounds.size} bounds")
    share = np.where(errors <= bounds, errors / np.maximum(bounds, np.finfo(np.float64).tiny), np.inf)
    over = np.where(np.isinf(share), np.nan_to_num(errors, posinf=np.finfo(np.float64).max), 0.0)
    block = int(over.argmax()) if over.any() else int(share.argmax())
    return BlockError(block=block, rms_relative_error=float(errors[block]), bound=float(bounds[block]))


def contract_holds(errors: Floats, bounds: Floats) -> bool:
    """Whether every block keeps its bound; a NaN error does not."""
    return bool(errors.size) and errors.shape == bounds.shape and bool((errors <= bounds).all())


def accumulation_allowance(rounding: Floats, terms: int) -> Floats:
    """What a float32 output may miss whatever the library does: 2 sqrt(`terms`) rounding steps.

    `terms` is the number of float32 additions behind each value. An honest kernel may add in any order, and
    the error of a sum of n terms stays below a small multiple of sqrt(n) rounding steps (Higham and Mary, A New
    Approach to Probabilistic Rounding Error Analysis, 2019); lower precision misses by thousands of steps.
    """
    return rounding * (2.0 * math.sqrt(terms))


def same_layout(got: Array, expected: Array) -> Layout:
    """The layout of two arrays of one shape; ValueError where their shapes differ."""
    if tuple(got.shape) != tuple(expected.shape):
        raise ValueError(f"shapes differ: {tuple(got.shape)} against {tuple(expected.shape)}")
    return Layout.of(tuple(int(size) for size in got.shape))


def _block_sums(ops: Ops, values: Array, block_rows: int) -> list[Array]:
    """Sums of squares in float64 of each whole block, and of the shorter last one: arrays [heads, blocks]."""
    xp = ops.xp
    heads, rows, columns = (int(size) for size in values.shape)
    whole = rows // block_rows
    squares = values * values
    parts = []
    if whole:
        cut = squares[:, : whole * block_rows].reshape(heads, whole, block_rows * columns)
        parts.append(xp.sum(cut, axis=2, dtype=xp.float64))
    if rows % block_rows:
        cut = squares[:, whole * block_rows :].reshape(heads, 1, -1)
        parts.append(xp.sum(cut, axis=2, dtype=xp.float64))
    return parts


def _relative(ops: Ops, sums: list[tuple[Array, Array]]) -> Floats:
    found = []
    for over, under in sums:
        numerator = np.concatenate([ops.to_numpy(part) for part in over], axis=1)
        denominator = np.concatenate([ops.to_numpy(part) for part in under], axis=1)
        if not np.isfinite(denominator).all():
            raise ValueError("the oracle holds a NaN or an infinity")
        zero = np.where(numerator == 0, 0.0, np.inf)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.sqrt(np.where(denominator > 0, numerator / denominator, zero))
        found.append(np.where(np.isnan(error), np.inf, error).reshape(-1))
    return np.concatenate(found)
