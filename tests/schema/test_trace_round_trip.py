"""Documents of every FlashInfer-Trace dialect come back key for key, whatever unknown keys they hold."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.schema import trace
from ptxbench.schema.trace_base import TraceModel

DATA = Path(__file__).parents[1] / "data" / "trace"

Document = dict[str, Any]

QUICK = settings(max_examples=30, deadline=None)
"""A busy machine must not fail a test by being slow."""

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))
NAMES = st.text(st.characters(exclude_characters="/\\", exclude_categories=["C"]), min_size=1, max_size=20).filter(
    lambda name: name not in (".", "..")
)
NUMBERS = st.integers(0, 10**9) | st.floats(min_value=0, allow_nan=False, allow_infinity=False)
ERRORS = NUMBERS | st.sampled_from(["Infinity", "NaN"])


def text_of(document: object) -> str:
    """JSON with its keys in their order, so that order counts in comparisons."""
    return json.dumps(document)


@st.composite
def mixed(draw: st.DrawFn, known: Document, optional: Document | None = None) -> Document:
    """The known keys, some of the optional and some unknown ones, in any order."""
    chosen = {key: value for key, value in (optional or {}).items() if draw(st.booleans())}
    reserved = {*known, *(optional or {})} | set().union(*(_fields(m) for m in (trace.Definition, trace.Workload)))
    reserved |= set().union(*(_fields(m) for m in (trace.Axis, trace.TensorSpec, trace.InputSpec, trace.BuildSpec)))
    reserved |= set().union(*(_fields(m) for m in (trace.Correctness, trace.Evaluation, trace.Source)))
    unknown = draw(st.dictionaries(st.text().filter(lambda key: key not in reserved), JSON, max_size=2))
    items = list({**known, **chosen, **unknown}.items())
    random.Random(draw(st.integers(0, 99))).shuffle(items)
    return dict(items)


def _fields(model: type[TraceModel]) -> set[str]:
    return set(model.model_fields)


@st.composite
def definitions(draw: st.DrawFn) -> Document:
    axes = {
        "m": draw(mixed({"type": "var"}, {"description": "rows"})),
        "n": draw(mixed({"type": "const"}, {"value": draw(st.integers(0, 9))})),
        "k": draw(mixed({"type": "expr", "expression": "m * 2 // 3"})),
    }
    shape = draw(st.none() | st.lists(st.sampled_from(["m", "n", "k", "1", "64"]), max_size=3))
    tensor = {"shape": shape, "dtype": draw(st.sampled_from(["bfloat16", "uint8", "unknown", "float4_e2m1fn_x2"]))}
    optional = {"optional": True, "param": "x", "description": None}
    known = {"name": draw(NAMES), "axes": axes, "inputs": {"x": draw(mixed(tensor, optional))}, "outputs": {}}
    known["outputs"] = {draw(st.text().filter(lambda name: name != "x")): draw(mixed(tensor, optional))}
    return draw(
        mixed(
            known,
            {
                "op_type": "op",
                "reference": "def run(x):\n    return x\n",
                "tags": ["a:b"],
                "description": draw(st.none() | st.text()),
                "constraints": ["m > 0"],
                "init": "def init(): ...",
                "check": "def check(): ...",
                "hf_id": "x/y",
            },
        )
    )


@st.composite
def workloads(draw: st.DrawFn) -> Document:
    stored = {"type": "safetensors", "path": "blob/x.safetensors", "tensor_key": "x"}
    scalar = {"type": "scalar", "value": draw(st.booleans() | st.integers() | st.floats(-1e9, 1e9))}
    kinds: st.SearchStrategy[Document] = st.sampled_from([{}, {"type": "random"}, {"type": "custom"}, stored, scalar])
    inputs = {name: draw(mixed(draw(kinds))) for name in draw(st.lists(st.text(), max_size=3, unique=True))}
    known = {
        "axes": draw(st.dictionaries(st.text(), st.integers(0, 10**12), max_size=3)),
        "inputs": inputs,
        "uuid": "u",
    }
    tolerance = draw(mixed({}, {"max_atol": draw(NUMBERS), "max_error_cap": None, "allow_negative_inf": True}))
    return draw(mixed(known, {"outputs": {"y": draw(mixed(stored))}, "tolerance": tolerance}))


@st.composite
def traces(draw: st.DrawFn) -> Document:
    correctness = draw(mixed({"max_relative_error": draw(ERRORS), "max_absolute_error": draw(ERRORS)}, {"extra": None}))
    performance = draw(mixed({"latency_ms": draw(NUMBERS), "speedup_factor": draw(NUMBERS)}))
    held: dict[str, Document] = {
        "PASSED": {"correctness": correctness, "performance": performance},
        "INCORRECT_NUMERICAL": {"correctness": correctness, "performance": None},
        "COMPILE_ERROR": {},
        "REWARD_HACK": {"correctness": correctness},
    }
    status = draw(st.sampled_from(sorted(held)))
    environment = draw(mixed({"hardware": "GPU"}, {"libs": {"torch": "2.9"}}))
    known = {"status": status, "environment": environment, "timestamp": "t", **held[status]}
    evaluation = draw(mixed(known, {"log": draw(st.text())}))
    return draw(mixed({"definition": "d", "workload": draw(workloads())}, {"solution": "s", "evaluation": evaluation}))


@st.composite
def solutions(draw: st.DrawFn) -> Document:
    language: Document = draw(st.sampled_from([{"language": "cuda"}, {"languages": ["cuda_cpp"]}, {"languages": []}]))
    style = {"destination_passing_style": draw(st.booleans())}
    known = {"target_hardware": ["sm_90a"], "entry_point": "a.cu::run", **language, **style}
    spec = draw(mixed(known, {"dependencies": ["x"], "binding": None, "compile_options": {"cflags": []}}))
    first = draw(mixed({"path": "./a.cu"}, {"content": draw(st.text())}))
    names = {"name": draw(NAMES), "definition": draw(NAMES), "author": draw(NAMES)}
    return draw(mixed({**names, "spec": spec, "sources": [first, {"path": "b/c.h", "content": ""}]}))


@QUICK
@given(definitions())
def test_any_definition_comes_back_as_it_was(document: Document) -> None:
    assert text_of(trace.Definition.model_validate(document).document()) == text_of(document)


@QUICK
@given(workloads())
def test_any_workload_comes_back_as_it_was(document: Document) -> None:
    assert text_of(trace.Workload.model_validate(document).document()) == text_of(document)


@QUICK
@given(traces())
def test_any_trace_comes_back_as_it_was(document: Document) -> None:
    assert text_of(trace.Trace.model_validate(document).document()) == text_of(document)


@QUICK
@given(solutions())
def test_any_solution_comes_back_as_it_was(document: Document) -> None:
    assert text_of(trace.Solution.model_validate(document).document()) == text_of(document)


@QUICK
@given(solutions())
def test_both_ways_of_writing_json_agree(document: Document) -> None:
    value = trace.Solution.model_validate(document)
    assert (
        json.loads(trace.several_lines(value)) == json.loads(value.model_dump_json()) == json.loads(text_of(document))
    )


@pytest.mark.parametrize("path", sorted(DATA.glob("*.definition.json")), ids=lambda path: path.name)
def test_definitions_of_all_dialects_come_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    trace.write_document(trace.read_definition(path), tmp_path / "copy.json")
    assert (tmp_path / "copy.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", sorted(DATA.glob("*.traces.jsonl")), ids=lambda path: path.name)
def test_traces_of_all_dialects_come_back_byte_for_byte(path: Path, tmp_path: Path) -> None:
    trace.write_lines(trace.read_traces(path), tmp_path / "copy.jsonl")
    assert (tmp_path / "copy.jsonl").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("path", sorted(DATA.glob("*.workloads.jsonl")), ids=lambda path: path.name)
def test_workloads_of_all_dialects_come_back_key_for_key(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    found = [workload.document() for workload in trace.read_workloads(path)]
    assert text_of(found) == text_of([line.get("workload", line) for line in lines])


@pytest.mark.parametrize("path", sorted(DATA.glob("*.solution.json")), ids=lambda path: path.name)
def test_solutions_of_all_dialects_come_back_and_always_say_how_they_are_called(path: Path) -> None:
    document = json.loads(path.read_text())
    found = json.loads(trace.one_line(trace.read_solution(path, missing_style=False)))
    assert found["spec"].pop("destination_passing_style") is document["spec"].pop("destination_passing_style", False)
    assert text_of(found) == text_of(document)


def test_infinities_and_nan_are_read_from_strings_null_and_bare_words_and_written_as_strings() -> None:
    lines = [
        '{"max_relative_error": "Infinity", "max_absolute_error": null}',
        '{"max_relative_error": Infinity, "max_absolute_error": NaN}',
    ]
    for line in lines:
        value = trace.Correctness.model_validate(json.loads(line))
        assert value.max_relative_error == math.inf
        assert math.isnan(value.max_absolute_error)
        assert trace.one_line(value) == '{"max_relative_error": "Infinity", "max_absolute_error": "NaN"}'
    nested = trace.Correctness.model_validate({"extra": {"worst": [-math.inf]}})
    assert trace.one_line(nested) == '{"extra": {"worst": ["-Infinity"]}}'


def test_a_changed_copy_is_written_with_its_change() -> None:
    workload = trace.Workload.model_validate({"zeta": 1, "uuid": "a", "axes": {}, "inputs": {}})
    changed = workload.model_copy(update={"uuid": "b", "outputs": {}})
    assert trace.one_line(changed) == '{"zeta": 1, "uuid": "b", "axes": {}, "inputs": {}, "outputs": {}}'


def test_values_are_frozen() -> None:
    workload = trace.Workload.model_validate({"uuid": "a", "axes": {}, "inputs": {}})
    with pytest.raises(ValueError, match="frozen"):
        workload.uuid = "b"  # type: ignore[misc]
