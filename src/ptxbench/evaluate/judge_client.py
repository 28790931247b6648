"""The evaluator's end of the judge: starts the process, sends requests, bounds its answers in time; knows no torch.

The judge is trusted, so its words are believed; but it can hang or die with its device, and then it is replaced.
"""

from __future__ import annotations

import os
import select
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import ValidationError

from ptxbench.errors import DeviceError
from ptxbench.evaluate.child.protocol import Failure, Hello, Measure, Measured, Reply, Request, Wrapped, WrappedRun
from ptxbench.settings import Settings

START_SECONDS = 120.0
"""Importing torch and making a context takes 2-6 s; a cold disk can make it much slower."""
MAX_LINE = 64 * 2**20
CLOSED = -1


@dataclass
class Judge:
    """A running judge process on one device.

    Attributes:
        hello: What it found on its machine.
        log: File with everything it and its libraries printed.
    """

    hello: Hello
    log: Path
    _process: subprocess.Popen[bytes]
    _to: int
    _from: int
    _buffer: bytearray

    @classmethod
    def start(cls, settings: Settings, ordinal: int) -> Judge:
        """Start a judge on device `ordinal` and wait for its greeting.

        Raises:
            DeviceError: It did not come up; the message carries the end of its log.
        """
        folder = Path(tempfile.mkdtemp(prefix="ptxbench-judge-"))
        log = folder / "judge.log"
        request_read, request_write = os.pipe()
        reply_read, reply_write = os.pipe()
        command = [
            str(settings.python),
            "-m",
            "ptxbench.evaluate.child.judge",
            *("--requests", str(request_read), "--replies", str(reply_write), "--device", str(ordinal)),
        ]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                pass_fds=(request_read, reply_write),
                start_new_session=True,
            )
        os.close(request_read)
        os.close(reply_write)
        buffer = bytearray()
        try:
            hello = Hello.model_validate_json(_read_line(reply_read, buffer, time.monotonic() + START_SECONDS))
        except (TimeoutError, EOFError, ValidationError) as error:
            process.kill()
            process.wait()
            raise DeviceError(
                f"The judge process did not start on cuda:{ordinal} ({error}); its log ends: {_tail(log)}",
                "Install the GPU extra (pip install 'ptxbench[gpu]') and run `ptxbench doctor`.",
            ) from error
        return cls(hello, log, process, request_write, reply_read, buffer)

    def measure(self, request: Measure, seconds: float) -> Measured:
        """Check and time a candidate; `seconds` bounds the whole request."""
        body = self._ask(request, seconds)
        if not isinstance(body, Measured):
            raise DeviceError(f"The judge answered a measurement with {type(body).__name__}.", "Report this as a bug.")
        return body

    def wrapped(self, request: Wrapped, seconds: float) -> WrappedRun:
        """Run a candidate under a tool; `seconds` bounds the whole request."""
        body = self._ask(request, seconds)
        if not isinstance(body, WrappedRun):
            raise DeviceError(f"The judge answered a wrapped run with {type(body).__name__}.", "Report this as a bug.")
        return body

    def _ask(self, body: Measure | Wrapped, seconds: float) -> Measured | WrappedRun:
        line = Request(body=body).model_dump_json().encode() + b"\n"
        try:
            _write_all(self._to, line)
            reply = Reply.model_validate_json(_read_line(self._from, self._buffer, time.monotonic() + seconds)).body
        except (TimeoutError, EOFError, OSError, ValidationError) as error:
            self.close()
            raise DeviceError(
                f"The judge on {self.hello.device_name} did not answer ({error}); its log ends: {_tail(self.log)}",
                "Check the GPU with `nvidia-smi` and run `ptxbench doctor`.",
            ) from error
        if reply.fatal:
            self.close()
        if isinstance(reply, Failure):
            raise DeviceError(reply.what, reply.remedy)
        return reply

    @property
    def alive(self) -> bool:
        """Whether the process can take another request."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process; safe to call twice."""
        for descriptor in {self._to, self._from} - {CLOSED}:
            os.close(descriptor)
        self._to = self._from = CLOSED
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _read_line(descriptor: int, buffer: bytearray, deadline: float) -> bytes:
    while (end := buffer.find(b"\n")) < 0:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            raise TimeoutError("no answer within its time")
        chunk = os.read(descriptor, 1 << 20)
        if not chunk:
            raise EOFError("the process ended")
        buffer += chunk
        if len(buffer) > MAX_LINE:
            raise EOFError("an answer without end")
    line = bytes(buffer[:end])
    del buffer[: end + 1]
    return line


def _tail(log: Path, size: int = 600) -> str:
    try:
        return log.read_text(errors="replace")[-size:].strip()
    except OSError:
        return "(no log)"
