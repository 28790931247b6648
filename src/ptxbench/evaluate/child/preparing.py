"""Makes a workload's draws and everything they will be judged by, before a candidate is called; judges nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ptxbench.evaluate.child import oracle
from ptxbench.evaluate.child.baselines import CudnnForward, Library, cudnn_version, find_libraries
from ptxbench.evaluate.child.checking import Prepared
from ptxbench.evaluate.child.draws import Draw, Recipe, draw_all
from ptxbench.evaluate.child.tensors import Tensors
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.stages import Reason
from ptxbench.schema.values import Unavailable


@dataclass(frozen=True)
class Baselines:
    """The libraries of one problem on this machine.

    Attributes:
        problem: The problem.
        libraries: Those that work here, in the problem's order.
        missing: Those that do not, with the reason.
    """

    problem: Problem
    libraries: tuple[Library, ...]
    missing: tuple[Reason, ...]

    @classmethod
    def find(cls, problem: Problem) -> Baselines:
        """Look for the problem's baselines."""
        found, missing = find_libraries(problem)
        return cls(problem, tuple(found), tuple(_reason(each) for each in missing))

    def usable_on(self, draw: Draw) -> Baselines:
        """Only the libraries whose call on this draw succeeds."""
        usable, missing = [], list(self.missing)
        for library in self.libraries:
            try:
                library.bind(self.problem, draw.inputs)()
            except Exception as error:  # noqa: BLE001  (a library may raise anything where it does not support a shape)
                remedy = f"Check that {library.how} supports this GPU and shape."
                missing.append(_reason(Unavailable(name=library.name, reason=str(error)[:500], remedy=remedy)))
            else:
                usable.append(library)
        return Baselines(self.problem, tuple(usable), tuple(missing))

    @property
    def reference(self) -> Library | None:
        """The library that the published rule compares with; None where the oracle stands for it."""
        return next((library for library in self.libraries if library.is_reference), None)

    @property
    def reference_name(self) -> str:
        """Its name and version for the record."""
        return f"{self.reference.name} {self.reference.version}" if self.reference else "oracle"


def draw_workload(
    problem: Problem, workload: Workload, recipes: tuple[Recipe, ...], source: torch.Generator
) -> list[Draw]:
    """Secret draws of one workload; the backward operators' O and LSE come from cuDNN, or else from the oracle."""
    version = cudnn_version()

    def forward(inputs: Tensors) -> Tensors:
        if isinstance(version, Unavailable):
            return oracle.forward(inputs, problem.causal)
        return CudnnForward(version).bind(problem, inputs)()

    return draw_all(problem, workload, recipes, source, forward)


def prepare(baselines: Baselines, draws: Sequence[Draw]) -> list[Prepared]:
    """What each draw's outputs will be held against, by both rules."""
    problem = baselines.problem
    prepared = []
    for draw in draws:
        exact = oracle.oracle(problem, draw.inputs)
        expected = oracle.expectations(problem, draw.workload, draw.recipe, exact, _library(baselines, draw))
        prepared.append(Prepared(draw, expected))
    return prepared


def _library(baselines: Baselines, draw: Draw) -> Tensors | None:
    problem, reference = baselines.problem, baselines.reference
    if reference is None:
        return None
    results = reference.bind(problem, draw.inputs)()
    return {spec.name: results[spec.name].contiguous() for spec in problem.outputs}


def _reason(missing: Unavailable) -> Reason:
    return Reason(code=f"{missing.name}_unavailable", message=f"{missing.name}: {missing.reason}", hint=missing.remedy)
