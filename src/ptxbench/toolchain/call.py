"""One call of an external tool: bounded in time, output and memory, in a scrubbed environment; it judges no result."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import ToolError

OUTPUT_LIMIT = 2**20
"""Bytes kept of each output stream unless a caller says otherwise: the head and the tail, half each."""

PACKAGES = {
    "g++": "the Debian package g++",
    "gcc": "the Debian package gcc",
    "make": "the Debian package make",
    "sh": "the Debian package dash",
    "nvcc": "the Python package nvidia-cuda-nvcc",
    "ptxas": "the Python package nvidia-cuda-nvcc",
    "cuobjdump": "the Python package nvidia-cuda-cuobjdump",
    "nvdisasm": "the Python package nvidia-cuda-nvdisasm",
    "compute-sanitizer": "the Python package nvidia-cuda-sanitizer-api",
    "ncu": "Nsight Compute (the package nsight-compute of NVIDIA's repository)",
}
"""Where each tool comes from, for the message when it is missing."""

_POLL = 0.05
"""Seconds between two looks at a tool whose descendants keep its pipes open after it ended."""


@dataclass(frozen=True)
class Limits:
    """Resource limits of a tool and of every process it starts (setrlimit(2)); each process has them for itself.

    Attributes:
        address_space: Bytes of virtual memory.
        file_size: Bytes of any file written.
        cpu_seconds: Seconds of processor time.
    """

    address_space: int
    file_size: int
    cpu_seconds: int


@dataclass(frozen=True)
class Call:
    """What a tool did.

    Attributes:
        command: Program and arguments, as asked for.
        seconds: Wall time.
        returncode: Exit status; negative for the signal that ended it; None when it was killed at the timeout.
        stdout: Standard output as text (undecodable bytes replaced); the middle is cut out beyond the limit.
        stderr: Standard error, likewise.
        timed_out: Whether it was killed at the timeout, with everything it had started.
    """

    command: tuple[str, ...]
    seconds: float
    returncode: int | None
    stdout: str
    stderr: str
    timed_out: bool

    @property
    def succeeded(self) -> bool:
        """Whether it ended by itself with status 0."""
        return self.returncode == 0


def package_of(tool: str) -> str:
    """The instruction that makes `tool` available."""
    return f"Install {PACKAGES[tool]}." if tool in PACKAGES else f"Install {tool} or put it on the PATH."


def shorten(text: str, limit: int) -> str:
    """`text` as it is, or its head and tail of at most `limit` bytes together, with a note of what is left out."""
    stream = _Tail(limit)
    stream.add(text.encode())
    return stream.text()


def run_tool(
    command: Sequence[str | Path],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    limit: int = OUTPUT_LIMIT,
    limits: Limits | None = None,
) -> Call:
    """Run `command` to its end or to `timeout` seconds, then kill whatever is left of its process group.

    The tool sees PATH (from `env`, else the system's default), HOME and TMPDIR (a folder that is gone afterwards),
    LANG=C.UTF-8 and what else `env` holds; nothing of this process's environment.

    Raises:
        ToolError: The tool is missing or cannot be started.
    """
    words = tuple(str(word) for word in command)
    with tempfile.TemporaryDirectory(prefix="ptxbench-") as home:
        environment = {"PATH": os.defpath, "LANG": "C.UTF-8", "HOME": home, "TMPDIR": home, **(env or {})}
        arguments = [_find(words[0], environment["PATH"]), *words[1:]]
        if limits is not None:
            arguments = [_find("sh", environment["PATH"]), "-c", _limiting_script(limits), "sh", *arguments]
        started = time.monotonic()
        try:
            process = subprocess.Popen(
                arguments,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(
                f"{words[0]} cannot be started: {error.strerror}.", package_of(Path(words[0]).name)
            ) from error
        with process:
            timed_out, stdout, stderr = _follow(process, started + timeout, limit)
        returncode = None if timed_out else process.returncode
        return Call(words, time.monotonic() - started, returncode, stdout, stderr, timed_out)


def _find(program: str, path: str) -> str:
    found = shutil.which(program, path=path)
    if found is None:
        raise ToolError(f"{program} is missing.", package_of(Path(program).name))
    return found


def _limiting_script(limits: Limits) -> str:
    # A shell sets the limits because code between fork and exec is not safe in a process with threads.
    # ulimit counts memory in KiB and files in blocks of 512 bytes (POSIX).
    memory, blocks = limits.address_space // 1024, limits.file_size // 512
    # The soft limit of processor time is lower, so that the signal is SIGXCPU and not SIGKILL.
    cpu = f"ulimit -S -t {limits.cpu_seconds} && ulimit -H -t {limits.cpu_seconds + 5}"
    return f'ulimit -v {memory} && ulimit -f {blocks} && {cpu} && exec "$@"'


class _Tail:
    """The head and the tail of a stream, each at most half of `limit` bytes."""

    def __init__(self, limit: int) -> None:
        self.half = max(1, limit // 2)
        self.head = bytearray()
        self.tail = bytearray()
        self.dropped = 0

    def add(self, data: bytes) -> None:
        room = self.half - len(self.head)
        self.head += data[:room]
        self.tail += data[room:]
        excess = len(self.tail) - self.half
        if excess > self.half:  # cut seldom, so that a long stream costs linear time
            self.cut(excess)

    def cut(self, excess: int) -> None:
        del self.tail[:excess]
        self.dropped += excess

    def text(self) -> str:
        self.cut(max(0, len(self.tail) - self.half))
        gap = f"\n[... {self.dropped} bytes left out ...]\n".encode() if self.dropped else b""
        return bytes(self.head + gap + self.tail).decode(errors="replace")


def _follow(process: subprocess.Popen[bytes], deadline: float, limit: int) -> tuple[bool, str, str]:
    """Collect the output until the tool ends or the deadline passes: (timed out, standard output, standard error)."""
    assert process.stdout is not None
    assert process.stderr is not None
    streams = {process.stdout.fileno(): _Tail(limit), process.stderr.fileno(): _Tail(limit)}
    timed_out = False
    try:
        with selectors.DefaultSelector() as selector:
            for descriptor in streams:
                selector.register(descriptor, selectors.EVENT_READ)
            while selector.get_map() or not _ended(process):
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    timed_out = not _ended(process)
                    break
                ready = selector.select(min(_POLL, remaining))
                if not ready and _ended(process):
                    break  # a descendant that holds the pipes open is not waited for
                for key, _ in ready:
                    data = os.read(key.fd, 2**16)
                    if data:
                        streams[key.fd].add(data)
                    else:
                        selector.unregister(key.fd)
    finally:
        # Before the process is reaped: until then no other group can bear its number.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    stdout, stderr = streams.values()
    return timed_out, stdout.text(), stderr.text()


def _ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the tool has ended, without reaping it."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
