"""Writes a run in the formats that people ask for; one file per table, or one per trajectory."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from ptxbench.errors import CommandError
from ptxbench.metrics.cells import cells
from ptxbench.metrics.shares import reported_ks
from ptxbench.records.read import StoredRun
from ptxbench.report.conversations import Document, atif, mini_swe_agent
from ptxbench.report.tables import AGGREGATES, TURNS, WRITERS, aggregate_values, turn_values
from ptxbench.report.traces import write_traces
from ptxbench.schema.trace_files import write_text
from ptxbench.schema.turn import Trajectory

FORMATS = (*WRITERS, "traces", "mini-swe-agent", "atif")


def export(runs: Sequence[StoredRun], form: str, folder: Path) -> tuple[Path, ...]:
    """Write runs below `folder` in one format.

    Args:
        runs: The runs; their rows go into the same tables.
        form: One of `FORMATS`.
        folder: Made where it is missing; files of the same name are replaced.

    Returns:
        The files, or for `traces` the folder.

    Raises:
        CommandError: There is no such format, or what it needs is not installed.
        RecordError: A run is damaged.
    """
    if form not in FORMATS:
        raise CommandError(f"{form!r} is no format.", f"Use one of {', '.join(FORMATS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    if form == "traces":
        write_traces(runs, folder)
        return (folder,)
    if form in WRITERS:
        return _tables(runs, form, folder)
    return tuple(
        _one(_render(form, run.run.id), trajectory, run.run.id, folder)
        for run in runs
        for trajectory in run.trajectories()
    )


def _tables(runs: Sequence[StoredRun], form: str, folder: Path) -> tuple[Path, ...]:
    rows = [row for run in runs for row in run.rows()]
    ks = reported_ks(max((run.run.plan.turns for run in runs), default=0))
    turns, aggregates = folder / f"turns.{form}", folder / f"aggregates.{form}"
    WRITERS[form](TURNS, map(turn_values, rows), turns)
    WRITERS[form](AGGREGATES, aggregate_values(cells(rows), ks), aggregates)
    return turns, aggregates


def _render(form: str, run: str) -> Callable[[Trajectory], Document]:
    return mini_swe_agent if form == "mini-swe-agent" else lambda trajectory: atif(trajectory, run)


def _one(render: Callable[[Trajectory], Document], trajectory: Trajectory, run: str, folder: Path) -> Path:
    path = folder / run[:12] / f"{trajectory.key.name}.json"
    write_text(json.dumps(render(trajectory), indent=1) + "\n", path)
    return path
