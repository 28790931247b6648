"""What a candidate can do wrong in its own process, as one exception with a code; no fault of ours."""

from __future__ import annotations

from typing import Literal

from ptxbench.evaluate.child.process import Ended
from ptxbench.evaluate.child.wire import Phase

FaultCode = Literal[
    "hang_at_load",
    "load_failed",
    "no_symbol",
    "hang",
    "crashed",
    "exited",
    "cuda_error",
    "raised",
    "forged_reply",
    "oversized_reply",
]


class CandidateFault(Exception):  # noqa: N818  (it is the candidate's fault, not an error of this program)
    """The candidate failed; the judge turns this into a stage's result.

    Attributes:
        code: What happened.
        message: One sentence for the reader.
        phase: How far the process had come.
        detail: The signal's name, the exit status, the CUDA error's name, or the candidate's own error message.
        ended: How the process ended; None where it still runs (after `raised`).
    """

    def __init__(self, code: FaultCode, message: str, phase: Phase, detail: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.phase = phase
        self.detail = detail
        self.ended: Ended | None = None
