"""The suite's own problems say what the design says, and a bad folder is refused with its remedy."""

import json
from pathlib import Path

import pytest

from ptxbench.errors import ProblemError
from ptxbench.sass.families import table as family_table
from ptxbench.schema import Role, Target
from ptxbench.suite import (
    compulsory_bytes,
    load_problem,
    make_gemm,
    pick_workload,
    problem_hash,
    problem_names,
    required_flops,
    write_problem,
)

NAMES = (
    "gemm_n7168_k5120",
    "mha_bwd_d128",
    "mha_bwd_d128_causal",
    "mha_with_lse_d128",
    "mha_with_lse_d128_causal",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_problem(make_gemm(64, 32), tmp_path / "gemm")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_suite_has_the_five_published_problems() -> None:
    assert problem_names() == NAMES


@pytest.mark.parametrize(
    ("name", "flops", "size"),
    [
        ("gemm_n7168_k5120", 2 * 8192 * 7168 * 5120, 2 * (8192 * 5120 + 7168 * 5120 + 8192 * 7168)),
        ("mha_with_lse_d128", 4 * 4 * 48 * 4096**2 * 128, 4 * 48 * 4096 * (4 * 128 * 2 + 4)),
        ("mha_with_lse_d128_causal", 2 * 4 * 48 * 4096**2 * 128, 4 * 48 * 4096 * (4 * 128 * 2 + 4)),
        ("mha_bwd_d128", 10 * 4 * 48 * 4096**2 * 128, 4 * 48 * 4096 * (8 * 128 * 2 + 4)),
        ("mha_bwd_d128_causal", 5 * 4 * 48 * 4096**2 * 128, 4 * 48 * 4096 * (8 * 128 * 2 + 4)),
    ],
)
def test_required_work_of_the_paper_workloads_is_the_published_one(name: str, flops: int, size: int) -> None:
    problem = load_problem(name)
    workload = pick_workload(problem)
    assert required_flops(problem, workload) == flops
    assert compulsory_bytes(problem, workload) == size


@pytest.mark.parametrize("name", NAMES)
def test_compulsory_bytes_are_those_of_all_arguments_in_every_workload(name: str) -> None:
    problem = load_problem(name)
    for workload in problem.workloads:
        held = 0
        for tensor in problem.arguments:
            elements = 1
            for size in problem.shape(tensor, workload):
                elements *= size
            held += elements * tensor.dtype.itemsize
        assert compulsory_bytes(problem, workload) == held


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("gemm_n7168_k5120", ["A", "B", "C"]),
        ("mha_with_lse_d128_causal", ["Q", "K", "V", "O", "LSE"]),
        ("mha_bwd_d128", ["Q", "K", "V", "O", "dO", "LSE", "dQ", "dK", "dV"]),
    ],
)
def test_arguments_come_in_the_published_order(name: str, arguments: list[str]) -> None:
    assert [tensor.name for tensor in load_problem(name).arguments] == arguments


@pytest.mark.parametrize("name", NAMES)
def test_every_problem_has_workloads_of_every_role_and_ragged_ones(name: str) -> None:
    problem = load_problem(name)
    for role in Role:
        assert pick_workload(problem, role.value).role is role
    for role in (Role.NEIGHBOUR, Role.SMALL):
        lengths = [w.axes.get("M") or w.axes["S"] for w in problem.workloads if w.role is role]
        assert any(length % 128 for length in lengths)


def test_families_of_the_published_tag_and_of_the_work_share_differ() -> None:
    problem = load_problem("gemm_n7168_k5120")
    assert problem.families[Target.SM_90A] == ("GMMA", "TMA")
    assert problem.families[Target.SM_100A] == ("TCGEN_MMA", "TMEM", "TCGEN_CONTROL")
    assert problem.work_families[Target.SM_90A].mma == ("GMMA",)
    assert problem.work_families[Target.SM_100A].mma == ("TCGEN_MMA",)
    assert {families.tma for families in problem.work_families.values()} == {("TMA",)}


def test_attention_forward_has_two_baselines_and_the_published_versions_stand_with_them() -> None:
    found = {b.name: b.published_version for b in load_problem("mha_with_lse_d128").baselines}
    assert found == {"cudnn": "9.20.0", "flashinfer": "0.6.14"}
    assert [b.published_version for b in load_problem("gemm_n7168_k5120").baselines] == ["13.1.0"]


def test_a_problem_is_read_once() -> None:
    assert all(load_problem(name) is load_problem(name) for name in NAMES)


def test_an_unknown_name_is_answered_with_the_closest_ones() -> None:
    with pytest.raises(ProblemError, match="Did you mean gemm_n7168_k5120"):
        load_problem("gemm_n7168")
    with pytest.raises(ProblemError, match="The suite has: gemm_n7168_k5120, mha_bwd_d128"):
        load_problem("xyz")


def test_an_absent_folder_is_named() -> None:
    with pytest.raises(ProblemError, match="no problem folder nowhere/at/all"):
        load_problem("nowhere/at/all")


def test_a_workload_is_found_by_uuid_by_prefix_and_by_role() -> None:
    problem = load_problem("gemm_n7168_k5120")
    assert pick_workload(problem).axes == {"M": 8192}
    assert pick_workload(problem, "94920358-01a8-4c5b-9209-3103fd490e94").axes == {"M": 8192}
    assert pick_workload(problem, "94920358").axes == {"M": 8192}
    assert pick_workload(problem, "neighbour").axes == {"M": 4096}
    assert pick_workload(problem, "small").axes == {"M": 128}


@pytest.mark.parametrize("which", ["big", "9492", "00000000-0000-0000-0000-000000000000"])
def test_an_unknown_workload_is_answered_with_those_there_are(which: str) -> None:
    with pytest.raises(ProblemError, match=r"94920358-01a8.*\(paper, M=8192\)"):
        pick_workload(load_problem("gemm_n7168_k5120"), which)


def test_the_hash_of_a_problem_follows_its_content(folder: Path) -> None:
    before = problem_hash(load_problem(folder))
    assert before == problem_hash(load_problem(folder))
    edit(folder / "problem.toml", "block_rows = 128", "block_rows = 64")
    assert problem_hash(load_problem(folder)) != before


def test_a_folder_may_be_given_as_text_or_as_a_path(folder: Path) -> None:
    assert load_problem(str(folder)) == load_problem(folder)


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("definition.json", '"bfloat16"', '"float17"', "unknown dtype 'float17'"),
        ("definition.json", '"bfloat16"', '"float32"', r"its inputs are not those of gemm.*A \[M,K\] bfloat16"),
        ("definition.json", '"name": "gemm', '"name": "../gemm', "cannot serve as a file name"),
        ("definition.json", "def run", "def walk", "no top-level function 'run'"),
        ("definition.json", '"value": 64', '"value": 0', "axis N must be of type 'const' with a value"),
        ("definition.json", '"axes"', "axes", r"definition.json:\d+: not JSON"),
        ("problem.toml", 'op = "gemm"', 'op = "conv"', "op: Input should be 'gemm'"),
        ("problem.toml", "2 * M * N * K", "2 * M * N * X", "flops names no axis: X"),
        ("problem.toml", "2 * M * N * K", "__import__('os')", "flops: .* uses Call"),
        ("problem.toml", "[contract]", "[contract", "problem.toml: "),
        ("problem.toml", "cublas = ", "mkl = ", "baselines.mkl"),
        ("problem.toml", "paper = [", 'paper = ["aaaa", ', "lacks aaaa, which problem.toml lists"),
        ("workloads.jsonl", '"M": 8192', '"M": 0', "has axes {'M': 0}"),
        ("workloads.jsonl", '"M": 8192', '"X": 1', "Give each of M a size"),
        ("workloads.jsonl", '"axes": {"M": 4096}, ', "", r"workloads.jsonl:2: .*axes: Field required"),
        ("workloads.jsonl", '{"uuid": "', '{"uuid": "x', "gives workload x.* no role"),
    ],
)
def test_a_faulty_folder_is_refused_naming_file_and_fault(
    folder: Path, file: str, old: str, new: str, message: str
) -> None:
    edit(folder / file, old, new)
    with pytest.raises(ProblemError, match=message) as caught:
        load_problem(folder)
    assert file in str(caught.value)


def test_a_folder_without_its_files_is_refused(folder: Path) -> None:
    (folder / "workloads.jsonl").unlink()
    with pytest.raises(ProblemError, match=r"lacks workloads\.jsonl"):
        load_problem(folder)


def test_two_workloads_with_one_uuid_are_refused(folder: Path) -> None:
    path = folder / "workloads.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[0] + "\n")
    with pytest.raises(ProblemError, match="a second workload with uuid"):
        load_problem(folder)


def test_workloads_may_be_given_as_trace_lines(folder: Path) -> None:
    path = folder / "workloads.jsonl"
    expected = load_problem(folder)
    lines = [
        json.dumps({"definition": "gemm_n64_k32", "workload": json.loads(line), "solution": None, "evaluation": None})
        for line in path.read_text().splitlines()
    ]
    path.write_text("\n".join(lines))
    assert load_problem(folder) == expected


@pytest.mark.parametrize("name", NAMES)
def test_every_family_that_a_problem_names_is_one_that_is_counted(name: str) -> None:
    problem = load_problem(name)
    for target in Target:
        work = problem.work_families[target]
        named = {*problem.families[target], *work.mma, *work.tma}
        assert named <= set(family_table(target).names)
