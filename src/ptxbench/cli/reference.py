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
    path = _find(f"{problem}/{target.value}.cu")
    if path is None:
        what = f"There is no reference kernel for {problem} on {target.value}."
        raise CandidateError(what, "Name a kernel of your own.")
    return path


def reference_file(name: str) -> Path:
    """Any other file of the folder, by its relative path.

    Raises:
        CandidateError: It is not there.
    """
    path = _find(name)
    if path is None:
        raise CandidateError(f"The installation lacks reference/{name}.", "Install ptxbench again.")
    return path


def _find(name: str) -> Path | None:
    return next((place / name for place in _PLACES if (place / name).is_file()), None)
