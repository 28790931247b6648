"""One candidate process as the operating system sees it: started, bounded, ended, output kept; no orders."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import SandboxError

OUTPUT_LIMIT = 64 * 1024
"""Bytes kept of each stream of a candidate."""

_GENTLE = 5.0
"""Seconds for a watcher outside the PID namespace to end everything inside, a device context included."""

_FORCED = 10.0
"""Seconds for the kernel to remove a process that got SIGKILL; a driver may hold it up for a while."""


@dataclass(frozen=True)
class Launch:
    """How to start the process.

    Attributes:
        command: Program and arguments.
        environment: All of it; nothing is inherited.
        folder: Working folder.
        stdout, stderr: Files that the output goes to, made anew.
        output_limit: Bytes kept of each; a tool's report may be longer than what a candidate may print.
    """

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    folder: Path
    stdout: Path
    stderr: Path
    output_limit: int = OUTPUT_LIMIT


@dataclass(frozen=True)
class Ended:
    """How the process ended; its output is what a stranger printed and is never read for a decision.

    Attributes:
        returncode: As subprocess counts (negative: a signal). None: it could not be removed in time.
        seconds: From start to end.
    """

    returncode: int | None
    stdout: str
    stderr: str
    seconds: float


class CandidateProcess:
    """A started process with its whole process group."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._started = time.monotonic()
        self._ended: Ended | None = None
        self.watched = False
        """Whether a watcher stands outside the PID namespace and ends everything inside on SIGTERM."""
        try:
            with _fresh(launch.stdout) as stdout, _fresh(launch.stderr) as stderr:
                self._process = subprocess.Popen(
                    launch.command,
                    env=dict(launch.environment),
                    cwd=launch.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=stdout,
                    stderr=stderr,
                    start_new_session=True,
                )
        except OSError as error:
            raise SandboxError(f"{launch.command[0]} cannot be started: {error}.") from error

    @property
    def pid(self) -> int:
        """Process id, also the id of its session and group."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def wait(self, seconds: float) -> bool:
        """Whether it ends by itself in that time."""
        try:
            self._process.wait(timeout=max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> Ended:
        """Remove what still runs and tell how it ended; the same answer each time."""
        if self._ended is None:
            self._remove()
            self._ended = Ended(
                self._process.poll(),
                self._output(self._launch.stdout),
                self._output(self._launch.stderr),
                time.monotonic() - self._started,
            )
        return self._ended

    def _remove(self) -> None:
        if self.running and self.watched:
            self._process.send_signal(signal.SIGTERM)
            self.wait(_GENTLE)
        # Also where the leader has ended: others of its group may be left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait(_FORCED)

    def _output(self, path: Path) -> str:
        limit = self._launch.output_limit
        with path.open("rb") as file:
            kept = file.read(limit + 1)
        if len(kept) > limit:
            os.truncate(path, limit)
        return kept[:limit].decode("utf-8", errors="replace")


def signal_name(number: int) -> str:
    """`SIGSEGV`, or the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@contextlib.contextmanager
def _fresh(path: Path) -> Iterator[int]:
    """A new empty file to append to, readable by nobody else."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        yield fd
    finally:
        os.close(fd)
