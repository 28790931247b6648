"""Speedups over trajectories and work shares; how a speedup is measured is `evaluate`'s work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ptxbench.metrics.cells import TurnRows
from ptxbench.records.rows import Rule, TurnRow

EMULATOR = "emulator"


def best_at_k(turns: TurnRows, k: int, rule: Rule = Rule.STRICT) -> float | None:
    """The largest speedup of one trajectory's correct turns of index < k: 0 if none is correct.

    Returns:
        None on the emulator, which measures no time.
    """
    if any(row.device == EMULATOR for row in turns):
        return None
    return max((row.speedup or 0.0 for row in turns if row.turn < k and row.correct[rule]), default=0.0)


def peak_at_k(trajectories: Iterable[TurnRows], k: int, rule: Rule = Rule.STRICT) -> float | None:
    """peak@k: the largest speedup of all correct turns of index < k over all trajectories; 0 if none is correct.

    A maximum over every attempt, so it grows with the number of trajectories. Source: PTXBench, best speedup.
    """
    return max(_bests(trajectories, k, rule), default=None)


def typical_at_k(trajectories: Iterable[TurnRows], k: int, rule: Rule = Rule.STRICT) -> float | None:
    """typical@k: the median over trajectories of the best correct speedup within k turns, 0 where none is correct."""
    bests = _bests(trajectories, k, rule)
    return median(bests) if bests else None


def _bests(trajectories: Iterable[TurnRows], k: int, rule: Rule) -> Sequence[float]:
    found = (best_at_k(turns, k, rule) for turns in trajectories)
    return [best for best in found if best is not None]


@dataclass(frozen=True)
class WorkShares:
    """Work shares of the correct turns in which they were counted."""

    turns: int
    median: float
    at_least_095: int
    """Turns in which at least 95 % of the required arithmetic was done by the target's instructions."""


def work_shares(rows: Iterable[TurnRow], rule: Rule = Rule.STRICT) -> WorkShares | None:
    """Statistics of the work shares of correct turns; None where none was counted."""
    shares = [row.work_share for row in rows if row.correct[rule] and row.work_share is not None]
    if not shares:
        return None
    return WorkShares(len(shares), median(shares), sum(share >= 0.95 for share in shares))
