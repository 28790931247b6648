"""The libraries' own errors against the oracle, stored with the suite for machines without them; measures nothing.

An entry holds, for one problem, workload and input recipe, the RMS-relative error of each output in each block of 128
rows along the output's row axis (M of a product, S of attention), maximum over batch and heads. The contract allows a
candidate twice that (E17).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from ptxbench.errors import ProblemError
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.trace_files import write_text
from ptxbench.schema.values import SCHEMA_VERSION, Frozen

PATH = Path(__file__).parent / "library_errors.json"
"""The table that ships with the suite."""

BLOCK_ROWS = 128
"""Rows of one block."""


class LibraryErrors(Frozen):
    """What one library's results of one workload were off by."""

    problem: str
    workload: str
    """uuid."""
    recipe: Literal["normal", "spiky"]
    library: str
    version: str
    gpu: str
    draws: Annotated[int, Field(ge=1)]
    """Over how many draws of inputs the maximum was taken."""
    errors: dict[str, tuple[Annotated[float, Field(ge=0, allow_inf_nan=False)], ...]]
    """Output name -> RMS-relative error of each block."""


class Table(Frozen):
    """The whole file."""

    schema_version: str = SCHEMA_VERSION
    entries: tuple[LibraryErrors, ...] = ()

    def find(self, problem: str, workload: str, recipe: str) -> LibraryErrors | None:
        """The entry for a problem, a workload's uuid and a recipe."""
        key = (problem, workload, recipe)
        return next((e for e in self.entries if (e.problem, e.workload, e.recipe) == key), None)


def library_error(problem: Problem, workload: Workload, recipe: str, output: str, block: int) -> float | None:
    """The library's RMS-relative error in one block of rows, or None where it was not measured.

    Args:
        problem: The problem.
        workload: One of its workloads.
        recipe: `normal` or `spiky`.
        output: Name of the output.
        block: Index of the block of 128 rows along M or S; the same for every batch and head.

    Raises:
        ProblemError: The shipped table is unreadable, or it has no such output or block for a workload it knows.
    """
    return lookup(_shipped(), problem, workload, recipe, (output, block))


def lookup(table: Table, problem: Problem, workload: Workload, recipe: str, place: tuple[str, int]) -> float | None:
    """`library_error` in a given table; `place` is (output, block)."""
    entry = table.find(problem.name, workload.uuid, recipe)
    if entry is None:
        return None
    output, block = place
    errors = entry.errors.get(output, ())
    if not 0 <= block < len(errors):
        what = f"The library errors of {problem.name} {workload.uuid} have no block {block} of output {output!r}."
        raise ProblemError(what, "Measure the library's errors again.")
    return errors[block]


def read_table(path: Path) -> Table:
    """The table in a file.

    Raises:
        ProblemError: The file is missing or holds something else.
    """
    try:
        return Table.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else str(fault.errors(include_url=False)[0]["msg"])
        raise ProblemError(f"{path}: no table of library errors: {why}.", "Measure the errors again.") from None


def write_table(entries: Iterable[LibraryErrors], path: Path = PATH) -> None:
    """Write a table in the order of its keys; the file appears whole or not at all.

    Raises:
        ProblemError: Two entries are for the same problem, workload and recipe.
    """
    ordered = sorted(entries, key=lambda entry: (entry.problem, entry.workload, entry.recipe))
    keys = [(entry.problem, entry.workload, entry.recipe) for entry in ordered]
    for key in keys:
        if keys.count(key) > 1:
            raise ProblemError(f"Two entries are for {' '.join(key)}.", "Keep one of them.")
    write_text(Table(entries=tuple(ordered)).model_dump_json(indent=1) + "\n", path)


@cache
def _shipped() -> Table:
    return read_table(PATH)
