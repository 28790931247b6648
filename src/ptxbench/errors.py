"""One exception type per boundary, each naming what is at fault and the remedy; a candidate's failure is data instead.

Whatever derives from `PtxbenchError` ends a command with exit code 2, one clear message and no traceback.
"""

from __future__ import annotations


class PtxbenchError(Exception):
    """A user's mistake or a fault of the infrastructure.

    Attributes:
        what: One sentence that names the thing at fault.
        remedy: What the reader can do about it, as an instruction; may be empty.
    """

    def __init__(self, what: str, remedy: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.what} {self.remedy}".strip()


class CommandError(PtxbenchError):
    """An option of a command has a value that means nothing."""


class SettingsError(PtxbenchError):
    """A setting (environment variable, tool path) cannot be used."""


class ProblemError(PtxbenchError):
    """A problem or workload is unknown, unreadable or inconsistent."""


class CandidateError(PtxbenchError):
    """The files given as a candidate cannot be read as one (not: the kernel is wrong)."""


class PackError(PtxbenchError):
    """A knowledge pack, level or patch is unknown, or is not for the problem."""


class ToolError(PtxbenchError):
    """A tool (nvcc, cuobjdump, ncu, ...) is missing, cannot start, or answers what no version of it should."""


class SandboxError(PtxbenchError):
    """The isolated process of a candidate could not be set up."""


class DeviceError(PtxbenchError):
    """The device asked for is absent, of another generation, or does not answer."""


class ProviderError(PtxbenchError):
    """A model is unknown, cannot be reached, refuses the request, or answers what no provider should."""


class RecordError(PtxbenchError):
    """A result could not be written or read back (full disk, unreadable folder, other schema version)."""
