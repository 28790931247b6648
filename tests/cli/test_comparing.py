"""Two runs are compared problem by problem, or it is said why they cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.report.making import make_run

from ptxbench.cli.main import run as ptxbench


def test_a_run_that_always_succeeds_is_better_than_one_that_never_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = make_run(tmp_path / "good", "wrong", "fast 0.9 own work", trajectories=6)
    bad = make_run(tmp_path / "bad", "wrong", "broken", trajectories=6)
    assert ptxbench(["compare", str(good), str(bad)]) == 0
    printed = capsys.readouterr().out
    assert "1 problem that both have, first 2 turns, 6 and 6 trajectories" in printed
    lines = {line.split("  ")[0]: line.split()[-1] for line in printed.splitlines() if " to " in line}
    assert lines == {"correct": "A", "target-correct": "A", "best speedup": "A"}


def test_equal_runs_are_undecided(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make_run(tmp_path / name, "wrong", "own work", trajectories=3, device="emulator") for name in "ab"]
    assert ptxbench(["compare", *map(str, runs)]) == 0
    printed = capsys.readouterr().out
    assert [line.split()[-1] for line in printed.splitlines() if " to " in line] == ["undecided", "undecided"]
    assert "no speedup: the emulator measures no time" in printed


def test_runs_on_different_devices_are_not_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make_run(tmp_path / name, "own work", device=name) for name in ("emulator", "cuda:0")]
    assert ptxbench(["compare", *map(str, runs)]) == 2
    said = capsys.readouterr().err
    assert "emulator" in said
    assert "cuda:0" in said


def test_one_trajectory_each_is_not_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make_run(tmp_path / name, "own work", trajectories=1) for name in "ab"]
    assert ptxbench(["compare", *map(str, runs)]) == 2
    assert "two trajectories" in capsys.readouterr().err


def test_runs_are_exported_by_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", "own work")
    assert ptxbench(["export", str(run), "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "turns.csv").is_file()
    assert "turns.csv" in capsys.readouterr().out
    assert ptxbench(["export", str(tmp_path / "none"), "-o", str(tmp_path / "out")]) == 2
