"""The lines of the leaderboard: one for each cell of comparable trajectories; published and ours are never pooled."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ptxbench.metrics.cells import Cell, TurnRows
from ptxbench.metrics.intervals import Interval, wilson
from ptxbench.metrics.shares import (
    PUBLISHED_KS,
    Share,
    correct_at_k,
    failure_mix,
    target_correct_at_k,
    target_turn_share_at_k,
)
from ptxbench.metrics.speed import peak_at_k, typical_at_k
from ptxbench.records.rows import Rule


@dataclass(frozen=True)
class At:
    """The numbers of one cell within the first k turns."""

    k: int
    correct: Share
    correct_interval: Interval | None
    target: Share
    target_turns: Share
    peak: float | None
    typical: float | None


@dataclass(frozen=True)
class Line:
    """One cell with its numbers.

    Attributes:
        cell: What its trajectories have in common.
        published: Whether others measured it; it is then counted by their rule.
        at: The numbers for k of 1, 4, 8.
        failures: Turns by the stage at which they ended.
        speedups: Of every correct turn that has one, ascending.
    """

    cell: Cell
    published: bool
    at: tuple[At, ...]
    failures: Mapping[str, int]
    speedups: tuple[float, ...]

    @property
    def last(self) -> At:
        """Within all turns that count."""
        return self.at[-1]


def lines(found: Mapping[Cell, Sequence[TurnRows]], *, published: bool) -> Iterator[Line]:
    """One line per cell, in the cells' order."""
    rule = Rule.PUBLISHED if published else Rule.STRICT
    for cell, trajectories in found.items():
        rows = [row for turns in trajectories for row in turns]
        speedups = sorted(row.speedup for row in rows if row.correct[rule] and row.speedup is not None)
        at = tuple(_at(trajectories, k, rule) for k in PUBLISHED_KS)
        yield Line(cell, published, at, failure_mix(rows), tuple(speedups))


def _at(trajectories: Sequence[TurnRows], k: int, rule: Rule) -> At:
    correct = correct_at_k(trajectories, k, rule)
    return At(
        k=k,
        correct=correct,
        correct_interval=wilson(correct),
        target=target_correct_at_k(trajectories, k, rule),
        target_turns=target_turn_share_at_k(trajectories, k, rule),
        peak=peak_at_k(trajectories, k, rule),
        typical=typical_at_k(trajectories, k, rule),
    )


def problems(found: Sequence[Line]) -> list[str]:
    """Names of all problems, each once."""
    return sorted({line.cell.problem for line in found})
