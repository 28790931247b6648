"""ptxbench: one kernel file in, a verdict in three layers out.

The face of the package is `evaluate`, `emulate`, `load_problem`, `Candidate` and `Verdict`; each is loaded when it is
first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxbench.emulator import emulate
    from ptxbench.evaluate.pipeline import evaluate
    from ptxbench.schema import Candidate, Verdict
    from ptxbench.suite import load_problem

    __version__: str

__all__ = ["Candidate", "Verdict", "__version__", "emulate", "evaluate", "load_problem"]

_HOMES = {
    "Candidate": "ptxbench.schema",
    "Verdict": "ptxbench.schema",
    "emulate": "ptxbench.emulator",
    "load_problem": "ptxbench.suite",
}


def __getattr__(name: str) -> object:
    if name == "evaluate":
        return import_module("ptxbench.evaluate")  # a package that is called like the function in it
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (reading metadata is slow)

        return version("ptxbench")
    raise AttributeError(f"module 'ptxbench' has no attribute {name!r}")
