"""Judges one output by both rules and says where its failures lie (E19); the rules themselves are `rules`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxbench.evaluate.patterns import FailureMap, describe_blocks
from ptxbench.evaluate.rules import (
    Array,
    Floats,
    Layout,
    Ops,
    Piece,
    block_errors,
    contract_holds,
    element_fails,
    pieces,
    published_rule,
    same_layout,
    worst_block,
)
from ptxbench.schema.stages import OutputCheck, WorstElement

OUTLIER_FACTOR = 4.0
"""How far beyond the library's worst element of a block an honest kernel's worst may lie."""


@dataclass(frozen=True)
class Expectation:
    """What one output is held against.

    Attributes:
        reference: The baseline's result (or the oracle's, where there is no baseline), for the published rule.
        oracle: At least float32 accumulation; float64 where the output is float32.
        bounds: What each block may miss (`contract_bounds`); None where the library's error is not known.
        atol: Absolute tolerance of the published rule.
        rtol: Relative tolerance of the published rule.
        block_rows: Rows of a contract block.
        outliers: Whether single elements are bounded too (`has_outliers`); not on structured inputs, whose heavy tails
            carry single elements of honest kernels far.
    """

    reference: Array
    oracle: Array
    bounds: Floats | None
    atol: float = 1e-2
    rtol: float = 1e-2
    block_rows: int = 128
    outliers: bool = True


def check_output(ops: Ops, name: str, got: Array, expectation: Expectation) -> OutputCheck:
    """Judge one output by both rules; on a failure name the worst element, how many fail, and where they lie."""
    reference = expectation.reference
    published = published_rule(ops, got, reference, expectation.atol, expectation.rtol)
    errors = bounds = None
    if expectation.bounds is not None:
        bounds = expectation.bounds
        errors = block_errors(ops, got, expectation.oracle, expectation.block_rows)
    pattern, worst = "", None
    contract = None if errors is None or bounds is None else contract_holds(errors, bounds)
    if not published.passed:
        pattern, worst = locate(ops, got, expectation)
        contract = contract and not (expectation.outliers and has_outliers(ops, got, expectation))
    elif errors is not None and bounds is not None and not contract:
        layout = Layout.of(tuple(got.shape))
        pattern = describe_blocks(~(errors <= bounds), layout.rows, expectation.block_rows)
    return OutputCheck(
        name=name,
        published=published.passed,
        contract=contract,
        failing=published.failing,
        total=published.total,
        max_abs=published.max_abs,
        max_rel=published.max_rel,
        worst=worst,
        block=None if errors is None or bounds is None else worst_block(errors, bounds),
        pattern=pattern,
    )


def has_outliers(ops: Ops, got: Array, expectation: Expectation) -> bool:
    """Whether an element misses the oracle by more than both tolerances and 4 times the library's worst in its block.

    A block's RMS cannot see a few wrong elements among many; the library's own worst element says how far rounding
    alone carries one. Where the oracle stands for the library, every element beyond the tolerances is an outlier.
    """
    layout = same_layout(got, expectation.oracle)
    arrays = [array.reshape(layout.shape) for array in (got, expectation.reference, expectation.oracle)]
    for piece in pieces(layout, expectation.block_rows):
        x, library, y = (piece.of(array) for array in arrays)
        fails, difference, _ = element_fails(ops, x, y, expectation.atol, expectation.rtol)
        worst = _block_maxima(ops, ops.xp.where(fails, difference, difference * 0.0), expectation.block_rows)
        _, rounding, _ = element_fails(ops, library, y, expectation.atol, expectation.rtol)
        allowed = OUTLIER_FACTOR * _block_maxima(ops, rounding, expectation.block_rows)
        if not (worst <= allowed).all():
            return True
    return False


def _block_maxima(ops: Ops, values: Array, block_rows: int) -> Floats:
    """The largest value of each block of rows, as float64 [heads, blocks]; a NaN is larger than any number."""
    values = ops.xp.nan_to_num(values, nan=float("inf"))
    rows = int(values.shape[1])
    parts = [
        ops.to_numpy(ops.xp.amax(values[:, start : start + block_rows].reshape(int(values.shape[0]), -1), axis=1))
        for start in range(0, rows, block_rows)
    ]
    return np.stack(parts, axis=1).astype(np.float64)


def locate(ops: Ops, got: Array, expectation: Expectation) -> tuple[str, WorstElement]:
    """Where the published rule fails, and the element that misses its bound by most (a non-finite one first)."""
    shape = tuple(int(size) for size in got.shape)
    layout = Layout.of(shape)
    got, reference = got.reshape(layout.shape), expectation.reference.reshape(layout.shape)
    summary = FailureMap(layout.heads, layout.rows, layout.columns)
    most, place, values = -1.0, (0, 0, 0), (0.0, 0.0)
    xp = ops.xp
    for piece in pieces(layout, summary.tile_rows):
        x, y = piece.of(got), piece.of(reference)
        fails, difference, size = element_fails(ops, x, y, expectation.atol, expectation.rtol)
        excess = difference / xp.clip(size * expectation.rtol, expectation.atol, None)
        excess = xp.nan_to_num(excess, nan=float("inf"), posinf=float("inf"))
        flat = int(xp.argmax(excess))
        here = np.unravel_index(flat, tuple(excess.shape))
        found = float(excess[here])
        if found > most:
            most = found
            place = (piece.head + int(here[0]), piece.row + int(here[1]), int(here[2]))
            values = (float(x[here]), float(y[here]))
        _summarise(ops, summary, piece, (fails, xp.isfinite(ops.cast(x, "float32"))))
    index = np.unravel_index(int(np.ravel_multi_index(place, layout.shape)), shape)
    worst = WorstElement(index=tuple(int(i) for i in index), got=values[0], expected=values[1])
    return summary.describe(), worst


def _summarise(ops: Ops, summary: FailureMap, piece: Piece, masks: tuple[Array, Array]) -> None:
    fails, finite = masks
    xp = ops.xp
    by_row = ops.to_numpy(xp.sum(fails, axis=2))
    columns = summary.columns
    tiles = [
        ops.to_numpy(xp.sum(fails[:, :, start : start + summary.tile_columns], axis=2))
        for start in range(0, columns, summary.tile_columns)
    ]
    by_column = ops.to_numpy(xp.sum(xp.sum(fails, axis=0), axis=0))
    summary.add((piece.head, piece.row), by_row, by_column, np.stack(tiles, axis=-1))
    summary.non_finite += int(xp.count_nonzero(~finite))
