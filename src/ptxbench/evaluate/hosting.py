"""Whether a candidate's host code is replayed or runs live on a GPU, and what the verdict says of it; runs neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import SandboxError, ToolError
from ptxbench.evaluate.recording import HostMode, Subject, record_program
from ptxbench.evaluate.replay import encode_program
from ptxbench.schema.problem import Workload
from ptxbench.settings import Settings


@dataclass(frozen=True)
class Host:
    """What becomes of a candidate's host code.

    Attributes:
        program: The file with its replay program; None where it runs live.
        reason: Why it runs live, or why it may not be judged.
        refused: It cannot be replayed and must not run live.
        doubtful: Should the replay fail, a live run has to decide (see `Recorded.exact`).
    """

    program: Path | None
    reason: str = ""
    refused: bool = False
    doubtful: bool = False

    @property
    def name(self) -> str:
        """As `Environment.host_code` has it."""
        if self.refused:
            return ""
        return f"live: {self.reason}" if self.program is None else "replayed"

    def after_failure(self, code: str) -> Host:
        """Live, because the replay failed with this reason's code and the recordings had not agreed in all bytes."""
        what = "parameters of its kernels differ between two recordings in bytes that hold no address"
        return Host(None, f"{what}, and the replay failed ({code})")


def choose_host(
    mode: HostMode, subject: Subject, workloads: Sequence[Workload], settings: Settings, folder: Path
) -> Host:
    """Record a candidate, if it is to be replayed, and keep the program in `folder`.

    Args:
        mode: What was asked for.
        subject: The candidate.
        workloads: All that will be judged, the timed one first.
        settings: The environment.
        folder: Where the program's file goes.

    Raises:
        ToolError: A tool is missing, and it may be replayed alone.
        SandboxError: The host process cannot be set up, and it may be replayed alone.
    """
    if mode == "live":
        return Host(None, "as asked")
    try:
        recorded = record_program(subject, workloads, settings)
    except (ToolError, SandboxError) as error:
        if mode == "replay":
            raise
        return Host(None, f"this machine cannot record it: {error}")
    if isinstance(recorded, str):
        return Host(None, recorded, refused=mode == "replay")
    program = folder / "program.bin"
    program.write_bytes(encode_program(recorded.program))
    return Host(program, doubtful=not recorded.exact and mode == "auto")
