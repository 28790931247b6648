"""ptxbench's values go out as FlashInfer-Trace and come back, and each verdict has its word there."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.errors import CandidateError
from ptxbench.schema import Candidate, Layer, SourceFile, Stages, Target, Verdict, trace
from ptxbench.schema.stages import (
    BaselineTime,
    BuildStage,
    CheckStage,
    DrawCheck,
    Outcome,
    OutputCheck,
    PolicyStage,
    Reason,
    Samples,
    SanitizeStage,
    TimeStage,
)
from ptxbench.schema.values import ToolVersion
from ptxbench.schema.verdict import Environment, StageName
from ptxbench.suite import load_problem, pick_workload, problem_names
from ptxbench.suite.catalogue import PROBLEMS

DATA = Path(__file__).parents[1] / "data" / "trace"

PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map("/".join)


def solution(**spec: object) -> trace.Solution:
    found = trace.read_solution(DATA / "flashinfer_bench.solution.json")
    document: dict[str, Any] = found.document()
    document["spec"].update(spec)
    return trace.Solution.model_validate(document)


# ---- candidates ----


@settings(deadline=None)
@given(
    sources=st.dictionaries(PATHS, st.text(), min_size=1, max_size=3),
    symbol=st.sampled_from(["run", "go_2"]),
    style=st.booleans(),
)
def test_any_candidate_comes_back_from_its_solution_with_the_same_id(
    sources: dict[str, str], symbol: str, style: bool
) -> None:
    candidate = Candidate(
        sources=tuple(SourceFile(path=path, content=content) for path, content in sources.items()),
        entry_file=next(iter(sources)),
        entry_symbol=symbol,
        destination_passing_style=style,
    )
    written = trace.one_line(trace.solution_of(candidate, "gemm_n7168_k5120", Target.SM_90A))
    assert trace.candidate_of(trace.parse_solution(written, "here")).id == candidate.id


def test_a_solution_becomes_a_candidate_with_normalised_paths() -> None:
    candidate = trace.candidate_of(solution())
    assert candidate.entry_file == "kernel.cu"
    assert [source.path for source in candidate.sources] == ["kernel.cu", "inner/part.cuh"]
    assert (candidate.entry_symbol, candidate.destination_passing_style) == ("run", True)
    assert candidate.name == "rowsum_naive"


def test_solutions_that_differ_only_in_their_calling_convention_are_different_candidates() -> None:
    one, other = solution(), solution(destination_passing_style=False)
    assert trace.candidate_of(one).id != trace.candidate_of(other).id
    assert trace.flashinfer_bench_hash(one) == trace.flashinfer_bench_hash(other)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"language": "triton"}, "is written in triton"),
        ({"language": None, "languages": ["cuda_cpp", "cudnn"]}, "is written in cuda_cpp, cudnn"),
        ({"language": None, "languages": []}, "is written in no language"),
        ({"binding": "torch"}, "is bound by 'torch'"),
        ({"entry_point": "kernel.cu::not a name"}, "'not a name' is not an identifier"),
    ],
)
def test_a_solution_that_cannot_be_built_here_is_refused(spec: dict[str, object], message: str) -> None:
    with pytest.raises(CandidateError, match=message):
        trace.candidate_of(solution(**spec))


def left_out(tmp_path: Path) -> trace.Solution:
    return solution(entry_point="kernel.cu::run").model_copy(
        update={"sources": (trace.Source.model_validate({"path": "kernel.cu"}),)}
    )


def test_a_source_without_content_is_read_from_beside_its_solution(tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("// here")
    assert trace.candidate_of(left_out(tmp_path), tmp_path).entry_source == "// here"


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CandidateError, match=r"kernel\.cu cannot be read: No such file"):
        trace.candidate_of(left_out(tmp_path), tmp_path)
    with pytest.raises(CandidateError, match=r"kernel\.cu has no content"):
        trace.candidate_of(left_out(tmp_path))


def test_a_link_that_leads_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "inside").mkdir()
    (tmp_path / "inside" / "kernel.cu").symlink_to(tmp_path / "secret")
    with pytest.raises(CandidateError, match="leads out of its folder"):
        trace.candidate_of(left_out(tmp_path), tmp_path / "inside")


def test_the_hash_of_flashinfer_bench_is_the_sha1_of_the_joined_fields() -> None:
    # printf '%s' d cuda k.cu::run tvm-ffi torch k.cu X | sha1sum
    document = {
        "name": "n",
        "definition": "d",
        "author": "a",
        "spec": {
            "language": "cuda",
            "target_hardware": ["x"],
            "entry_point": "k.cu::run",
            "dependencies": ["torch"],
            "destination_passing_style": True,
            "binding": "tvm-ffi",
        },
        "sources": [{"path": "k.cu", "content": "X"}],
    }
    found = trace.Solution.model_validate(document)
    assert trace.flashinfer_bench_hash(found) == "a2e5536cb975da7dca817dbbea6228839e3085c9"
    assert trace.flashinfer_bench_hash(found, include_name=True) == "17e52500f7c07ae39220e3df8406658f427190b7"
    assert trace.unique_name(found) == "n_a2e5536c"


# ---- problems ----


@pytest.mark.parametrize("name", problem_names())
def test_a_problem_of_the_suite_goes_out_as_the_definition_it_came_from(name: str) -> None:
    problem = load_problem(name)
    assert trace.several_lines(trace.definition_of(problem)) == (PROBLEMS / name / "definition.json").read_text()
    written = [trace.one_line(trace.workload_of(problem, workload)) for workload in problem.workloads]
    assert "\n".join(written) + "\n" == (PROBLEMS / name / "workloads.jsonl").read_text()


# ---- verdicts ----

PASS = {
    "policy": PolicyStage(outcome=Outcome.PASSED),
    "build": BuildStage(outcome=Outcome.PASSED),
    "sanitize": SanitizeStage(outcome=Outcome.PASSED),
}


def output(name: str, right: bool, errors: tuple[float, float]) -> OutputCheck:
    max_abs, max_rel = errors
    return OutputCheck(name=name, published=right, contract=right, failing=0, total=4, max_abs=max_abs, max_rel=max_rel)


def check(outcome: Outcome, *outputs: OutputCheck, code: str = "wrong_numbers") -> CheckStage:
    return CheckStage(
        outcome=outcome,
        reason=None if outcome is Outcome.PASSED else Reason(code=code, message="It is wrong.", hint="Mend it."),
        draws=(DrawCheck(workload="w", recipe="normal", outputs=outputs),),
        published=Layer.yes_or_no(outcome is Outcome.PASSED),
    )


RIGHT = check(Outcome.PASSED, output("O", True, (0.001, 0.01)), output("LSE", True, (0.002, 0.005)))


def verdict(**stages: object) -> Verdict:
    problem = load_problem("mha_with_lse_d128")
    workload = pick_workload(problem)
    return Verdict(
        candidate="ab" * 32,
        problem=problem.name,
        problem_hash="0",
        workload=workload.uuid,
        axes=workload.axes,
        target=Target.SM_90A,
        environment=Environment(
            device="cuda:0", device_name="NVIDIA H200", tools=(ToolVersion(name="nvcc", version="13.0"),)
        ),
        stages=Stages.model_validate({**PASS, **stages}),
        families=problem.families[Target.SM_90A],
        created=0.0,
    )


def failed(stage: type, code: str, outcome: Outcome = Outcome.FAILED) -> object:
    return stage(outcome=outcome, reason=Reason(code=code, message="No."))


def evaluation_of(**stages: object) -> trace.Evaluation:
    found = trace.evaluation_of(verdict(**stages))
    assert found is not None
    return found


def test_a_pass_carries_the_largest_errors_and_the_first_baselines_times() -> None:
    samples = Samples(milliseconds=(3.0,), median=3.0)
    first, second = (
        BaselineTime(
            name=name,
            version="1",
            published_version="1",
            samples=Samples(milliseconds=(time,), median=time),
            speedup=time / 3,
            interval=(0.9, 1.1),
        )
        for name, time in (("cudnn", 2.4), ("flashinfer", 3.0))
    )
    found = evaluation_of(
        check=RIGHT, time=TimeStage(outcome=Outcome.PASSED, candidate=samples, baselines=(first, second))
    )
    assert found.status is trace.EvaluationStatus.PASSED
    assert found.correctness is not None
    assert (found.correctness.max_absolute_error, found.correctness.max_relative_error) == (0.002, 0.01)
    assert found.performance is not None
    assert found.performance.document() == {
        "latency_ms": 3.0,
        "reference_latency_ms": 2.4,
        "speedup_factor": pytest.approx(0.8),
    }
    assert found.environment.document() == {"hardware": "NVIDIA H200", "libs": {"nvcc": "13.0"}}
    assert found.timestamp == "1970-01-01T00:00:00+00:00"


def test_a_pass_without_time_has_zeros_for_times() -> None:
    performance = evaluation_of(check=RIGHT).performance
    assert performance is not None
    assert set(performance.document().values()) == {0.0}


def test_the_largest_error_is_nan_wherever_one_is_nan() -> None:
    nan = check(Outcome.FAILED, output("O", False, (math.nan, math.inf)), output("LSE", True, (0.1, 0.1)))
    correctness = evaluation_of(check=nan).correctness
    assert correctness is not None
    assert math.isnan(correctness.max_absolute_error)
    assert correctness.document() == {"max_relative_error": "Infinity", "max_absolute_error": "NaN"}


@pytest.mark.parametrize(
    ("stages", "status"),
    [
        ({"policy": failed(PolicyStage, "forbidden_include")}, "COMPILE_ERROR"),
        ({"policy": failed(PolicyStage, "forbidden_needed", Outcome.CHEATED)}, "COMPILE_ERROR"),
        ({"build": failed(BuildStage, "compile_error")}, "COMPILE_ERROR"),
        ({"check": check(Outcome.FAILED, output("O", False, (1.0, 1.0)))}, "INCORRECT_NUMERICAL"),
        ({"check": failed(CheckStage, "hang")}, "TIMEOUT"),
        ({"check": failed(CheckStage, "launch_failed")}, "RUNTIME_ERROR"),
        ({"check": check(Outcome.CHEATED, output("O", True, (0.0, 0.0)), code="input_changed")}, "RUNTIME_ERROR"),
        ({"check": RIGHT, "sanitize": failed(SanitizeStage, "out_of_bounds")}, "RUNTIME_ERROR"),
    ],
)
def test_each_way_to_fail_has_its_word(stages: dict[str, object], status: str) -> None:
    found = evaluation_of(**stages)
    assert found.status.value == status
    assert found.performance is None
    assert found.log.startswith(("No.", "It is wrong. Mend it."))


def test_an_inconclusive_verdict_is_a_trace_without_evaluation() -> None:
    undecided = verdict(check=RIGHT, sanitize=failed(SanitizeStage, "crashed", Outcome.UNAVAILABLE))
    problem = load_problem("mha_with_lse_d128")
    found = trace.trace_of(undecided, trace.workload_of(problem, pick_workload(problem)), "mine")
    assert found.evaluation is None
    assert not found.is_workload


def test_a_trace_of_a_verdict_reads_back_and_keeps_the_own_status_beside_theirs(tmp_path: Path) -> None:
    problem = load_problem("mha_with_lse_d128")
    judged = verdict(check=RIGHT)
    written = trace.trace_of(judged, trace.workload_of(problem, pick_workload(problem)), "mine")
    trace.write_lines([written], tmp_path / "t.jsonl")
    (found,) = trace.read_traces(tmp_path / "t.jsonl")
    assert trace.one_line(found) == trace.one_line(written)
    assert found.evaluation is not None
    kept = found.evaluation.document()["ptxbench"]
    assert isinstance(kept, dict)
    assert kept["candidate"] == judged.candidate
    assert kept["status"]["state"] == "passed"
    assert judged.status.stage is not StageName.CHECK
