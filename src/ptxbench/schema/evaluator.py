"""The one interface through which agents, pools and trainers know an evaluator; no evaluator is here."""

from __future__ import annotations

from typing import Protocol

from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.verdict import Verdict


class Evaluator(Protocol):
    """Judges candidates for one target on one kind of device.

    A candidate's failure is in the verdict. What the harness did wrong is a `PtxbenchError`: never scored, never shown
    to a model.
    """

    async def evaluate(self, problem: Problem, workload: Workload, candidate: Candidate) -> Verdict:
        """The verdict of one candidate on one workload.

        Raises:
            PtxbenchError: A tool, the device or the harness is at fault.
        """
        ...
