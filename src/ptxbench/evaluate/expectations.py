"""What each output of a draw is held against, by both rules; computes no results of its own (E16, E17)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from ptxbench.evaluate.outputs import Expectation
from ptxbench.evaluate.rules import (
    Array,
    Floats,
    Layout,
    Ops,
    accumulation_allowance,
    block_errors,
    contract_bounds,
    rounding_errors,
)
from ptxbench.schema.problem import Contract, DType, Problem, Workload
from ptxbench.suite import library_error

Recipe = Literal["normal", "spiky"]


def expectations(
    ops: Ops,
    problem: Problem,
    workload: Workload,
    recipe: Recipe,
    exact: Mapping[str, Array],
    library: Mapping[str, Array] | None,
) -> dict[str, Expectation]:
    """What each output of one draw is held against, by both rules.

    Args:
        ops: The library of the arrays.
        problem: The problem; its contract gives tolerances and factors.
        workload: Sizes.
        recipe: How the inputs were drawn.
        exact: The oracle's results on these inputs.
        library: The baseline's results on these inputs; None where it is missing: then the oracle stands for it in
            the published rule, and the suite's stored errors give the contract's bounds (E17).
    """
    contract = problem.contract
    held = {}
    for spec in problem.outputs:
        truth = exact[spec.name]
        layout = Layout.of(tuple(truth.shape))
        if library is not None:
            error: Floats | None = block_errors(ops, library[spec.name], truth, contract.block_rows)
        else:
            error = _stored(problem, workload, recipe, spec.name, layout)
        bounds = None
        if error is not None:
            rounding = rounding_errors(ops, truth, spec.dtype.value, contract.block_rows)
            if spec.dtype is DType.FLOAT32:
                rounding = accumulation_allowance(rounding, _terms(problem, workload))
            bounds = _bounds(contract, recipe, rounding, error)
        held[spec.name] = Expectation(
            reference=truth if library is None else library[spec.name],
            oracle=truth,
            bounds=bounds,
            atol=contract.published_atol,
            rtol=contract.published_rtol,
            block_rows=contract.block_rows,
            outliers=recipe == "normal",
        )
    return held


def _bounds(contract: Contract, recipe: Recipe, rounding: Floats, library: Floats) -> Floats:
    if recipe == "normal":
        return contract_bounds(rounding, library, contract.library_factor)
    return contract_bounds(contract.structured_steps * rounding, library, contract.structured_factor)


def _terms(problem: Problem, workload: Workload) -> int:
    """Additions behind one log-sum-exp: a dot product over the head and a sum over the keys."""
    axes = problem.axis_values(workload)
    return axes["S"] + axes["D"]


def _stored(problem: Problem, workload: Workload, recipe: Recipe, output: str, layout: Layout) -> Floats | None:
    """The suite's stored errors of every block, the same for every head; None where they were not measured."""
    per_head = layout.blocks(problem.contract.block_rows) // layout.heads
    found = [library_error(problem, workload, recipe, output, block) for block in range(per_head)]
    if any(error is None for error in found):
        return None
    return np.tile(np.asarray(found, dtype=np.float64), layout.heads)
