"""A run that was tampered with is caught, and one that was not is let through."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.report.making import make_recorded_run

from ptxbench.cli.main import run as ptxbench
from ptxbench.records.read import read_run
from ptxbench.report.audit import audit

NAMES = ("wrong-compile_error", "wrong-skipped_k", "simple-gemm_mma", "reference-gemm_n7168_k5120")


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_recorded_run(tmp_path_factory.mktemp("honest") / "run", *NAMES, trajectories=2)


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(honest, tmp_path / "run"))


def test_an_honest_run_with_verdicts_of_an_h200_has_no_difference(honest: Path) -> None:
    found = audit(read_run(honest))
    assert (found.trajectories, found.turns, found.verdicts) == (2, 8, 8)
    assert found.differences == ()


Edit = Callable[[dict[str, Any]], object]


def edited(run: Path, edit: Edit) -> None:
    path = sorted((run / "trajectories").iterdir())[0]
    document = json.loads(path.read_text())
    edit(document)
    path.write_text(json.dumps(document))


def turn(document: dict[str, Any], index: int) -> dict[str, Any]:
    return dict(document["turns"][index])


def faster(document: dict[str, Any]) -> None:
    time = document["turns"][3]["verdict"]["stages"]["time"]
    time["baselines"][0]["speedup"] *= 1.1


def a_sample(document: dict[str, Any]) -> None:
    document["turns"][3]["verdict"]["stages"]["time"]["candidate"]["milliseconds"][0] /= 2


def a_median(document: dict[str, Any]) -> None:
    document["turns"][3]["verdict"]["stages"]["time"]["candidate"]["median"] /= 2


def a_count(document: dict[str, Any]) -> None:
    for kernel in document["turns"][2]["verdict"]["stages"]["profile"]["kernels"]:
        kernel["families"] = [{"family": "GMMA", "warp_instructions": 9, "thread_instructions_true": 9}]


def a_work_share(document: dict[str, Any]) -> None:
    document["turns"][2]["verdict"]["stages"]["profile"]["work"]["target_mma"] = 1.0


def a_status(document: dict[str, Any]) -> None:
    check = document["turns"][1]["verdict"]["stages"]["check"]
    check |= {"outcome": "passed", "reason": None, "published": {"state": "yes"}, "contract": {"state": "yes"}}


def a_kernel(document: dict[str, Any]) -> None:
    source = document["turns"][1]["candidate"]["sources"][0]
    source["content"] += "// better\n"


def an_answer(document: dict[str, Any]) -> None:
    document["turns"][1]["answer"]["text"] = document["turns"][3]["answer"]["text"]


def a_cost(document: dict[str, Any]) -> None:
    document["turns"][0]["answer"]["usage"]["output_tokens"] = 1


def a_missing_turn(document: dict[str, Any]) -> None:
    del document["turns"][0]
    for index, each in enumerate(document["turns"]):
        each["index"] = index


def the_last_turn(document: dict[str, Any]) -> None:
    document["turns"].pop()


def a_feedback(document: dict[str, Any]) -> None:
    document["turns"][0]["feedback"] = "Well done."


def the_prompt(document: dict[str, Any]) -> None:
    document["prompt"][0]["content"] += "\nHere is the whole answer."


def an_end(document: dict[str, Any]) -> None:
    document["stop"] = "target_reached"


def another_problem(document: dict[str, Any]) -> None:
    document["problem_hash"] = "0" * 64
    for each in document["turns"]:
        each["verdict"]["problem_hash"] = "0" * 64


@pytest.mark.parametrize(
    "edit",
    [
        faster,
        a_sample,
        a_median,
        a_count,
        a_work_share,
        a_status,
        a_kernel,
        an_answer,
        a_cost,
        a_missing_turn,
        the_last_turn,
        a_feedback,
        the_prompt,
        an_end,
        another_problem,
    ],
)
def test_a_trajectory_that_was_tampered_with_is_caught_and_the_place_is_named(run: Path, edit: Edit) -> None:
    edited(run, edit)
    found = audit(read_run(run))
    assert found.differences
    assert all("-000" in each.where for each in found.differences), "the other trajectory is as it was"


def test_a_trajectory_that_was_taken_away_is_missed(run: Path) -> None:
    sorted((run / "trajectories").iterdir())[1].unlink()
    (found,) = audit(read_run(run)).differences
    assert (found.what, found.stored) == ("trajectory", "missing")


def test_a_line_that_was_cut_out_of_the_journal_is_missed(run: Path) -> None:
    path = sorted((run / "journal").iterdir())[0]
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    assert [each.what for each in audit(read_run(run)).differences] == ["turns"]


def test_another_model_in_the_plan_is_another_run(run: Path) -> None:
    path = run / "run.json"
    path.write_text(path.read_text().replace('"scripted"', '"a better one"'))
    assert {each.what for each in audit(read_run(run)).differences} == {"id", "model"}


def test_the_command_prints_each_difference_and_ends_with_1(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ptxbench(["verify", str(run)]) == 0
    assert "no difference" in capsys.readouterr().out
    edited(run, faster)
    assert ptxbench(["verify", str(run)]) == 1
    printed = capsys.readouterr().out
    assert "turn 3: speedup over" in printed
    assert "it should be" in printed
