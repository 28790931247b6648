"""Where an output is wrong, in words: from small counts of failing elements; decides nothing about right or wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

SOLID = 0.25
"""A row, column or tile counts as wrong as a whole from this share of failing elements on (small values may pass)."""
COVER = 0.95
"""A pattern is named when it holds at least this share of all failing elements."""
NAMED = 4
"""How many ranges or tiles are spelled out."""

Mask = NDArray[np.bool_]


@dataclass
class FailureMap:
    """Counts of failing elements by row, by column and by tile; a few megabytes at most.

    Attributes:
        heads: Matrices in the output.
        rows: Rows of each.
        columns: Columns of each.
        tile_rows: Height of a tile.
        tile_columns: Width of a tile.
        non_finite: Elements of the result that are NaN or infinite.
    """

    heads: int
    rows: int
    columns: int
    tile_rows: int = 128
    tile_columns: int = 128
    non_finite: int = 0
    by_row: NDArray[np.int64] = field(init=False)
    by_column: NDArray[np.int64] = field(init=False)
    by_tile: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        tiles = (-(-self.rows // self.tile_rows), -(-self.columns // self.tile_columns))
        self.by_row = np.zeros((self.heads, self.rows), dtype=np.int64)
        self.by_column = np.zeros(self.columns, dtype=np.int64)
        self.by_tile = np.zeros((self.heads, *tiles), dtype=np.int64)

    def add(
        self, start: tuple[int, int], by_row: NDArray[Any], by_column: NDArray[Any], by_strip: NDArray[Any]
    ) -> None:
        """Add a rectangle's counts.

        Args:
            start: Its first head and row; the row is a multiple of `tile_rows`.
            by_row: Failing elements [heads, rows] of the rectangle.
            by_column: Failing elements [columns].
            by_strip: Failing elements [heads, rows, column tiles].
        """
        head, row = start
        heads, rows = by_row.shape
        self.by_row[head : head + heads, row : row + rows] += by_row
        self.by_column += by_column
        tiles = np.add.reduceat(by_strip, np.arange(0, rows, self.tile_rows), axis=1)
        first = row // self.tile_rows
        self.by_tile[head : head + heads, first : first + tiles.shape[1]] += tiles

    def describe(self) -> str:
        """The pattern: `everywhere`, rows, columns, tiles or `scattered`; with `NaN` first where the result has any."""
        place = self._place()
        return f"NaN or infinity {_join(place)}" if self.non_finite else place

    def _place(self) -> str:
        failing = int(self.by_row.sum())
        hit = self.by_tile > 0
        wide = np.repeat(hit.all(axis=2), self.tile_rows, axis=1)[:, : self.rows]
        tall = np.repeat(hit.all(axis=(0, 1)), self.tile_columns)[: self.columns]
        bad_rows = (self.by_row >= max(1.0, SOLID * self.columns)) & wide
        bad_columns = (self.by_column >= max(1.0, SOLID * self.heads * self.rows)) & tall
        if bad_rows.mean() >= COVER:
            return "everywhere"
        if self.by_row[bad_rows].sum() >= COVER * failing:
            return describe_rows(bad_rows)
        if self.by_column[bad_columns].sum() >= COVER * failing:
            return f"columns {_ranges(bad_columns)}"
        return self._tiles(failing)

    def _tiles(self, failing: int) -> str:
        sizes = np.outer(_extents(self.rows, self.tile_rows), _extents(self.columns, self.tile_columns))
        bad = self.by_tile >= SOLID * sizes
        if self.columns == 1 or self.by_tile[bad].sum() < COVER * failing:
            return "scattered"
        corners = [
            (head, row * self.tile_rows, column * self.tile_columns)[0 if self.heads > 1 else 1 :]
            for head, row, column in np.argwhere(bad).tolist()
        ]
        return f"tiles of {self.tile_rows}x{self.tile_columns} at {_listed([str(list(c)) for c in corners])}"


def describe_rows(bad: Mask) -> str:
    """Wrong rows, from a mask [heads, rows]: `rows 768-1023`, `rows 0-127 of every head`, `heads 3-4`, ..."""
    if bad.all():
        return "everywhere"
    if bad.shape[0] == 1:
        return f"rows {_ranges(bad[0])}"
    hit: Mask = np.asarray(bad.any(axis=1))
    first = bad[int(hit.argmax())]
    if (bad == first)[hit].all():
        heads = "every head" if hit.all() else f"heads {_ranges(hit)}"
        return heads if first.all() else f"rows {_ranges(first)} of {heads}"
    return _listed([f"rows {_ranges(bad[head])} of head {head}" for head in np.flatnonzero(hit).tolist()])


def describe_blocks(bad: Mask, rows: int, block_rows: int) -> str:
    """Wrong blocks of rows, from a mask over blocks in the order of `rules.block_errors`."""
    per_head = -(-rows // block_rows)
    return describe_rows(np.repeat(bad.reshape(-1, per_head), block_rows, axis=1)[:, :rows])


def _join(place: str) -> str:
    return place if place in ("everywhere", "scattered") else f"in {place}"


def _extents(size: int, tile: int) -> NDArray[np.int64]:
    return np.diff(np.append(np.arange(0, size, tile), size))


def _ranges(mask: Mask) -> str:
    """Runs of true entries: `0-127, 256-383 and 3 more`."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False]))))
    runs = [(int(a), int(b) - 1) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return _listed([str(a) if a == b else f"{a}-{b}" for a, b in runs])


def _listed(items: list[str]) -> str:
    rest = len(items) - NAMED
    return ", ".join(items[:NAMED]) + (f" and {rest} more" if rest > 0 else "")
