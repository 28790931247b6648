"""Files of FlashInfer-Trace are found in both layouts, and unreadable ones name file, line and remedy."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from ptxbench.errors import CandidateError, ProblemError, RecordError
from ptxbench.schema import trace

DATA = Path(__file__).parents[1] / "data" / "trace"


def definition(**changes: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / "flashinfer_bench.definition.json").read_text())
    return {key: value for key, value in {**document, **changes}.items() if value is not None}


def solution(**changes: object) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((DATA / "flashinfer_bench.solution.json").read_text())
    return {**document, **changes}


def write(path: Path, document: object) -> Path:
    path.write_text(json.dumps(document, indent=1))
    return path


def test_axes_given_by_expressions_are_computed_in_whatever_order_they_come() -> None:
    found = trace.read_definition(DATA / "sol_execbench.definition.json")
    assert found.variable_axes == ("b",)
    assert found.axis_values({"b": 5}) == {"b": 5, "c": 4, "full": 15, "half": 8}


def test_an_axis_without_value_and_expressions_in_a_circle_have_no_sizes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="axis 'h' has no value"):
        trace.read_definition(DATA / "flashinfer_python.definition.json").axis_values({"n": 1})
    axes = {"p": {"type": "expr", "expression": "q"}, "q": {"type": "expr", "expression": "p"}}
    circle = trace.read_definition(write(tmp_path / "d.json", definition(axes=axes, inputs={}, outputs={})))
    with pytest.raises(ValueError, match="expressions of p, q refer to each other"):
        circle.axis_values({})


def test_a_solution_that_does_not_say_how_it_is_called_needs_a_policy() -> None:
    path = DATA / "flashinfer_python.solution.json"
    with pytest.raises(CandidateError, match=r"destination_passing_style is missing\. Say whether"):
        trace.read_solution(path)
    for style in (True, False):
        assert trace.read_solution(path, missing_style=style).spec.destination_passing_style is style


def test_a_policy_never_overrides_what_a_solution_says() -> None:
    found = trace.read_solution(DATA / "flashinfer_bench.solution.json", missing_style=False)
    assert found.spec.destination_passing_style is True


def test_traces_are_found_in_both_layouts(tmp_path: Path) -> None:
    evaluated = trace.read_traces(DATA / "flashinfer_bench.traces.jsonl")
    trace.write_lines(evaluated[:1], trace.traces_path(tmp_path, "someone", "reduce", "rowsum_h64"))
    old = tmp_path / "traces" / "reduce" / "rowsum_h64.jsonl"
    trace.write_lines(evaluated[1:], old)
    (old.parent / "other.jsonl").write_text("not read")
    found = trace.find_traces(tmp_path, "rowsum_h64")
    assert [item.solution for item in found] == ["rowsum_wrong", "rowsum_hang", "rowsum_pending", "rowsum_naive"]


def test_workload_lines_among_traces_are_no_evaluated_traces(tmp_path: Path) -> None:
    path = trace.traces_path(tmp_path, "someone", "reduce", "rowsum_h64")
    path.parent.mkdir(parents=True)
    shutil.copy(DATA / "flashinfer_bench.workloads.jsonl", path)
    assert all(item.is_workload for item in trace.read_traces(path))
    assert trace.find_traces(tmp_path, "rowsum_h64") == ()


def test_blank_lines_are_skipped_and_a_bad_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "w.jsonl"
    good = json.dumps({"uuid": "a", "axes": {}, "inputs": {}})
    path.write_text(f"\n{good}\n\n")
    assert len(trace.read_workloads(path)) == 1
    path.write_text(f"\n{good}\n{{'uuid'}}\n")
    with pytest.raises(ProblemError, match=rf"{re.escape(str(path))}:3: not JSON, column 2"):
        trace.read_workloads(path)
    bad = json.dumps({"uuid": "b", "axes": {"M": -1}, "inputs": {}})
    path.write_text(f"{good}\n{bad}\n")
    with pytest.raises(ProblemError, match=r"w\.jsonl:2: not a FlashInfer-Trace workload: axes\.M: .*greater"):
        trace.read_workloads(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../../x"}, "name: '../../x' cannot serve as a file name"),
        ({"op_type": "a/b"}, "op_type: 'a/b' cannot serve"),
        ({"name": ".."}, "cannot serve"),
        ({"name": ""}, "cannot serve"),
        ({"axes": {"rows": {"type": "var"}}}, "tensor 'x' has unknown axes: width"),
        ({"axes": {"rows": {"type": "const", "value": -1}}}, "axes.rows.value"),
        ({"axes": {"rows": {"type": "const", "value": "7"}}}, "axes.rows.value: Input should be a valid integer"),
        ({"axes": {"rows": {"type": "expr"}}}, "needs an 'expression'"),
        ({"axes": {"rows": {"type": "expr", "expression": "f(1)"}}}, "uses Call"),
        ({"axes": {"rows": {"type": "expr", "expression": "cols"}}, "inputs": {}}, "names no axis: cols"),
        ({"inputs": {"y": {"shape": [], "dtype": "bool"}}}, "y: both input and output"),
        ({"inputs": {"x": {"shape": [], "dtype": "int4"}}}, "unknown dtype 'int4'"),
        ({"reference": "def walk(): ..."}, "no top-level function 'run'"),
        ({"reference": "async def run(): ..."}, "no top-level function 'run'"),
        ({"reference": "def run(:"}, "the reference is not Python"),
        ({"custom_inputs_entrypoint": "draw"}, "no top-level function 'draw'"),
        ({"outputs": None}, "outputs: Field required"),
        ({"tags": "a"}, "tags: Input should be a valid tuple"),
    ],
)
def test_a_faulty_definition_is_refused_with_the_field_at_fault(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ProblemError, match=rf"d\.json: not a FlashInfer-Trace definition: .*{re.escape(message)}"):
        trace.read_definition(write(tmp_path / "d.json", definition(**changes)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "a/b"}, "cannot serve"),
        ({"author": ".."}, "cannot serve"),
        ({"sources": []}, "at least 1 item"),
        ({"sources": [{"path": "/etc/x", "content": ""}]}, "must be relative"),
        ({"sources": [{"path": "a/../../x", "content": ""}]}, "must be relative"),
        ({"sources": [{"path": "a\\b", "content": ""}]}, "must be relative"),
        ({"sources": [{"path": "kernel.cu", "content": 1}]}, "sources.0.content"),
        ({"sources": [{"path": "other.cu", "content": ""}]}, "entry file 'kernel.cu' is not among"),
        ({"sources": [{"path": "kernel.cu", "content": "a"}, {"path": "./kernel.cu", "content": "b"}]}, "kernel.cu"),
    ],
)
def test_a_faulty_solution_is_refused_with_the_field_at_fault(
    tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(CandidateError, match=rf"s\.json: not a FlashInfer-Trace solution: .*{re.escape(message)}"):
        trace.read_solution(write(tmp_path / "s.json", solution(**changes)))


@pytest.mark.parametrize("entry", ["kernel.cu", "kernel.cu::", "::run", "kernel.cu::a::b"])
def test_an_entry_point_names_a_file_and_a_symbol(tmp_path: Path, entry: str) -> None:
    document = solution()
    document["spec"]["entry_point"] = entry
    with pytest.raises(CandidateError, match="not of the form file::symbol"):
        trace.read_solution(write(tmp_path / "s.json", document))


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ({"status": "PASSED"}, "PASSED needs correctness"),
        ({"status": "TIMEOUT", "performance": {}}, "TIMEOUT has no performance"),
        ({"status": "BROKEN"}, "status: Input should be 'PASSED'"),
        ({"status": "PASSED", "correctness": {"max_relative_error": -1}}, "-1 is negative"),
    ],
)
def test_an_inconsistent_evaluation_is_refused(tmp_path: Path, evaluation: dict[str, object], message: str) -> None:
    whole = {"environment": {"hardware": "x"}, "timestamp": "t", **evaluation}
    workload = {"uuid": "a", "axes": {}, "inputs": {}}
    path = tmp_path / "t.jsonl"
    line = {"definition": "d", "workload": workload, "solution": "s", "evaluation": whole}
    path.write_text(json.dumps(line))
    with pytest.raises(RecordError, match=rf"t\.jsonl:1: not a FlashInfer-Trace trace: .*{re.escape(message)}"):
        trace.read_traces(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"name": "a", "name": "b"}', "the key 'name' occurs twice"),
        (b"[" * 100_000, "recursion"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"[]", "not a FlashInfer-Trace definition"),
        (b'{\n"name":\n}', r"d\.json:3: not JSON"),
    ],
)
def test_a_file_that_is_no_document_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "d.json"
    path.write_bytes(content)
    with pytest.raises(ProblemError, match=message):
        trace.read_definition(path)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"none\.json: No such file"):
        trace.read_definition(tmp_path / "none.json")


def test_writing_leaves_no_partial_file_behind(tmp_path: Path) -> None:
    found = trace.read_definition(DATA / "flashinfer_bench.definition.json")
    trace.write_document(found, tmp_path / "a" / "d.json")
    trace.write_document(found, tmp_path / "a" / "d.json")
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["d.json"]
