"""Runs host code in its own confined process and answers its questions until it ends; always ends, never crashes.

The process can read libraries, and nothing else: no writing, no network, no other process, 2 GiB of memory.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ptxbench.emulator.host.device import HostDevice
from ptxbench.emulator.host.kernels import KernelInfo, kernels_of
from ptxbench.emulator.host.record import Ending, LaunchRecord, TensorArgument
from ptxbench.emulator.host.runtime import Excess, Performer, Runtime
from ptxbench.emulator.host.stubs import stubs
from ptxbench.emulator.host.wire import Channel, NonsenseError, Op, Question
from ptxbench.errors import SandboxError
from ptxbench.schema.values import Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.confine import confinement
from ptxbench.toolchain.toolkit import find_tvm_ffi

SECONDS = 10.0
"""Time that a host call gets; it launches, it does not compute."""

_ATTEMPTS = 4
_GRACE = 1.0
_NONSENSE = "The host code spoke over the connection of its process."
_TEXT = 2000
_ENDINGS = ("returned", "raised", "not_loaded", "no_symbol")
_OWN_EXITS = {
    120: "it lost its connection",
    121: "it was called wrongly",
    122: "a stub library does not load",
    123: "this machine does not filter system calls",
    125: "its files cannot be confined",
}
_BAD_ORDER = 124
"""Exit status when addresses of the arguments are taken in the new process; another one is laid out otherwise."""


@dataclass(frozen=True)
class HostSettings:
    """How host code is run.

    Attributes:
        device: What it is told of the device.
        seconds: Time that it gets.
        kernels: What the library's machine code says of its kernels, by name; None to read it.
    """

    device: HostDevice = field(default_factory=HostDevice)
    seconds: float = SECONDS
    kernels: Mapping[str, KernelInfo] | None = None


def record(
    library: Path,
    symbol: str,
    arguments: Sequence[TensorArgument],
    settings: Settings,
    host: HostSettings | None = None,
    performer: Performer | None = None,
) -> LaunchRecord:
    """Call `symbol` of a TVM-FFI candidate with no GPU, and say what it asked the device for.

    Args:
        library: The candidate's shared object, unmodified.
        symbol: Its TVM-FFI name, such as `run`.
        arguments: Tensors whose addresses are opaque numbers; they must not be those of this machine's own memory.
        settings: The environment.
        host: The device and the time.
        performer: Carries out the operations as they come, for host code that reads results; None to record alone.

    Raises:
        ToolError: A tool is missing, or the library's machine code is malformed.
        SandboxError: The process cannot be set up.
    """
    return record_calls(library, symbol, [arguments], settings, host, performer)[0]


def record_calls(
    library: Path,
    symbol: str,
    calls: Sequence[Sequence[TensorArgument]],
    settings: Settings,
    host: HostSettings | None = None,
    performer: Performer | None = None,
) -> tuple[LaunchRecord, ...]:
    """Make several calls, at least one, in one process; as `record`, a record of each call that was begun.

    All calls have arguments of the same shapes. What is not of one call alone (`live`, `failures`, `ending`, `hints`)
    stands in each record. A process that ends before its first call still gives that call's record.

    Raises:
        ToolError: As `record`.
        SandboxError: As `record`.
    """
    how = host or HostSettings()
    kernels = kernels_of(library, settings) if how.kernels is None else how.kernels
    for _ in range(_ATTEMPTS):
        runtime = Runtime(calls, kernels, how.device, performer)
        ending = _run(runtime, _command(library, symbol, settings), how.seconds)
        if ending is not None:
            return _records(runtime, symbol, calls, ending)
    raise SandboxError("The arguments' addresses are in use in every new process.", "Choose other addresses.")


def _records(
    runtime: Runtime, symbol: str, calls: Sequence[Sequence[TensorArgument]], ending: Ending
) -> tuple[LaunchRecord, ...]:
    starts = [0, *runtime.starts[1:], len(runtime.operations)]
    return tuple(
        LaunchRecord(
            symbol=symbol,
            arguments=tuple(arguments),
            operations=tuple(runtime.operations[begin:end]),
            live=tuple(runtime.live),
            failures=tuple(runtime.failures),
            ending=ending,
            unsupported=tuple(runtime.unsupported),
            hints=tuple(runtime.hints),
            handles=tuple(runtime.handles),
        )
        for arguments, begin, end in zip(calls, starts, starts[1:], strict=False)
    )


def _command(library: Path, symbol: str, settings: Settings) -> list[str]:
    """The program's words; `{socket}` stands for the descriptor."""
    parts, ffi = stubs(settings), find_tvm_ffi().library / "libtvm_ffi.so"
    files = [parts.runtime, parts.driver, ffi, library.resolve()]
    words = [str(parts.program), "{socket}", *(str(path) for path in files), symbol]
    wall = confinement(settings)
    if isinstance(wall, Unavailable):
        return words  # the filter of system calls still lets files be read alone
    return wall.command(words, reads=[parts.program, *files, ffi.parent], writes=[])


def _run(runtime: Runtime, command: list[str], seconds: float) -> Ending | None:
    """One process from start to end; None when it could not place the arguments."""
    deadline = time.monotonic() + seconds
    ours, theirs = socket.socketpair()
    with ours, theirs, tempfile.TemporaryFile() as output:
        words = [word.format(socket=theirs.fileno()) if word == "{socket}" else word for word in command]
        process = _start(words, theirs, output)
        theirs.close()
        try:
            ending = _serve(runtime, Channel(ours, deadline))
            if ending is None:
                ending = _unexpected(process.wait(_GRACE), output)
        except TimeoutError:
            ending = Ending(kind="timeout", message=f"The host code did not end within {seconds:g} s.")
        except subprocess.TimeoutExpired:
            ending = Ending(kind="crashed", message="The host code closed the connection of its process.")
        except NonsenseError:
            ending = Ending(kind="crashed", message=_NONSENSE)
        finally:
            _end(process)
        return ending


def _start(words: list[str], theirs: socket.socket, output: IO[bytes]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=(theirs.fileno(),),
            env={},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"The host process does not start: {error.strerror}.", "Report this.") from error


def _serve(runtime: Runtime, channel: Channel) -> Ending | None:
    """Answer until the process tells its end; None when it just stops."""
    while (question := channel.receive()) is not None:
        if question.op is Op.ENDED:
            return _told(question)
        asked = time.monotonic()
        try:
            answer = runtime.answer(question)
        except Excess as excess:
            return Ending(kind="excess", message=f"The host code made {excess}.")
        channel.extend(time.monotonic() - asked)  # an emulated kernel takes its time; the host's is not running
        with contextlib.suppress(ConnectionError):
            channel.send(answer)
    return None


def _told(question: Question) -> Ending:
    number = question.words[0] if question.words else len(_ENDINGS)
    if number >= len(_ENDINGS):
        return Ending(kind="crashed", message=_NONSENSE)
    return Ending(kind=_ENDINGS[number], message=question.text[:_TEXT])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Nothing of the process or of what it started is left; the group has its number."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _unexpected(status: int, output: IO[bytes]) -> Ending | None:
    """An end that the process did not tell."""
    if status == _BAD_ORDER:
        return None
    output.seek(0)
    said = output.read(1 << 20)[-_TEXT:].decode("utf-8", "replace").strip()
    if status in _OWN_EXITS:
        raise SandboxError(f"The host process failed: {_OWN_EXITS[status]}. {said}".strip(), "Report this.")
    if status >= 0:
        return Ending(kind="crashed", message=f"The host code ended its process with status {status}. {said}".strip())
    name = signal.Signals(-status).name
    hint = " Device memory cannot be touched by the host." if name == "SIGSEGV" else ""
    return Ending(kind="crashed", message=f"The host code was ended by {name}.{hint} {said}".strip())
