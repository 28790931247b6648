"""A run as a FlashInfer-Trace data set, for flashinfer-bench and what builds on it; nothing is computed here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ptxbench.agent.plans import problems_of
from ptxbench.records.read import StoredRun
from ptxbench.schema.problem import Problem
from ptxbench.schema.trace import Trace, Workload, definition_of, solution_of, trace_of, workload_of
from ptxbench.schema.trace_files import traces_path, write_document, write_lines
from ptxbench.schema.turn import Trajectory
from ptxbench.suite import pick_workload

AUTHOR = "ptxbench"


def write_traces(runs: Sequence[StoredRun], folder: Path) -> int:
    """Write definitions, workloads, solutions and traces of all turns that have a verdict.

    The same kernel on the same workload is one solution with one trace, however often a model wrote it.

    Returns:
        How many traces were written.

    Raises:
        ProblemError: A problem is not there any more.
    """
    problems: dict[str, Problem] = {}
    for run in runs:
        problems |= problems_of(run.run.plan)
    workloads: dict[str, dict[str, Workload]] = {}
    traces: dict[str, dict[tuple[str, str], Trace]] = {}
    for trajectory in (each for run in runs for each in run.trajectories()):
        name = trajectory.key.problem
        problem = problems[name]
        workload = workload_of(problem, pick_workload(problem, trajectory.key.workload))
        workloads.setdefault(name, {})[workload.uuid] = workload
        for turn in trajectory.turns:
            if turn.candidate is None or turn.verdict is None:
                continue
            kernel = turn.candidate.model_copy(update={"name": f"{_author(trajectory)}_{turn.candidate.id[:12]}"})
            solution = solution_of(kernel, name, trajectory.key.target, AUTHOR)
            op_type = _op_type(problem)
            write_document(solution, folder / "solutions" / AUTHOR / op_type / name / f"{solution.name}.json")
            trace = trace_of(turn.verdict, workload, solution.name)
            traces.setdefault(name, {}).setdefault((solution.name, workload.uuid), trace)
    for name, used in workloads.items():
        problem = problems[name]
        op_type = _op_type(problem)
        write_document(definition_of(problem), folder / "definitions" / op_type / f"{name}.json")
        lines = [Trace.model_validate({"definition": name, "workload": each.document()}) for each in used.values()]
        write_lines(lines, folder / "workloads" / op_type / f"{name}.jsonl")
        write_lines(traces.get(name, {}).values(), traces_path(folder, AUTHOR, op_type, name))
    return sum(map(len, traces.values()))


def _op_type(problem: Problem) -> str:
    op_type = definition_of(problem).op_type
    assert op_type is not None, "a definition that we make has one"
    return op_type


def _author(trajectory: Trajectory) -> str:
    """The model's name as part of a file's name."""
    return "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in trajectory.model)
