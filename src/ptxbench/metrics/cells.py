"""Rows of turns as cells of comparable trajectories; no number is computed here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ptxbench.records.rows import TurnRow

TurnRows = Sequence[TurnRow]
"""The turns of one trajectory, in order."""


@dataclass(frozen=True, order=True)
class Cell:
    """What trajectories must have in common to be counted together: no other pooling is honest.

    In particular the device: what an emulator found and what a GPU measured, or two different GPUs, are never mixed.
    """

    run: str
    model: str
    problem: str
    workload: str
    target: str
    device: str
    pack: str


def cells(rows: Iterable[TurnRow]) -> dict[Cell, tuple[TurnRows, ...]]:
    """The trajectories of each cell, sorted by cell, by trajectory, and by turn."""
    found: dict[Cell, dict[str, list[TurnRow]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        cell = Cell(row.run, row.model, row.problem, row.workload, row.target, row.device, row.pack)
        found[cell][row.trajectory].append(row)
    return {
        cell: tuple(tuple(sorted(turns, key=lambda row: row.turn)) for _, turns in sorted(found[cell].items()))
        for cell in sorted(found)
    }
