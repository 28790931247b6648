"""`ptxbench show`: prints what a run has given so far; every number is computed by `metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ptxbench.metrics.cells import Cell, TurnRows, cells
from ptxbench.metrics.costs import costs
from ptxbench.metrics.intervals import wilson
from ptxbench.metrics.shares import (
    Share,
    correct_at_k,
    failure_mix,
    reported_ks,
    target_correct_at_k,
    target_turn_share_at_k,
)
from ptxbench.metrics.speed import peak_at_k, typical_at_k
from ptxbench.records.read import StoredRun, read_run
from ptxbench.records.rows import TurnRow, rows_of
from ptxbench.schema.turn import UNFINISHED, Run

WIDTH = 110


def show_run(source: Path) -> None:
    """Print a run's rates by turn, its failures, and what it cost.

    Raises:
        RecordError: There is no run, or it is damaged.
    """
    stored = read_run(source)
    rows: list[TurnRow] = []
    ends: Counter[str] = Counter()
    for trajectory in stored.trajectories():
        rows += rows_of(stored.run, trajectory)
        ends[trajectory.stop.value if trajectory.stop is not None else "running"] += 1
    console = Console(highlight=False)
    console.width = max(console.width, WIDTH)
    for line in _head(stored, ends):
        console.print(line, markup=False, soft_wrap=True)
    by_cell = cells(rows)
    if by_cell:
        console.print(_table(by_cell, stored.run), "", _failures(rows), _costs(rows), sep="\n")
    if any(end in ends for end in (*UNFINISHED, "running")):
        how = "inspect eval-retry" if source.suffix == ".eval" else "ptxbench run --resume"
        console.print(f"[bold]next:[/] {how} {source}", soft_wrap=True)


def _head(stored: StoredRun, ends: Counter[str]) -> Iterator[str]:
    plan = stored.run.plan
    recorded = "; the answers were recorded before, the verdicts computed" if plan.recorded else ""
    yield f"{plan.model} on {plan.device}{recorded}"
    begun = ", ".join(f"{count} {end.replace('_', ' ')}" for end, count in ends.most_common())
    yield f"{sum(ends.values())} of {len(plan.keys)} trajectories: {begun or 'none begun'}\n"


def _table(by_cell: dict[Cell, tuple[TurnRows, ...]], run: Run) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("problem", "pack"):
        table.add_column(heading, header_style="dim", overflow="fold")
    headings = ("k", "correct@k", "95 %", "target-correct@k", "target turns", "peak", "typical")
    for heading in headings:
        table.add_column(heading, header_style="dim", justify="right", no_wrap=True)
    for cell, trajectories in by_cell.items():
        for first, k in enumerate(reported_ks(run.plan.turns)):
            names = (cell.problem, cell.pack) if first == 0 else ("", "")
            table.add_row(*names, str(k), *_numbers(trajectories, k))
    return table


def _numbers(trajectories: tuple[TurnRows, ...], k: int) -> Iterator[str]:
    correct = correct_at_k(trajectories, k)
    interval = wilson(correct)
    yield _share(correct)
    yield f"{interval[0]:.0%}-{interval[1]:.0%}" if interval else ""
    yield _share(target_correct_at_k(trajectories, k))
    yield _share(target_turn_share_at_k(trajectories, k))
    for speedup in (peak_at_k(trajectories, k), typical_at_k(trajectories, k)):
        yield "-" if speedup is None else f"{speedup:.3f}"


def _share(share: Share) -> str:
    return "-" if share.value is None else f"{share.hits}/{share.total} {share.value:.0%}"


def _failures(rows: list[TurnRow]) -> str:
    return "turns: " + ", ".join(f"{count} {stage.replace('_', ' ')}" for stage, count in failure_mix(rows).items())


def _costs(rows: list[TurnRow]) -> str:
    sums = costs(rows)
    parts = [f"{sums.input_tokens or 0:,} tokens in", f"{sums.output_tokens or 0:,} out"]
    if sums.reasoning_tokens is not None:
        parts[-1] += f", {sums.reasoning_tokens:,} of them reasoning"
    if sums.cost is not None:
        parts.append(f"US$ {sums.cost:,.2f}")
    return "cost: " + ", ".join(parts)
