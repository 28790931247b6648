"""The judge's end of the socket to one candidate process: bounded waiting, hostile input; no meaning."""

from __future__ import annotations

import os
import select
import socket
import struct
import tempfile
import time
from pathlib import Path

from ptxbench.errors import SandboxError
from ptxbench.evaluate.child.process import CandidateProcess
from ptxbench.evaluate.child.wire import LARGEST, Kind, Message, decode, order

_AWAKE = 0.05
"""Seconds of waiting awake: a processor that sleeps comes back 0.05-0.3 ms late, and a clock would count that."""

_STEP = 0.02
"""Seconds between two looks at whether the process that should connect still lives."""


class ClosedError(Exception):
    """The other end is closed."""


class SilentError(Exception):
    """Nothing came in time."""


class OversizedError(Exception):
    """A message longer than any that the candidate program sends."""


class Listener:
    """A socket in a folder of its own that one process may connect to."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ptxbench-")
        self.path = Path(self._folder.name) / "s"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.bind(str(self.path))
        self._socket.listen(1)

    def accept(self, process: CandidateProcess, seconds: float) -> Channel:
        """The channel to `process`, or to the process that a tool has started for it.

        Raises:
            SandboxError: It ended or did not connect in time, or somebody else did.
        """
        until = time.monotonic() + seconds
        self._socket.settimeout(_STEP)
        while True:
            try:
                peer, _ = self._socket.accept()
                break
            except TimeoutError:
                if not process.running:
                    raise SandboxError("The candidate process ended before it connected.") from None
                if time.monotonic() > until:
                    raise SandboxError(f"The candidate process did not connect within {seconds:.1f} s.") from None
        pid, _, _ = struct.unpack("=iII", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if os.getsid(pid) != process.pid:
            peer.close()
            raise SandboxError(f"Process {pid} connected in place of the candidate process.")
        return Channel(peer)

    def close(self) -> None:
        """Let nobody else connect."""
        self._socket.close()
        self._folder.cleanup()


class Channel:
    """A connected channel."""

    def __init__(self, peer: socket.socket) -> None:
        self._socket = peer
        self._socket.setblocking(False)
        self._poll = select.poll()
        self._poll.register(peer, select.POLLIN)

    def send(self, kind: Kind, sequence: int, payload: bytes = b"", fd: int | None = None) -> None:
        """Send one order with at most one descriptor.

        Raises:
            ClosedError: The other end is closed, or reads nothing any more.
        """
        try:
            socket.send_fds(self._socket, [order(kind, sequence, payload)], [] if fd is None else [fd])
        except OSError as error:
            raise ClosedError from error

    def receive(self, sequence: int, until: float) -> Message:
        """The next message, which must answer order `sequence`; `until` is a time of the monotonic clock.

        Raises:
            ClosedError: The other end is closed.
            SilentError: Nothing came.
            OversizedError: It is too long.
            ForgedMessageError: It is not what the candidate program sends.
        """
        awake = min(until, time.monotonic() + _AWAKE)
        while not self._poll.poll(0):
            if time.monotonic() >= awake:
                if not self._poll.poll(max(until - time.monotonic(), 0.0) * 1000):
                    raise SilentError
                break
        return decode(self._datagram(), sequence)

    def is_silent(self) -> bool:
        """Whether there is nothing to read now.

        Raises:
            ClosedError: The other end is closed.
        """
        if not self._poll.poll(0):
            return True
        self._datagram()
        return False

    def _datagram(self) -> bytes:
        try:
            data, _, flags, _ = self._receive()
        except OSError as error:
            raise ClosedError from error
        if flags & socket.MSG_TRUNC:
            raise OversizedError
        if not data:
            raise ClosedError
        return data

    def _receive(self) -> tuple[bytes, list[tuple[int, int, bytes]], int, object]:
        try:
            return self._socket.recvmsg(LARGEST)
        except ConnectionResetError:
            # The other end closed with orders unread. That is reported once; what it had said before comes next.
            return self._socket.recvmsg(LARGEST)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()
