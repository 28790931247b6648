"""FlashInfer-Trace at the edge: its values, its files and the way between them and ptxbench's own; a table of contents.

Names here are those of FlashInfer-Trace, so use them as `trace.Definition`, `trace.Workload`, `trace.Solution`.
"""

from ptxbench.schema.trace_convert import (
    candidate_of,
    definition_of,
    evaluation_of,
    solution_of,
    trace_of,
    workload_of,
)
from ptxbench.schema.trace_evaluation import (
    Correctness,
    Environment,
    Evaluation,
    EvaluationStatus,
    Performance,
    Trace,
)
from ptxbench.schema.trace_files import (
    find_traces,
    one_line,
    parse_solution,
    read_definition,
    read_solution,
    read_traces,
    read_workloads,
    several_lines,
    traces_path,
    write_document,
    write_lines,
)
from ptxbench.schema.trace_problem import Axis, Definition, InputSpec, TensorSpec, Tolerance, Workload
from ptxbench.schema.trace_solution import BuildSpec, Solution, Source, flashinfer_bench_hash, unique_name

__all__ = [
    "Axis",
    "BuildSpec",
    "Correctness",
    "Definition",
    "Environment",
    "Evaluation",
    "EvaluationStatus",
    "InputSpec",
    "Performance",
    "Solution",
    "Source",
    "TensorSpec",
    "Tolerance",
    "Trace",
    "Workload",
    "candidate_of",
    "definition_of",
    "evaluation_of",
    "find_traces",
    "flashinfer_bench_hash",
    "one_line",
    "parse_solution",
    "read_definition",
    "read_solution",
    "read_traces",
    "read_workloads",
    "several_lines",
    "solution_of",
    "trace_of",
    "traces_path",
    "unique_name",
    "workload_of",
    "write_document",
    "write_lines",
]
