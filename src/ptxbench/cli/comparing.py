"""`ptxbench compare`: prints whether one run is better than another; the test is `metrics`'."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ptxbench.errors import CommandError
from ptxbench.metrics.cells import Cell, TurnRows, cells
from ptxbench.metrics.compare import Better, Comparison, Value, compare
from ptxbench.metrics.shares import correct_at_k, target_correct_at_k
from ptxbench.metrics.speed import best_at_k
from ptxbench.records.read import StoredRun, read_run

Problems = Mapping[str, Sequence[TurnRows]]


def compare_runs(first: Path, second: Path) -> None:
    """Print correctness, target correctness and speed of two runs, each with an interval and whether it is decided.

    Raises:
        RecordError: A run is not there, or damaged.
        CommandError: They have no problem on the same device with two trajectories each.
    """
    runs = read_run(first), read_run(second)
    a, b = (_problems(run) for run in runs)
    k = min(run.run.plan.turns for run in runs)
    found = {name: compare(a, b, value) for name, value in _values(k).items()}
    decided = {name: each for name, each in found.items() if each is not None}
    if not decided:
        raise CommandError(_why_not(a, b), "Compare runs of the same problems, workloads, packs and devices.")
    some = next(iter(decided.values()))
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"A: {runs[0].run.plan.model} ({first})\nB: {runs[1].run.plan.model} ({second})", markup=False)
    console.print(
        f"{some.problems} {'problem' if some.problems == 1 else 'problems'} that both have, first {k} turns, "
        f"{some.trajectories[0]} and {some.trajectories[1]} trajectories\n"
    )
    console.print(_table(decided))
    if "best speedup" not in decided:
        console.print("\nno speedup: the emulator measures no time")


def _values(k: int) -> dict[str, Value]:
    """What is compared -> a trajectory's value."""
    return {
        "correct": lambda turns: correct_at_k([turns], k).value,
        "target-correct": lambda turns: target_correct_at_k([turns], k).value,
        "best speedup": lambda turns: best_at_k(turns, k),
    }


def _problems(run: StoredRun) -> Problems:
    found: dict[str, list[TurnRows]] = defaultdict(list)
    for cell, trajectories in cells(run.rows()).items():
        found[_name(cell)] += trajectories
    return found


def _name(cell: Cell) -> str:
    """Everything but the run and the model: what must be alike for trajectories to be compared."""
    return " ".join((cell.problem, cell.workload, cell.target, cell.device, cell.pack))


def _why_not(a: Problems, b: Problems) -> str:
    if a.keys() & b.keys():
        return "A comparison needs two trajectories of each run for a problem."
    left, right = next(iter(sorted(a)), "nothing"), next(iter(sorted(b)), "nothing")
    return f"The runs have nothing to compare: one has {left}, the other {right}."


def _table(found: Mapping[str, Comparison]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for heading in ("A - B", "95 %", "p"):
        table.add_column(heading, header_style="dim", justify="right", no_wrap=True)
    table.add_column("better", header_style="dim")
    for name, each in found.items():
        low, high = each.interval
        words = {Better.A: "A", Better.B: "B", Better.UNDECIDED: "undecided"}
        p_value = "< 0.001" if each.p_value < 0.001 else f"{each.p_value:.3f}"
        table.add_row(name, f"{each.difference:+.3f}", f"{low:+.3f} to {high:+.3f}", p_value, words[each.better])
    return table
