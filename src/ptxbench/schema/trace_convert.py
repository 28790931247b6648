"""Between ptxbench's values and FlashInfer-Trace's: solutions, definitions, workloads, evaluations; reads no file but
sources that a solution leaves beside itself.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from ptxbench.errors import CandidateError
from ptxbench.schema.candidate import Candidate, SourceFile
from ptxbench.schema.problem import Problem
from ptxbench.schema.problem import Workload as ProblemWorkload
from ptxbench.schema.stages import OutputCheck
from ptxbench.schema.trace_evaluation import (
    Correctness,
    Environment,
    Evaluation,
    EvaluationStatus,
    Performance,
    Trace,
)
from ptxbench.schema.trace_problem import Definition, Workload
from ptxbench.schema.trace_solution import Solution, Source, normalised
from ptxbench.schema.values import Target
from ptxbench.schema.verdict import StageName, State, Verdict

LANGUAGES = frozenset({"cuda", "cpp", "cuda_cpp"})
"""Languages of candidates that ptxbench builds."""

AUTHOR = "ptxbench"
"""Author of solutions that say nothing of theirs."""


def candidate_of(solution: Solution, folder: Path | None = None) -> Candidate:
    """The candidate that a solution describes.

    Args:
        solution: A CUDA or C++ solution bound by TVM-FFI.
        folder: Where sources without content lie (SOL-ExecBench).

    Raises:
        CandidateError: Another language or binding, a source that is not there, or sources that are too large.
    """
    spec = solution.spec
    languages = {spec.language} if spec.language else set(spec.languages or ())
    if not languages or languages - LANGUAGES:
        what = f"Solution {solution.name} is written in {', '.join(sorted(languages)) or 'no language'}."
        raise CandidateError(what, f"Give one in: {', '.join(sorted(LANGUAGES))}.")
    if spec.binding not in (None, "tvm-ffi"):
        what = f"Solution {solution.name} is bound by {spec.binding!r}."
        raise CandidateError(what, "Export `run` by TVM_FFI_DLL_EXPORT_TYPED_FUNC and bind it by 'tvm-ffi'.")
    sources = tuple(SourceFile(path=normalised(s.path), content=_content(s, folder)) for s in solution.sources)
    try:
        return Candidate(
            sources=sources,
            entry_file=normalised(spec.entry_file),
            entry_symbol=spec.entry_symbol,
            destination_passing_style=spec.destination_passing_style,
            name=solution.name,
        )
    except ValidationError as fault:
        message = fault.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise CandidateError(f"Solution {solution.name}: {message}.", "Correct the solution.") from None


def _content(source: Source, folder: Path | None) -> str:
    if source.content is not None:
        return source.content
    if folder is None:
        raise CandidateError(f"Source {source.path} has no content.", "Put its text into the solution.")
    path = folder / source.path
    try:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise CandidateError(f"Source {path} leads out of its folder.", "Put the file itself there.")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
        raise CandidateError(f"Source {path} cannot be read: {why}.", "Put it beside the solution.") from None


def solution_of(candidate: Candidate, problem: str, target: Target, author: str = AUTHOR) -> Solution:
    """A candidate as a FlashInfer-Bench solution of the problem of that name; `candidate_of` gives it back."""
    return Solution.model_validate(
        {
            "name": candidate.name or f"candidate_{candidate.id[:8]}",
            "definition": problem,
            "author": author,
            "spec": {
                "language": "cuda",
                "target_hardware": [target.value],
                "entry_point": f"{candidate.entry_file}::{candidate.entry_symbol}",
                "dependencies": [],
                "destination_passing_style": candidate.destination_passing_style,
                "binding": "tvm-ffi",
            },
            "sources": [{"path": source.path, "content": source.content} for source in candidate.sources],
        }
    )


def definition_of(problem: Problem) -> Definition:
    """A problem as a definition: what FlashInfer-Trace can say of it."""
    axes = {
        axis.name: {"type": "var"} if axis.value is None else {"type": "const", "value": axis.value}
        for axis in problem.axes
    }
    tensors = {
        kind: {tensor.name: {"shape": list(tensor.shape), "dtype": tensor.dtype.value} for tensor in held}
        for kind, held in (("inputs", problem.inputs), ("outputs", problem.outputs))
    }
    document: dict[str, object] = {
        "name": problem.name,
        "description": problem.description,
        "op_type": "gemm" if problem.op == "gemm" else "mha",
        "axes": axes,
        **tensors,
        "reference": problem.reference,
    }
    if problem.input_maker:
        document["custom_inputs_entrypoint"] = problem.input_maker
    return Definition.model_validate(document)


def workload_of(problem: Problem, workload: ProblemWorkload) -> Workload:
    """A workload of a problem; inputs that depend on each other are of kind `custom`, others `random`."""
    kind = "custom" if problem.input_maker else "random"
    return Workload.model_validate(
        {
            "uuid": workload.uuid,
            "axes": dict(workload.axes),
            "inputs": {tensor.name: {"type": kind} for tensor in problem.inputs},
        }
    )


def trace_of(verdict: Verdict, workload: Workload, solution: str) -> Trace:
    """A verdict as a trace of the solution of that name; without evaluation where the verdict decides nothing."""
    return Trace.model_validate(
        {
            "definition": verdict.problem,
            "workload": workload.document(),
            "solution": solution,
            "evaluation": evaluation_of(verdict),
        }
    )


def evaluation_of(verdict: Verdict) -> Evaluation | None:
    """What FlashInfer-Bench can say of a verdict, or None where the verdict is inconclusive.

    A broken policy counts as COMPILE_ERROR, as in PTXBench. Errors are the largest of all draws and outputs. Without
    a timed baseline the performance is zeros, which is how FlashInfer-Bench writes it. The key `ptxbench` keeps what
    has no place there: the status and the candidate's id.
    """
    status = evaluation_status(verdict)
    if status is None:
        return None
    environment = verdict.environment
    document: dict[str, object] = {
        "status": status.value,
        "environment": Environment.model_validate(
            {
                "hardware": environment.device_name or environment.device,
                "libs": {tool.name: tool.version for tool in environment.tools},
            }
        ),
        "timestamp": datetime.fromtimestamp(verdict.created, UTC).isoformat(),
        "log": _log(verdict),
    }
    if status in (EvaluationStatus.PASSED, EvaluationStatus.INCORRECT_NUMERICAL):
        document["correctness"] = _correctness(verdict)
    if status is EvaluationStatus.PASSED:
        document["performance"] = _performance(verdict)
    document["ptxbench"] = {
        "schema_version": verdict.schema_version,
        "candidate": verdict.candidate,
        "status": verdict.status.model_dump(mode="json"),
    }
    return Evaluation.model_validate(document)


def evaluation_status(verdict: Verdict) -> EvaluationStatus | None:
    """FlashInfer-Bench's word for a verdict's status; None for an inconclusive one."""
    status = verdict.status
    if status.state is State.INCONCLUSIVE:
        return None
    if status.state is State.PASSED:
        return EvaluationStatus.PASSED
    if status.stage in (StageName.POLICY, StageName.BUILD):
        return EvaluationStatus.COMPILE_ERROR
    if status.reason and status.reason.code in ("hang", "timeout"):
        return EvaluationStatus.TIMEOUT
    wrong = any(not (output.published and output.contract) for output in _outputs(verdict))
    if status.state is State.FAILED and status.stage is StageName.CHECK and wrong:
        return EvaluationStatus.INCORRECT_NUMERICAL
    return EvaluationStatus.RUNTIME_ERROR


def _outputs(verdict: Verdict) -> list[OutputCheck]:
    return [output for draw in verdict.stages.check.draws for output in draw.outputs]


def _log(verdict: Verdict) -> str:
    reason = verdict.status.reason
    return f"{reason.message} {reason.hint}".strip() if reason else ""


def _correctness(verdict: Verdict) -> Correctness:
    outputs = _outputs(verdict)
    return Correctness.model_validate(
        {
            "max_relative_error": _largest([output.max_rel for output in outputs]),
            "max_absolute_error": _largest([output.max_abs for output in outputs]),
        }
    )


def _largest(values: list[float]) -> float:
    """The largest value, NaN being larger than all: `max` alone would drop it or not by its place."""
    return max(values, key=lambda value: (value != value, value), default=0.0)  # noqa: PLR0124


def _performance(verdict: Verdict) -> Performance:
    time = verdict.stages.time
    baseline = time.baselines[0] if time.baselines else None
    return Performance.model_validate(
        {
            "latency_ms": time.candidate.median if time.candidate else 0.0,
            "reference_latency_ms": baseline.samples.median if baseline else 0.0,
            "speedup_factor": baseline.speedup if baseline else 0.0,
        }
    )
