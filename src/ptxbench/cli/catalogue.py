"""`ptxbench tasks` and `ptxbench suite make`: prints the problems and has new ones written."""

from __future__ import annotations

import json as encoder
import sys
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from ptxbench.schema.problem import Problem, TensorSpec, Workload
from ptxbench.suite import compulsory_bytes, load_problem, make_problem, problem_names, required_flops


def list_problems(*, json: bool) -> None:
    """Print every problem of the suite."""
    problems = [load_problem(name) for name in problem_names()]
    if json:
        _print_json([_document(problem) for problem in problems])
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("problem", "arguments", "sizes", "baselines"):
        table.add_column(heading, header_style="dim", no_wrap=heading == "problem")
    for problem in problems:
        arguments = ", ".join(tensor.name for tensor in problem.inputs)
        outputs = ", ".join(tensor.name for tensor in problem.outputs)
        paper = problem.workloads[0]
        baselines = ", ".join(baseline.name for baseline in problem.baselines)
        table.add_row(problem.name, f"{arguments} -> {outputs}", _sizes(paper), baselines)
    console = Console()
    console.print(table)
    console.print("\n[bold]next:[/] ptxbench tasks show NAME", highlight=False)


def show_problem(name: str, *, json: bool) -> None:
    """Print one problem: what it computes, its arguments, workloads and requirements.

    Raises:
        ProblemError: There is no such problem.
    """
    problem = load_problem(name)
    if json:
        _print_json(_document(problem))
        return
    console = Console(highlight=False)
    console.print(f"[bold]{problem.name}[/]\n{problem.description}\n")
    arguments = _plain_table("argument", "", "shape", "dtype")
    for tensor in problem.arguments:
        direction = "in" if tensor in problem.inputs else "out"
        arguments.add_row(tensor.name, direction, _shape(tensor, problem), tensor.dtype.value)
    workloads = _plain_table("workload", "role", "sizes", "GFLOP", "MB")
    for workload in problem.workloads:
        gflop = f"{required_flops(problem, workload) / 1e9:,.1f}"
        megabytes = f"{compulsory_bytes(problem, workload) / 1e6:,.1f}"
        workloads.add_row(workload.uuid, workload.role.value, _sizes(workload), gflop, megabytes)
    console.print(arguments, "", workloads, "", sep="\n")
    for target, families in problem.families.items():
        console.print(f"{target.value}: one of {', '.join(families)} must execute")
    for baseline in problem.baselines:
        console.print(f"baseline: {baseline.name} (published with {baseline.published_version})")
    console.print("\nreference:")
    console.print(Syntax(problem.reference, "python", background_color="default"))
    console.print(f"\n[bold]next:[/] ptxbench eval KERNEL.cu --task {name}")


def make(op: str, options: Mapping[str, int | bool], folder: Path) -> None:
    """Have a problem's folder written below `folder`, and say where it is.

    Raises:
        ProblemError: A size is out of range.
    """
    made = make_problem(op, options, folder)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"wrote {made}")
    console.print(f"[bold]next:[/] ptxbench eval KERNEL.cu --task {made}")


def _document(problem: Problem) -> dict[str, object]:
    return problem.model_dump(mode="json")


def _print_json(document: object) -> None:
    sys.stdout.write(encoder.dumps(document, indent=2) + "\n")


def _plain_table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in headings:
        right = heading in ("GFLOP", "MB")
        table.add_column(heading, header_style="dim", justify="right" if right else "left", overflow="fold")
    return table


def _shape(tensor: TensorSpec, problem: Problem) -> str:
    constants = {axis.name: axis.value for axis in problem.axes}
    return "[" + ", ".join(str(constants[name] or name) for name in tensor.shape) + "]"


def _sizes(workload: Workload) -> str:
    return " ".join(f"{name}={value}" for name, value in workload.axes.items())
