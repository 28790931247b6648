"""Intervals: Wilson's for shares, a bootstrap that draws whole trajectories for everything else; no metric is here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from statistics import NormalDist

import numpy as np

from ptxbench.metrics.cells import TurnRows
from ptxbench.metrics.shares import Share

CONFIDENCE = 0.95
DRAWS = 2000
SEED = 20260819
"""The bootstrap's draws are the same every time, so that a report can be made again to the digit."""

Interval = tuple[float, float]


def wilson(share: Share, confidence: float = CONFIDENCE) -> Interval | None:
    """Wilson's score interval of a share (Wilson 1927); None where there was nothing to count.

    (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n) with p = hits/n and z the normal quantile.
    """
    n = share.total
    if not n:
        return None
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = share.hits / n
    middle = p + z * z / (2 * n)
    reach = z * sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def clustered_bootstrap(
    trajectories: Sequence[TurnRows],
    statistic: Callable[[Sequence[TurnRows]], float | None],
    confidence: float = CONFIDENCE,
    draws: int = DRAWS,
) -> Interval | None:
    """Percentile interval of a statistic over trajectories drawn with replacement (Efron 1979; Field and Welsh 2007).

    Turns of a trajectory build on each other, so whole trajectories are drawn, never turns.

    Returns:
        None where there are fewer than two trajectories or the statistic is None for a draw.
    """
    count = len(trajectories)
    if count < 2:
        return None
    picks = np.random.default_rng(SEED).integers(0, count, size=(draws, count))
    values = []
    for pick in picks:
        value = statistic([trajectories[index] for index in pick])
        if value is None:
            return None
        values.append(value)
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
