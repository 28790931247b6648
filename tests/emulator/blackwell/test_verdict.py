"""The whole judge on a Blackwell kernel with no GPU: verdict, work share, necessity, and one call with its counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.emulator.blackwell.gemm import GEMM, PAIR
from typer.testing import CliRunner

from ptxbench.cli.app import app
from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.values import Target
from ptxbench.schema.verdict import State
from ptxbench.suite.catalogue import load_problem, pick_workload
from ptxbench.suite.make import make_problem


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A GEMM problem with a small B."""
    return make_problem("gemm", {"n": 256, "k": 512}, tmp_path_factory.mktemp("problem") / "gemm")


@pytest.mark.parametrize("path", [GEMM, PAIR], ids=lambda path: path.stem)
def test_the_gemm_passes_with_all_of_its_work_on_the_tensor_core(path: Path, folder: Path) -> None:
    problem = load_problem(folder)
    request = EvaluationRequest(device="emulator", target=Target.SM_100A)
    verdict = evaluate(Candidate.from_source(path.read_text()), problem, pick_workload(problem, "small"), request)
    assert verdict.status.state is State.PASSED, verdict.status
    assert verdict.layers.target.executed.state == "yes"
    assert verdict.stages.profile.work is not None
    padded = 2.0 if path == PAIR else 1.0  # a pair multiplies 256 rows where M is 128
    assert verdict.stages.profile.work.target_mma == padded
    assert (verdict.stages.profile.work.tma or 0) > 0.8
    needs = {each.family: each.necessity.state for each in verdict.stages.profile.needs}
    assert needs == {"TCGEN_MMA": "yes", "TMA": "yes"}
    assert not verdict.stages.sanitize.runs[0].findings


def test_one_call_is_counted_for_the_target_in_the_files_name(folder: Path) -> None:
    result = CliRunner().invoke(app, ["emulate", str(GEMM), "--task", str(folder), "--json"])
    assert result.exit_code == 0, result.output
    (launch,) = json.loads(result.output)["launches"]
    names = {each["name"] for each in launch["counts"] if each["threads"]}
    assert "tcgen05.mma.cta_group::1.kind::f16" in names
