"""`ptxbench run` and `show` refuse what means nothing by name, with exit code 2, and print what a run gave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ptxbench.cli.main import run

TASK = ("--tasks", "gemm_n7168_k5120", "--pack", "none", "--device", "emulator")


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    path = tmp_path / "answers.json"
    path.write_text(json.dumps(["I think about it.", "```cuda\nint x;\n"]))
    return path


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "No model was named"),
        (["--model", "smollm2/huge", *TASK], "no model 'smollm2/huge'"),
        (["--model", "replay/nowhere", *TASK], "nowhere cannot be replayed"),
        (["--model", "p/m", "--tasks", "gem"], "gem"),
        (["--model", "p/m", "--target", "sm_80"], "'sm_80' is no target"),
        (["--model", "p/m", "--context", "some"], "'some' is no context policy"),
        (["--model", "p/m", "--pack", "petterns", "--tasks", "gemm_n7168_k5120"], "petterns"),
        (["--model", "p/m", "--price", "5"], "--price is '5'"),
        (["--model", "p/m", "--baseline-ms", "gemm=fast"], "--baseline-ms is 'gemm=fast'"),
        (["--model", "p/m", "--device", "none"], "A run needs a device"),
        (["--model", "p/m", "--device", "cuda:63"], "no device cuda:63"),
        (["--model", "p/m", "--preset", "all"], "no preset 'all'"),
        (["--model", "p/m", "--parallel", "0"], "--parallel is 0"),
        (["--resume", "nowhere"], "There is no run at nowhere"),
        (["--resume", "one", "-o", "two"], "Give one of them"),
    ],
)
def test_a_wrong_option_is_named_before_anything_is_paid(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["run", *arguments]) == 2
    assert says in capsys.readouterr().err


def test_a_run_of_recorded_answers_is_shown_and_ends(
    answers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    order = ["run", "--model", f"replay/{answers}", *TASK, "-o", str(tmp_path / "run")]
    assert run(order) == 0
    printed = capsys.readouterr().out
    assert "1 of 1 trajectories: 1 turn limit" in printed
    assert "turns: 2 no kernel" in printed
    assert run(["show", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out == printed
    assert run(order) == 0


def test_recorded_answers_that_do_not_suffice_are_a_fault_that_says_how_to_go_on(
    answers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["run", "--model", f"replay/{answers}", *TASK, "--turns", "3", "-o", str(tmp_path / "run")]) == 2
    said = capsys.readouterr()
    assert "has 2 answers, and turn 2 needs another" in said.err
    assert f"ptxbench run --resume {tmp_path / 'run'}" in said.err
    assert "1 provider error" in said.out


def test_a_dry_run_prints_plan_tokens_cost_and_assumptions_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    order = ["run", "--model", "p/m", "--preset", "paper", "--device", "cuda:0", "--price", "5/25", "--dry-run"]
    assert run(order) == 0
    printed = capsys.readouterr().out
    for part in ("60 trajectories x 8 turns", "speedup of 1.2", "M tokens in", "US$", "assumed:", "attention-overlap"):
        assert part in printed
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_run_cannot_be_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", str(tmp_path)]) == 2
    assert "is no run" in capsys.readouterr().err
