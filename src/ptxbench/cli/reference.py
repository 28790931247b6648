"""Finds the reference kernels, in a clone as in an installed wheel; it does not read them."""

from __future__ import annotations

from pathlib import Path

from ptxbench.errors import CandidateError
from ptxbench.schema.values import Target

_PACKAGE = Path(__file__).resolve().parent.parent
_PLACES = (_PACKAGE / "reference", _PACKAGE.parent.parent / "reference")
"""In a wheel the folder lies inside the package, in a clone beside `src`."""


def reference_kernel(problem: str, target: Target) -> Path:
    """The file of the reference kernel for a problem on a target.

    Raises:
        CandidateError: There is none.
    """
    for place in _PLACES:
        path = place / problem / f"{target.value}.cu"
        if path.is_file():
            return path
    raise CandidateError(f"There is no reference kernel for {problem} on {target.value}.", "Name a kernel of your own.")
