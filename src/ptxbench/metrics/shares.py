"""Shares of trajectories and turns that succeeded within the first k turns; intervals are in `intervals`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import comb

from ptxbench.metrics.cells import TurnRows
from ptxbench.records.rows import Rule, TurnRow

PUBLISHED_KS = (1, 4, 8)


def reported_ks(turns: int) -> list[int]:
    """The k that numbers are given for: the published 1, 4 and 8 as far as trajectories go, and their last turn."""
    return sorted({k for k in PUBLISHED_KS if k <= turns} | {turns})


@dataclass(frozen=True)
class Share:
    """So many of so many; `value` is None where there was nothing to count."""

    hits: int
    total: int

    @property
    def value(self) -> float | None:
        """hits / total."""
        return self.hits / self.total if self.total else None


def correct_at_k(trajectories: Iterable[TurnRows], k: int, rule: Rule = Rule.STRICT) -> Share:
    """correct@k: trajectories with a correct turn of index < k / trajectories. Source: PTXBench, correctness rate."""
    return _trajectories(trajectories, k, lambda row: row.correct[rule])


def target_correct_at_k(trajectories: Iterable[TurnRows], k: int, rule: Rule = Rule.STRICT) -> Share:
    """target-correct@k: trajectories with a correct turn of index < k that executed the target's instructions / all.

    Source: PTXBench, rate of correctness with the architecture's instructions.
    """
    return _trajectories(trajectories, k, lambda row: row.target_correct[rule])


def fast_at_k(trajectories: Iterable[TurnRows], k: int, p: float, rule: Rule = Rule.STRICT) -> Share:
    """fast_p@k: trajectories with a correct turn of index < k whose speedup is above p / trajectories.

    Source: fast_p of KernelBench (arXiv 2502.10517), with a trajectory in the place of a task. A turn of which no time
    was measured is never fast.
    """
    return _trajectories(trajectories, k, lambda row: row.correct[rule] and row.speedup is not None and row.speedup > p)


def target_turn_share_at_k(trajectories: Iterable[TurnRows], k: int, rule: Rule = Rule.STRICT) -> Share:
    """target-turn share@k: target-correct turns of index < k / all turns of index < k. The paper's headline figure."""
    turns = [row for turns in trajectories for row in turns if row.turn < k]
    return Share(sum(row.target_correct[rule] for row in turns), len(turns))


def correct_turn_share_at_k(trajectories: Iterable[TurnRows], k: int, rule: Rule = Rule.STRICT) -> Share:
    """Correct turns of index < k / all turns of index < k."""
    turns = [row for turns in trajectories for row in turns if row.turn < k]
    return Share(sum(row.correct[rule] for row in turns), len(turns))


def pass_at_k(trajectories: Sequence[TurnRows], k: int, turns: int, rule: Rule = Rule.STRICT) -> float | None:
    """pass@k: the chance that one of k trajectories drawn without replacement is correct within `turns` turns.

    The unbiased estimate 1 - C(n - c, k) / C(n, k) for c correct of n trajectories (Chen et al., arXiv 2107.03374).

    Returns:
        None where there are fewer than k trajectories.
    """
    share = correct_at_k(trajectories, turns, rule)
    if k < 1 or share.total < k:
        return None
    return 1.0 - comb(share.total - share.hits, k) / comb(share.total, k)


def first_correct_turn(turns: TurnRows, rule: Rule = Rule.STRICT) -> int | None:
    """Index of a trajectory's first correct turn; None if there is none."""
    return next((row.turn for row in turns if row.correct[rule]), None)


def failure_mix(rows: Iterable[TurnRow]) -> dict[str, int]:
    """How many turns ended at which stage, most frequent first; a correct turn is `passed`."""
    return dict(Counter(row.failure or "passed" for row in rows).most_common())


def generalisation_share(passed: Iterable[tuple[str, bool]]) -> Share:
    """Kernels that pass on every other workload / kernels that passed on their own.

    Args:
        passed: For each evaluation of a kernel that is correct on its own workload, the kernel's id and whether it
            passed on another workload of the problem (another M, another S).
    """
    kernels: dict[str, bool] = {}
    for kernel, ok in passed:
        kernels[kernel] = kernels.get(kernel, True) and ok
    return Share(sum(kernels.values()), len(kernels))


def _trajectories(trajectories: Iterable[TurnRows], k: int, succeeded: Callable[[TurnRow], bool]) -> Share:
    outcomes = [any(succeeded(row) for row in turns if row.turn < k) for turns in trajectories]
    return Share(sum(outcomes), len(outcomes))
