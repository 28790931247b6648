"""The caller's side of an emulating process: starts it, watches its memory and time, checks its answers, ends it.

Where the border lies: the emulator is our own code, but it works for a stranger's text, and so the process that runs it
is believed in nothing. It holds the candidate's PTX and the inputs; not the expected outputs, which it could copy. It
reads Python's files and writes none (where the kernel has Landlock), its answers are data of bounded size that is
checked field by field, and addresses, sizes and limits are the caller's. What decides the verdict, the comparison,
happens on this side.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from ptxbench.emulator.apart.messages import Begin, Finish, How, Load, Perform, Read, Refusal, Reply, Watch, Write
from ptxbench.emulator.apart.running import BROKEN, Limits, Running, Stopped, too_much
from ptxbench.emulator.host.kernels import KernelInfo
from ptxbench.emulator.host.record import Operation, Value
from ptxbench.emulator.launch import Policy
from ptxbench.errors import PtxbenchError
from ptxbench.settings import Settings

_MOST_TIMELINE = 1 << 28


class Refused(PtxbenchError):  # noqa: N818  (a state of the text)
    """The text cannot be emulated.

    Attributes:
        kind: `text` or `unsupported`.
    """

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


class EmulatingProcess:
    """An emulated device that lives in a process of its own; it is started on first use, and again after it was ended.

    Use as a context manager: nothing of it is left afterwards, also after Ctrl-C. It is a `Performer` for live host
    code.
    """

    def __init__(self, text: str, kernels: Mapping[str, KernelInfo], limits: Limits, settings: Settings) -> None:
        self._text = text
        self._kernels = tuple(kernels.values())
        self._limits = limits
        self._settings = settings
        self._running: Running | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def start(self) -> None:
        """Start the process ahead of its first use; Python takes a second for it.

        Raises:
            SandboxError: It does not start.
        """
        if self._running is None:
            self._running = Running.start(self._limits, self._settings)

    def load(self) -> None:
        """Start the process and have the text read, unless that is done.

        Raises:
            Refused: It cannot be emulated.
            Stopped: Reading it took too much.
            SandboxError: The process does not start.
        """
        self.start()
        assert self._running is not None
        if not self._running.loaded:
            self._running.budget(self._limits.seconds)
            self._ask(Load(kernels=self._kernels), self._text.encode())
            self._running.loaded = True

    def begin(self, sizes: Sequence[int], policy: Policy, seconds: float, watch: Watch = "") -> None:
        """An empty device with arguments of these sizes at `argument_places`.

        Args:
            sizes: Bytes of each argument.
            policy: How to run launches; its observer does not cross the border, `watch` names one.
            seconds: Of processor time, until the next `begin`; 0: no limit.
            watch: What looks on.

        Raises:
            Refused, Stopped, SandboxError: As `load`.
        """
        self.load()
        assert self._running is not None
        self._running.budget(seconds)
        self._ask(Begin(sizes=tuple(sizes), how=How.of(policy), watch=watch))

    def write(self, address: int, data: bytes) -> None:
        """Put bytes into device memory.

        Raises:
            Stopped: The process was ended.
        """
        self._ask(Write(address=address), data)

    def read(self, address: int, size: int) -> bytes:
        """Bytes of device memory; zeros where there is none.

        Raises:
            Stopped: The process was ended.
        """
        return self._ask(Read(address=address, size=size), most=size, exactly=True)[1]

    def perform(self, operation: Operation) -> int:
        """Carry out one operation; the CUDA error code that its call returns.

        Raises:
            Stopped: The process was ended.
        """
        return self.replay((operation,))

    def replay(self, operations: Iterable[Operation]) -> int:
        """Carry out operations up to the first failure, whose code is the answer; 0 if there is none.

        Raises:
            Stopped: The process was ended.
        """
        return self._ask(Perform(operations=tuple(operations)))[0].code

    def finish(self) -> tuple[Reply, bytes]:
        """What all launches since `begin` did; the timeline as JSON, if that was watched.

        Raises:
            Stopped: The process was ended.
        """
        return self._ask(Finish(), most=_MOST_TIMELINE)

    def close(self) -> None:
        """End the process and all that it started."""
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def _ask(self, request: Value, data: bytes = b"", *, most: int = 0, exactly: bool = False) -> tuple[Reply, bytes]:
        """The answer to a request; after one that was not carried out the process is gone."""
        running = self._running
        if running is None:
            raise Stopped("failed", "The emulation was ended before.")
        answered = False
        try:
            reply, more = running.ask(request, data, most)
            if exactly and len(more) != most and reply.refusal is None:
                raise Stopped("failed", BROKEN)
            answered = reply.refusal is None
        finally:
            if not answered:
                self.close()
        if reply.refusal is not None:
            raise _error(reply.refusal, self._limits)
        return reply, more


def _error(refusal: Refusal, limits: Limits) -> PtxbenchError:
    if refusal.kind == "memory":
        return Stopped("memory", too_much(limits))
    if refusal.kind == "failed":
        return Stopped("failed", f"The emulator itself failed: {refusal.message}.")
    return Refused(refusal.kind, refusal.message)
