"""One generator writes every problem folder, and the suite's own folders are what it writes."""

import filecmp
import uuid
from pathlib import Path

import pytest

from ptxbench.errors import ProblemError
from ptxbench.suite import load_problem, make_attention, make_gemm, make_problem, write_problem
from ptxbench.suite.catalogue import FILES, PROBLEMS
from ptxbench.suite.make import PAPER_UUIDS, suite_parts


def test_the_suites_folders_are_what_the_generator_writes(tmp_path: Path) -> None:
    for parts in suite_parts():
        name = parts.definition.name
        write_problem(parts, tmp_path / name)
        same, differ, failed = filecmp.cmpfiles(tmp_path / name, PROBLEMS / name, FILES, shallow=False)
        assert (sorted(same), differ, failed) == (sorted(FILES), [], []), (
            f"{name} has drifted; run `python -m ptxbench.suite.make`"
        )
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in PROBLEMS.iterdir()}


def test_paper_workloads_keep_their_published_uuids_and_all_others_are_made_from_their_sizes() -> None:
    for parts in suite_parts():
        first, *others = parts.workloads
        assert first.uuid == PAPER_UUIDS[parts.definition.name]
        assert {uuid.UUID(workload.uuid).version for workload in others} == {5}


def test_workloads_of_different_problems_never_share_a_uuid() -> None:
    found = [w.uuid for parts in (*suite_parts(), make_gemm(64, 32)) for w in parts.workloads]
    assert len(found) == len(set(found))


def test_a_made_gemm_is_a_whole_problem(tmp_path: Path) -> None:
    folder = make_problem("gemm", {"n": 2048, "k": 4096}, tmp_path)
    problem = load_problem(folder)
    assert folder.name == problem.name == "gemm_n2048_k4096"
    assert {axis.name: axis.value for axis in problem.axes} == {"M": None, "N": 2048, "K": 4096}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"head_dim": 64}, "mha_with_lse_d64"),
        ({"head_dim": 96, "causal": True}, "mha_with_lse_d96_causal"),
        ({"head_dim": 64, "backward": True, "causal": False}, "mha_bwd_d64"),
        ({"head_dim": 256, "causal": True, "backward": True}, "mha_bwd_d256_causal"),
    ],
)
def test_a_made_attention_is_a_whole_problem(tmp_path: Path, options: dict[str, int | bool], name: str) -> None:
    problem = load_problem(make_problem("attention", options, tmp_path))
    assert problem.name == name
    assert problem.causal is bool(options.get("causal"))


@pytest.mark.parametrize(
    ("op", "options", "message"),
    [
        ("conv", {}, "no operator 'conv'.*gemm, attention"),
        ("gemm", {"n": 64}, "Give: k, n"),
        ("gemm", {"n": 64, "k": 64, "causal": True}, "Give: k, n"),
        ("gemm", {"n": 60, "k": 64}, "n is 60. Choose a multiple of 8"),
        ("gemm", {"n": 64, "k": 131072}, "k is 131072"),
        ("attention", {"head_dim": 512}, "head-dim is 512"),
        ("attention", {"head_dim": -8}, "head-dim is -8"),
        ("attention", {"causal": True}, "Give: head_dim; optional: backward, causal"),
    ],
)
def test_impossible_wishes_are_refused_with_what_is_possible(
    tmp_path: Path, op: str, options: dict[str, int | bool], message: str
) -> None:
    with pytest.raises(ProblemError, match=message):
        make_problem(op, options, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ProblemError, match="cannot be written"):
        write_problem(make_attention(64), blocked / "inside")
