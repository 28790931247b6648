"""Measures the libraries' own errors against the oracle for the suite's table; run on a GPU, once per release.

Run as `python -m ptxbench.evaluate.child.library_table OUT.json [PROBLEM ...]`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ptxbench.evaluate.child import oracle
from ptxbench.evaluate.child.desk import Device
from ptxbench.evaluate.child.device import CudaDevice
from ptxbench.evaluate.child.draws import CHECKED, Recipe
from ptxbench.evaluate.child.preparing import Baselines, draw_workload
from ptxbench.evaluate.child.tensors import TORCH, Tensors
from ptxbench.evaluate.rules import Layout, block_errors
from ptxbench.schema.problem import Problem, Workload
from ptxbench.suite import load_problem, problem_names
from ptxbench.suite.library_errors import BLOCK_ROWS, LibraryErrors, write_table

DRAWS = 4
"""Draws of each recipe; the table keeps the maximum."""
RECIPES: tuple[Recipe, ...] = tuple(dict.fromkeys(CHECKED))


def measure_library_errors(device: Device, problem: Problem, workload: Workload) -> Iterator[LibraryErrors]:
    """One entry per recipe; none where the library is missing or does not support the workload."""
    source = device.generator(0x5EED)
    for recipe in RECIPES:
        found: dict[str, list[np.ndarray[tuple[int], np.dtype[np.float64]]]] = {}
        library = None
        for _ in range(DRAWS):
            (draw,) = draw_workload(problem, workload, (recipe,), source)
            library = Baselines.find(problem).usable_on(draw).reference
            if library is None:
                return
            results = library.bind(problem, draw.inputs)()
            for name, error in _errors(problem, results, oracle.oracle(problem, draw.inputs)).items():
                found.setdefault(name, []).append(error)
        assert library is not None
        yield LibraryErrors(
            problem=problem.name,
            workload=workload.uuid,
            recipe=recipe,
            library=library.name,
            version=library.version,
            gpu=device.facts.name,
            draws=DRAWS,
            errors={name: tuple(float(each) for each in np.max(errors, axis=0)) for name, errors in found.items()},
        )


def _errors(
    problem: Problem, results: Tensors, exact: Tensors
) -> dict[str, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """The error of each block of rows, maximum over batch and heads."""
    errors = {}
    for spec in problem.outputs:
        truth = exact[spec.name]
        each = block_errors(TORCH, results[spec.name].contiguous(), truth, BLOCK_ROWS)
        errors[spec.name] = each.reshape(Layout.of(tuple(truth.shape)).heads, -1).max(axis=0)
    return errors


def main(arguments: Sequence[str]) -> int:
    """Write the table of the named problems, or of the whole suite."""
    if not arguments:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    oracle.exact_arithmetic()
    device = CudaDevice(0)
    entries: list[LibraryErrors] = []
    for name in arguments[1:] or problem_names():
        problem = load_problem(name)
        for workload in problem.workloads:
            entries += measure_library_errors(device, problem, workload)
            sys.stdout.write(f"{name} {workload.axes}: {len(entries)} entries\n")
    write_table(entries, Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
