"""One started process with its socket: kept to its memory and time, its answers bounded and checked; no kernel."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from pydantic import ValidationError

from ptxbench.emulator.apart.messages import HEADER, MOST_JSON, Reply, pack
from ptxbench.emulator.apart.usage import Usage, usage
from ptxbench.emulator.host.record import Value
from ptxbench.errors import PtxbenchError, SandboxError
from ptxbench.settings import Settings

_SERVE = "ptxbench.emulator.apart.serve"
_PACKAGES = Path(__file__).parents[3]
_LOOK = 0.05
"""Seconds between two looks at the process."""

_WALL = 4.0
"""Seconds on the wall per second of processor time that a call may take: it may have to share its cores."""

_START = 60.0
"""Seconds on the wall that Python's own start may take, whatever else the machine does."""

_GRACE = 2.0
BROKEN = "The emulating process broke its protocol."
_SAID = 600


class Stopped(PtxbenchError):  # noqa: N818  (a limit did its work; nobody made a mistake)
    """The emulating process was ended, or came to its end, before it answered.

    Attributes:
        kind: `memory`, `time`, or `failed` (it crashed, or broke the protocol).
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


@dataclass(frozen=True)
class Limits:
    """What emulation may take.

    Attributes:
        memory: Resident bytes.
        seconds: Of processor time, for reading the text; calls have their own.
    """

    memory: int
    seconds: float = 60.0

    @classmethod
    def of_this_machine(cls) -> Limits:
        """Half of this machine's memory, at most 16 GiB."""
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return cls(min(total // 2, 16 << 30))


def too_much(limits: Limits) -> str:
    """What people read when the memory did not suffice."""
    return f"The emulation needs more than {limits.memory / 2**30:.3g} GiB of memory."


@dataclass
class Running:
    """A started process, our end of its socket, and what it may still use."""

    process: subprocess.Popen[bytes]
    socket: socket.socket
    said: IO[bytes]
    limits: Limits
    until: float = 0.0
    """Processor time at which it is ended."""
    deadline: float = 0.0
    """The same on the wall (time.monotonic)."""
    seconds: float = 0.0
    asked: float = 0.0
    loaded: bool = False

    @classmethod
    def start(cls, limits: Limits, settings: Settings) -> Running:
        """Start a process."""
        ours, theirs = socket.socketpair()
        said = tempfile.TemporaryFile()  # noqa: SIM115  (closed by `end`)
        try:
            process = subprocess.Popen(
                _command(theirs.fileno(), limits, settings),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                pass_fds=(theirs.fileno(),),
                env=_environment(settings),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            said.close()
            raise SandboxError(f"The emulating process does not start: {error.strerror}.", "Report this.") from error
        finally:
            theirs.close()
        return cls(process, ours, said, limits)

    def budget(self, seconds: float) -> None:
        """Let it use so much processor time from now on."""
        self.seconds = seconds
        self.until = usage(self.process.pid).seconds + (seconds or math.inf)
        self.deadline = _START + _WALL * (seconds or math.inf)

    def ask(self, request: Value, data: bytes, most: int) -> tuple[Reply, bytes]:
        """Send a request and wait for its answer, which has at most `most` bytes beside it.

        Raises:
            Stopped: There was none in time, or it makes no sense.
        """
        self.asked = time.monotonic()
        try:
            for piece in (pack(request, data), data):
                self._send(memoryview(piece))
            size, more = HEADER.unpack(self._receive(HEADER.size))
            if size > MOST_JSON or more > most:
                raise Stopped("failed", BROKEN)
            reply = Reply.model_validate_json(self._receive(size))
            answer = reply, bytes(self._receive(more))
        except ValidationError:
            raise Stopped("failed", BROKEN) from None
        self.deadline -= time.monotonic() - self.asked
        return answer

    def end(self) -> None:
        """Nothing of it is left; the group has its number."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.socket.close()
        self.said.close()

    def _send(self, piece: memoryview) -> None:
        while piece:
            self._await(writing=True)
            try:
                piece = piece[self.socket.send(piece, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                continue
            except ConnectionError:
                raise self._gone() from None

    def _receive(self, size: int) -> bytearray:
        body = bytearray(size)
        view, got = memoryview(body), 0
        while got < size:
            self._await(writing=False)
            try:
                count = self.socket.recv_into(view[got:])
            except ConnectionError:
                raise self._gone() from None
            if count == 0:
                raise self._gone()
            got += count
        return body

    def _await(self, *, writing: bool) -> None:
        """Until the socket is ready; meanwhile the process keeps to its limits or is ended."""
        ours = [self.socket]
        while not any(select.select([] if writing else ours, ours if writing else [], [], _LOOK)):
            self._look(usage(self.process.pid))

    def _look(self, now: Usage) -> None:
        if now.memory > self.limits.memory:
            raise Stopped("memory", too_much(self.limits))
        if now.seconds > self.until:
            raise Stopped("time", f"The emulation takes more than {self.seconds:.3g} s of processor time.")
        if time.monotonic() - self.asked > self.deadline:
            raise Stopped("time", f"The emulation takes more than {_START + _WALL * self.seconds:.3g} s.")

    def _gone(self) -> Stopped:
        """It closed its end."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(_GRACE)
        status = self.process.returncode
        self.said.seek(0)
        said = self.said.read(1 << 20)[-_SAID:].decode("utf-8", "replace").strip()
        how = f"signal {-status}" if status is not None and status < 0 else f"status {status}"
        return Stopped("failed", f"The emulating process ended with {how}. {said}".strip())


def _command(descriptor: int, limits: Limits, settings: Settings) -> list[str]:
    return [str(settings.python), "-m", _SERVE, str(descriptor), str(limits.memory)]


def _environment(settings: Settings) -> dict[str, str]:
    return {
        "PATH": settings.path,
        "PYTHONPATH": os.pathsep.join([str(_PACKAGES), *filter(None, sys.path)]),
        "PTXBENCH_CACHE": str(settings.cache),
        "OPENBLAS_NUM_THREADS": "1",
    }
