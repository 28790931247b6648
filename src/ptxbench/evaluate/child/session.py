"""One candidate process from start to end, as the judge drives it; it decides nothing about results.

A session raises `CandidateFault` for what the candidate did, and `SandboxError`, `DeviceError` or `ToolError` for what
went wrong before any code of the candidate had run.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import NoReturn

from ptxbench.errors import DeviceError, SandboxError, ToolError
from ptxbench.evaluate.child.channel import Channel, ClosedError, Listener, OversizedError, SilentError
from ptxbench.evaluate.child.exchange import Answer, Exchange
from ptxbench.evaluate.child.faults import CandidateFault, FaultCode
from ptxbench.evaluate.child.instrument import SpanResult, read_spans
from ptxbench.evaluate.child.process import CandidateProcess, Ended, signal_name
from ptxbench.evaluate.child.spec import SessionSpec, launch_of, setup_of
from ptxbench.evaluate.child.wire import (
    Argument,
    Done,
    ForgedMessageError,
    Kind,
    Module,
    Phase,
    ProtectionReport,
    Status,
    call_payload,
    map_payload,
    setup_payload,
)

__all__ = ["CallResult", "CandidateFault", "Session", "SessionSpec"]

_ORDER = 10.0
"""Seconds for orders in which no code of the candidate has a part."""

_LAST_WORD = 2.0
"""Seconds between the end of the channel and the end of the process behind it."""


@dataclass(frozen=True)
class CallResult:
    """One call that returned without an error.

    Attributes:
        wall_ns: The judge's clock, from the report that `run` is entered to the report that the device is idle again.
        host_ns: The same by the process's own clock, without the channel.
        spans: Device activity in the call; None where it was not asked for or the instrument failed.
        instrument_error: CUPTI's name for what went wrong, else empty.
    """

    wall_ns: int
    host_ns: int
    spans: SpanResult | None = None
    instrument_error: str = ""


class Session:
    """A running candidate process; a context manager that leaves nothing running."""

    def __init__(self, spec: SessionSpec, process: CandidateProcess, channel: Channel) -> None:
        self._spec = spec
        self._process = process
        self._channel = channel
        self._sequence = -1
        self._waiting: deque[tuple[Kind, int]] = deque()
        self._names: list[str] = []
        self._modules: list[Module] = []
        self._protections: list[ProtectionReport] = [_guard_judge()]
        self._introduced = False
        self._inside = False
        self.phase = Phase.STARTED

    @classmethod
    def start(cls, spec: SessionSpec, deadline: float) -> Session:
        """`begin` and `ready` in one."""
        session = cls.begin(spec, deadline)
        session.ready(deadline)
        return session

    @classmethod
    def begin(cls, spec: SessionSpec, deadline: float) -> Session:
        """Start the process and send it all it needs, but do not wait: it makes its context meanwhile.

        The calling thread must live as long as the session, because the process dies with it.

        Args:
            spec: What to start.
            deadline: Seconds for the process to connect.

        Raises:
            SandboxError: It cannot be started, or does not connect.
        """
        listener = Listener()
        try:
            process = CandidateProcess(launch_of(spec, listener.path))
            try:
                channel = listener.accept(process, deadline)
            except SandboxError as error:
                raise SandboxError(f"{error.what} It said: {process.end().stderr[-500:]!r}", error.remedy) from error
        finally:
            listener.close()
        session = cls(spec, process, channel)
        try:
            session._introduce()
        except BaseException:
            session.close()
            raise
        return session

    def ready(self, deadline: float) -> None:
        """Wait until the sandbox, the context and the memory are there.

        Raises:
            SandboxError: The process cannot be set up.
            DeviceError: The device refuses.
            ToolError: The activity instrument cannot be started.
        """
        until = time.monotonic() + deadline
        try:
            while self._waiting:
                self._answer(until)
            if not self._introduced:
                self._gone()
        except BaseException:
            self.close()
            raise

    def load(self, deadline: float) -> None:
        """Load the candidate; its initialisers run.

        Raises:
            CandidateFault: `load_failed`, `no_symbol`, `hang_at_load`, or as in `call`.
        """
        self._inside = True  # from here on the candidate answers for what happens
        self._exchange(Kind.LOAD, b"", deadline)

    def call(self, arguments: Sequence[Argument], deadline: float) -> CallResult:
        """Call the candidate once and wait until the device is idle.

        Args:
            arguments: In the problem's order.
            deadline: Seconds until the call counts as hung.

        Raises:
            CandidateFault: It did not return cleanly. The session is over, except after `raised`.
        """
        answer = self._exchange(Kind.CALL, call_payload(arguments), deadline)
        return CallResult(answer.wall_ns, answer.done.host_ns, self._spans(answer), _instrument_error(answer.done))

    def calibrate(self, deadline: float = _ORDER) -> CallResult:
        """A call that does next to nothing (four bytes set on the device): what launching and waiting cost."""
        answer = self._exchange(Kind.CALIBRATE, b"", deadline)
        return CallResult(answer.wall_ns, answer.done.host_ns)

    def reset_l2(self, deadline: float = _ORDER) -> None:
        """Take back whatever the candidate's context lets persist in L2."""
        self._exchange(Kind.RESET_L2, b"", deadline)

    @property
    def protections(self) -> tuple[ProtectionReport, ...]:
        """Each protection, active or missing with the reason; complete once the session is ready."""
        return tuple(self._protections)

    @property
    def modules(self) -> tuple[Module, ...]:
        """All machine code that has been loaded into the process up to the last call; empty without the instrument."""
        return tuple(self._modules)

    def finish(self, deadline: float = _ORDER) -> Ended:
        """Let the process end by itself (a tool writes its report then), and tell how it ended.

        Raises:
            CandidateFault: `forged_reply`: something came that nobody had asked for. `hang`: it did not end in time.
        """
        self._expect_silence()
        with contextlib.suppress(ClosedError):
            self._channel.send(Kind.QUIT, self._sequence + 1)
        if not self._process.wait(deadline):
            self._fail("hang", f"The process did not end within {deadline:.1f} s of being told to.")
        return self.close()

    def close(self) -> Ended:
        """Remove the process with everything it has started; the same answer each time."""
        ended = self._process.end()
        self._channel.close()
        return ended

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _introduce(self) -> None:
        spec = self._spec
        try:
            setup = setup_payload(setup_of(spec))
            with spec.library.open("rb") as library:
                self._send(Kind.SETUP, setup, library.fileno())
            for buffer in spec.buffers:
                self._send(Kind.MAP, map_payload(buffer.size), buffer.fd)
            self._send(Kind.READY)
            self._introduced = True
        except ClosedError:
            return  # what it has answered so far tells why
        except (OSError, ValueError) as error:
            raise SandboxError(f"The candidate process cannot be told what to load: {error}.") from error

    def _send(self, kind: Kind, payload: bytes = b"", fd: int | None = None) -> None:
        self._sequence += 1
        self._channel.send(kind, self._sequence, payload, fd)
        self._waiting.append((kind, self._sequence))

    def _exchange(self, kind: Kind, payload: bytes, deadline: float) -> Answer:
        self._expect_silence()
        try:
            self._send(kind, payload)
        except ClosedError:
            self._gone()
        return self._answer(time.monotonic() + deadline)

    def _expect_silence(self) -> None:
        try:
            silent = self._channel.is_silent()
        except ClosedError:
            self._gone()
        except OversizedError:
            self._fail("oversized_reply", "A message came that is longer than any the program sends.")
        if not silent:
            self._fail("forged_reply", "A message came that nobody had asked for.")

    def _answer(self, until: float) -> Answer:
        """Receive everything that belongs to the oldest order without an answer."""
        kind, sequence = self._waiting.popleft()
        exchange = Exchange(kind, len(self._names))
        try:
            while exchange.done is None:
                exchange.take(self._channel.receive(sequence, until))
                self.phase = exchange.phase or self.phase
        except SilentError:
            self._silent(kind)
        except ClosedError:
            self._gone()
        except OversizedError:
            self._fail("oversized_reply", "A message came that is longer than any the program sends.")
        except ForgedMessageError as error:
            self._fail("forged_reply", f"The process sent {error}.")
        answer = exchange.answer()
        self._keep(answer)
        self._judge(answer.done)
        return answer

    def _keep(self, answer: Answer) -> None:
        self._names += answer.names
        self._modules += answer.modules
        self._protections += answer.protections
        if any(protection.name == "pid_namespace" and protection.active for protection in answer.protections):
            self._process.watched = True

    def _spans(self, answer: Answer) -> SpanResult | None:
        if answer.spans is None:
            return None
        try:
            return read_spans(answer.spans.data, self._names)
        except ForgedMessageError as error:
            self._fail("forged_reply", f"The process sent {error}.")

    def _judge(self, done: Done) -> None:
        """Raise unless the order ended well; before the candidate is loaded nothing is its fault."""
        if done.status is Status.OK:
            return
        if not self._inside:
            raise _setup_error(done, self.phase)
        if self._spec.replayed and done.status is Status.PROTOCOL:  # no code of the candidate could have said so
            self.close()
            raise SandboxError(f"The recorded calls cannot be replayed: {done.text}.", "Use `--host live`.")
        if done.status is Status.RAISED:
            raise CandidateFault("raised", f"The candidate raised an error: {done.text}", self.phase, done.text)
        if done.status is Status.CUDA:
            text = f"The device reports {done.cuda_name}."
            if self._spec.wrapper:  # the tool has yet to write down what it saw: `finish` lets it
                raise CandidateFault("cuda_error", text, self.phase, done.cuda_name)
            self._fail("cuda_error", text, done.cuda_name)
        if done.status is Status.LOAD_FAILED:
            self._fail("load_failed", f"The library cannot be loaded: {done.text}", done.text)
        if done.status is Status.NO_SYMBOL:
            self._fail("no_symbol", f"The library exports no {done.text}.", done.text)
        if done.status is not Status.INSTRUMENT:
            self._fail("forged_reply", f"The process answered {done.status.name}, which makes no sense here.")

    def _silent(self, kind: Kind) -> NoReturn:
        if not self._inside:
            raise SandboxError(f"The candidate process is stuck after phase {self.phase.name}.")
        code: FaultCode = "hang_at_load" if kind is Kind.LOAD else "hang"
        self._fail(code, "The candidate did not come back in time.")

    def _gone(self) -> NoReturn:
        """The channel's other end is closed: find out what became of the process."""
        if not self._process.wait(_LAST_WORD) and not self._spec.wrapper:
            self._fail("forged_reply", "The process closed its channel and lived on.")
        returncode = self.close().returncode
        if not self._inside:
            stderr = self.close().stderr[-500:]
            raise SandboxError(f"The candidate process ended with {returncode} after {self.phase.name}: {stderr!r}.")
        if returncode is not None and returncode < 0 and not self._spec.wrapper:
            name = signal_name(-returncode)
            self._fail("crashed", f"The process was ended by {name}.", name)
        where = "while loading" if self.phase is Phase.LOADING else "in the call"
        self._fail("exited", f"The process ended with status {returncode} {where}.", str(returncode))

    def _fail(self, code: FaultCode, message: str, detail: str = "") -> NoReturn:
        if not self._inside:
            self.close()
            raise SandboxError(message)
        fault = CandidateFault(code, message, self.phase, detail)
        fault.ended = self.close()
        raise fault


def _setup_error(done: Done, phase: Phase) -> SandboxError | DeviceError | ToolError:
    what = f"{done.cuda_name} {done.text}".strip()
    if done.status is Status.CUDA:
        return DeviceError(
            f"The candidate process cannot use the device after phase {phase.name}: {what}.", "Run `ptxbench doctor`."
        )
    if done.status is Status.INSTRUMENT:
        return ToolError(f"The activity instrument cannot start: {what}.", "Let no other profiler attach.")
    return SandboxError(f"The candidate process cannot be set up ({done.status.name}): {what}.")


def _instrument_error(done: Done) -> str:
    return done.cuda_name or str(done.cuda_error) if done.status is Status.INSTRUMENT else ""


def _guard_judge() -> ProtectionReport:
    """Let no process of the same user read this one's memory or descriptors (prctl(2), PR_SET_DUMPABLE)."""
    libc = ctypes.CDLL(None, use_errno=True)
    failed = libc.prctl(4, 0, 0, 0, 0) != 0
    error = ctypes.get_errno() if failed else 0
    return ProtectionReport("judge_undumpable", not failed, error, os.strerror(error) if failed else "")
