"""FlashInfer-Trace traces and evaluations in all dialects; making them from verdicts is `trace_convert`'s work."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, StrictBool, StrictStr, model_validator

from ptxbench.schema.trace_base import FileName, NonNegative, Text, TraceModel
from ptxbench.schema.trace_problem import Workload


class EvaluationStatus(StrEnum):
    """How an evaluation ended; the last two are SOL-ExecBench's."""

    PASSED = "PASSED"
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    COMPILE_ERROR = "COMPILE_ERROR"
    TIMEOUT = "TIMEOUT"
    REWARD_HACK = "REWARD_HACK"
    INVALID_REFERENCE = "INVALID_REFERENCE"


_OTHERS = frozenset({EvaluationStatus.REWARD_HACK, EvaluationStatus.INVALID_REFERENCE})


class Correctness(TraceModel):
    """The largest errors over outputs and trials."""

    max_relative_error: NonNegative = 0.0
    max_absolute_error: NonNegative = 0.0
    has_nan: StrictBool = False
    """SOL-ExecBench."""
    has_inf: StrictBool = False
    """SOL-ExecBench."""
    extra: dict[StrictStr, object] | None = None


class Performance(TraceModel):
    """Times in milliseconds; zeros mean that nothing was timed."""

    latency_ms: NonNegative = 0.0
    reference_latency_ms: NonNegative = 0.0
    speedup_factor: NonNegative = 0.0


class Environment(TraceModel):
    """Where it ran."""

    hardware: Text
    libs: dict[StrictStr, StrictStr] = Field(default_factory=dict)


class Evaluation(TraceModel):
    """The result of one solution on one workload."""

    status: EvaluationStatus
    environment: Environment
    timestamp: Text
    log: StrictStr = ""
    correctness: Correctness | None = None
    performance: Performance | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.status in _OTHERS:
            return self
        passed = self.status is EvaluationStatus.PASSED
        compared = passed or self.status is EvaluationStatus.INCORRECT_NUMERICAL
        for name, wanted in (("correctness", compared), ("performance", passed)):
            if (getattr(self, name) is not None) != wanted:
                raise ValueError(f"an evaluation that is {self.status.value} {'needs' if wanted else 'has no'} {name}")
        return self


class Trace(TraceModel):
    """A workload of a definition, with the solution and its evaluation where there was one."""

    definition: FileName
    workload: Workload
    solution: FileName | None = None
    evaluation: Evaluation | None = None

    @property
    def is_workload(self) -> bool:
        """Nothing was evaluated: the line only says that the workload exists."""
        return self.solution is None and self.evaluation is None
