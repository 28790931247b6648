"""Is model A better than model B? A test within problems, which may end undecided; drawing it is not done here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

import numpy as np

from ptxbench.metrics.cells import TurnRows
from ptxbench.metrics.intervals import CONFIDENCE, SEED, Interval

PERMUTATIONS = 10_000

Value = Callable[[TurnRows], float | None]
"""One trajectory's value, for example 1 if it has a correct turn, or its best speedup; None where it has none."""


class Better(StrEnum):
    """What a comparison ends with."""

    A = "a"
    B = "b"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Comparison:
    """Two sets of trajectories over the problems that both have.

    Attributes:
        difference: Mean over problems of (mean of A - mean of B).
        interval: 95 % interval of `difference`: bootstrap over trajectories within each problem.
        p_value: Two-sided, of a permutation test within each problem.
        better: Decided only where the test and the interval agree.
        problems: How many problems both have.
        trajectories: How many trajectories took part, of A and of B.
    """

    difference: float
    interval: Interval
    p_value: float
    better: Better
    problems: int
    trajectories: tuple[int, int]


def compare(
    a: Mapping[str, Sequence[TurnRows]], b: Mapping[str, Sequence[TurnRows]], value: Value, draws: int = PERMUTATIONS
) -> Comparison | None:
    """Compare two models problem by problem: trajectories of different problems are never exchanged.

    The permutation test deals the trajectories of each problem anew to A and B (stratified two-sample permutation test;
    Pesarin and Salmaso 2010); p = (1 + draws at least as far from 0) / (1 + draws).

    Args:
        a: Trajectories of A by problem (name, workload, target, device: whatever makes them comparable).
        b: The same of B.
        value: What is compared.
        draws: Number of permutations, and of bootstrap draws.

    Returns:
        None where no problem has at least two trajectories of each with a value.
    """
    pairs = [pair for pair in (_pair(a[name], b[name], value) for name in sorted(a.keys() & b.keys())) if pair]
    if not pairs:
        return None
    difference = fmean(float(left.mean() - right.mean()) for left, right in pairs)
    random = np.random.default_rng(SEED)
    shuffled = np.mean([_permuted(left, right, draws, random) for left, right in pairs], axis=0)
    # Means that are equal but for rounding count as equal.
    beyond = int(np.sum(np.abs(shuffled) >= abs(difference) - 1e-12))
    drawn = np.mean([_drawn(left, right, draws, random) for left, right in pairs], axis=0)
    low, high = (float(edge) for edge in np.quantile(drawn, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]))
    p_value = (1 + beyond) / (1 + draws)
    return Comparison(
        difference=difference,
        interval=(low, high),
        p_value=p_value,
        better=_decide(low, high, p_value),
        problems=len(pairs),
        trajectories=(sum(len(left) for left, _ in pairs), sum(len(right) for _, right in pairs)),
    )


def _decide(low: float, high: float, p_value: float) -> Better:
    if p_value > 1 - CONFIDENCE or low <= 0 <= high:
        return Better.UNDECIDED
    return Better.A if low > 0 else Better.B


_Values = np.ndarray[tuple[int], np.dtype[np.float64]]


def _pair(a: Sequence[TurnRows], b: Sequence[TurnRows], value: Value) -> tuple[_Values, _Values] | None:
    left, right = _values(a, value), _values(b, value)
    return (left, right) if len(left) > 1 and len(right) > 1 else None


def _values(trajectories: Sequence[TurnRows], value: Value) -> _Values:
    found = (value(turns) for turns in trajectories)
    return np.array([each for each in found if each is not None], dtype=np.float64)


def _permuted(left: _Values, right: _Values, draws: int, random: np.random.Generator) -> _Values:
    pooled = np.tile(np.concatenate([left, right]), (draws, 1))
    dealt = random.permuted(pooled, axis=1)
    result: _Values = dealt[:, : len(left)].mean(axis=1) - dealt[:, len(left) :].mean(axis=1)
    return result


def _drawn(left: _Values, right: _Values, draws: int, random: np.random.Generator) -> _Values:
    means = [random.choice(side, size=(draws, len(side))).mean(axis=1) for side in (left, right)]
    result: _Values = means[0] - means[1]
    return result
