"""The evaluator: `ptxbench.evaluate(candidate, problem, workload, request)` gives a verdict; agents do not live here.

`from ptxbench import evaluate` means a function to its caller, and `ptxbench.evaluate` is a package to the import
system. One object is both: this package can be called, and loads the pipeline when it is.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxbench.evaluate.gpu import GpuEvaluator
    from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
    from ptxbench.schema import Candidate, Problem, Verdict, Workload

__all__ = ["EvaluationRequest", "evaluate"]


class _CallablePackage(ModuleType):
    def __call__(
        self,
        candidate: Candidate,
        problem: Problem,
        workload: Workload,
        request: EvaluationRequest | None = None,
        gpu: GpuEvaluator | None = None,
    ) -> Verdict:
        from ptxbench.evaluate import pipeline  # noqa: PLC0415  (loaded when it is first used)

        return pipeline.evaluate(candidate, problem, workload, request, gpu)

    def __getattr__(self, name: str) -> object:
        if name in __all__:
            from ptxbench.evaluate import pipeline  # noqa: PLC0415  (loaded when it is first used)

            return getattr(pipeline, name)
        raise AttributeError(f"module 'ptxbench.evaluate' has no attribute {name!r}")


sys.modules[__name__].__class__ = _CallablePackage
