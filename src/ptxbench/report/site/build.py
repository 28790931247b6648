"""Writes a site: a page per run, trajectory and problem, and the leaderboard; templates decide how they look."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from ptxbench.metrics.cells import cells
from ptxbench.records.published import published_rows
from ptxbench.records.read import StoredRun
from ptxbench.records.rows import TurnRow, rows_of
from ptxbench.report.site.leaderboard import Line, lines, problems
from ptxbench.report.site.turns import TrajectoryView, trajectory_view
from ptxbench.schema.trace_files import write_text
from ptxbench.schema.turn import Trajectory

ASSETS = ("style.css", "site.js")


def build_site(runs: Sequence[StoredRun], folder: Path) -> tuple[Path, ...]:
    """Write the site below `folder`; files of the same name are replaced.

    Returns:
        The pages, the leaderboard first.

    Raises:
        RecordError: A run is damaged.
    """
    environment = Environment(
        loader=PackageLoader("ptxbench.report.site"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    for name in ASSETS:
        write_text(files("ptxbench.report.site").joinpath(name).read_text(encoding="utf-8"), folder / name)
    rows: list[TurnRow] = []
    pages: list[Path] = []
    for run in runs:
        views: list[TrajectoryView] = []
        of_run: list[TurnRow] = []
        for trajectory in run.trajectories():
            of_run += rows_of(run.run, trajectory)
            view = trajectory_view(trajectory)
            views.append(view)
            pages.append(_trajectory(environment, run, trajectory, view, folder))
        found = list(lines(cells(of_run), published=False))
        pages.append(_run(environment, run, views, found, folder))
        rows += of_run
    ours = lines(cells(rows), published=False)
    published = lines(cells(published_rows()), published=True)
    everything = [*ours, *published]
    pages += [_problem(environment, name, everything, folder) for name in problems(everything)]
    context = {"lines": everything, "runs": [_link(run) for run in runs], "problems": problems(everything)}
    first = _write(environment, "leaderboard.html", folder / "index.html", "", context)
    return (first, *pages)


def _write(environment: Environment, template: str, path: Path, root: str, context: dict[str, object]) -> Path:
    write_text(environment.get_template(template).render(root=root, **context), path)
    return path


def _link(run: StoredRun) -> dict[str, object]:
    return {"id": run.run.id[:12], "model": run.run.plan.model, "recorded": run.run.plan.recorded}


def _trajectory(
    environment: Environment, run: StoredRun, trajectory: Trajectory, view: TrajectoryView, folder: Path
) -> Path:
    path = folder / "runs" / run.run.id[:12] / f"{trajectory.key.name}.html"
    context: dict[str, object] = {"run": _link(run), "view": view, "trajectory": trajectory}
    return _write(environment, "trajectory.html", path, "../../", context)


def _run(
    environment: Environment, run: StoredRun, views: Sequence[TrajectoryView], found: Sequence[Line], folder: Path
) -> Path:
    context: dict[str, object] = {
        "run": _link(run),
        "plan": run.run.plan,
        "views": views,
        "lines": found,
    }
    return _write(environment, "run.html", folder / "runs" / run.run.id[:12] / "index.html", "../../", context)


def _problem(environment: Environment, name: str, everything: Sequence[Line], folder: Path) -> Path:
    context: dict[str, object] = {"name": name, "lines": [line for line in everything if line.cell.problem == name]}
    return _write(environment, "problem.html", folder / "problems" / f"{name}.html", "../", context)
