"""The wall around the compiler of hostile source: it reads headers and sources and writes its work folder, no more.

Not the sandbox of a running candidate. Where the kernel has no Landlock, compilers run unconfined and
`includes.refused_includes` is the only guard; `confinement` says so for the record.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import ToolError
from ptxbench.schema.values import Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.call import run_tool
from ptxbench.toolchain.native import native_binary

_SOURCE = Path(__file__).parent / "native" / "confine.c"

_SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache", "/dev/urandom")
"""What any compiler needs to read: itself, its libraries, the C library's headers."""

_DEVICES = ("/dev/null",)
_PROBE_SECONDS = 60.0
"""One system call; on a crowded machine it must not be taken for missing all the same."""


@dataclass(frozen=True)
class Confinement:
    """A way to run commands that reach only given files."""

    program: Path

    def command(self, words: Iterable[str], *, reads: Iterable[Path], writes: Iterable[Path]) -> list[str]:
        """`words`, confined; the first word must be an absolute path."""
        readable = [*_SYSTEM, *(str(path.resolve()) for path in reads)]
        writable = [*_DEVICES, *(str(path.resolve()) for path in writes)]
        rules = [word for path in readable for word in ("-r", path)]
        rules += [word for path in writable for word in ("-w", path)]
        return [str(self.program), *rules, "--", *words]


@functools.cache
def confinement(settings: Settings) -> Confinement | Unavailable:
    """The confinement that this machine offers to compilers."""
    missing = "The kernel confines no files (no Landlock)."
    try:
        program = native_binary("confine", [_SOURCE], settings, kind="executable")
    except ToolError as error:
        return Unavailable(
            name="compiler confinement", reason=error.what, remedy="Install Linux headers of 5.13 or later."
        )
    if run_tool([program, "--probe"], timeout=_PROBE_SECONDS).succeeded:
        return Confinement(program)
    return Unavailable(name="compiler confinement", reason=missing, remedy="Use Linux 5.13 or later with Landlock on.")
