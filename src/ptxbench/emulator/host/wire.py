"""Questions of the host program over its socket, and our answers; what they mean is decided in runtime.py.

A question is a header (number, count of words, count of bytes), words of 64 bits, bytes. An answer has a CUDA error
code in place of the number. The numbers stand in native/bridge.h too.
"""

from __future__ import annotations

import socket
import struct
import time
from dataclasses import dataclass
from enum import IntEnum

MAX_WORDS = 64
MAX_BYTES = 64 * 2**20
"""Bytes of one question beyond which the process is taken for broken."""

_HEADER = struct.Struct("<IIQ")


class Op(IntEnum):
    """What is asked."""

    START, ENDED, UNSUPPORTED, KERNEL, VARIABLE, LAUNCH, KERNEL_SET, KERNEL_GET, OCCUPANCY, ALLOCATE, FREE = range(
        1, 12
    )
    COPY, FILL, STREAM, EVENT, ATTRIBUTE, ENCODE, MEMORY, CALL, HINT, POOL = range(12, 22)


class StreamAction(IntEnum):
    """First word of a question about streams."""

    CREATE, DESTROY, SYNCHRONIZE, WAIT, CALLBACK = range(5)


class EventAction(IntEnum):
    """First word of a question about events."""

    CREATE, DESTROY, RECORD, SYNCHRONIZE = range(4)


EVERY_STREAM = (1 << 64) - 1
COOPERATIVE, PROGRAMMATIC = 1, 2
"""Bits of a launch's flags."""


@dataclass(frozen=True)
class Question:
    """One question."""

    op: Op
    words: tuple[int, ...]
    data: bytes = b""

    @property
    def text(self) -> str:
        """The bytes as a name."""
        return self.data[:4096].decode("utf-8", "replace")


@dataclass(frozen=True)
class Answer:
    """One answer: a CUDA error code, words, bytes."""

    code: int = 0
    words: tuple[int, ...] = ()
    data: bytes = b""


class NonsenseError(Exception):
    """The process sent what no stub sends."""


class Channel:
    """Our end of the socket; every wait ends at `deadline` (time.monotonic)."""

    def __init__(self, end: socket.socket, deadline: float) -> None:
        self._socket = end
        self._deadline = deadline

    def extend(self, seconds: float) -> None:
        """Put the deadline off."""
        self._deadline += seconds

    def receive(self) -> Question | None:
        """The next question; None when the process has closed its end.

        Raises:
            TimeoutError: The deadline passed.
            NonsenseError: The process does not keep to the protocol.
        """
        header = self._exactly(_HEADER.size)
        if header is None:
            return None
        op, words, size = _HEADER.unpack(header)
        if op not in tuple(Op) or words > MAX_WORDS or size > MAX_BYTES:
            raise NonsenseError
        body = self._exactly(8 * words + size)
        if body is None:
            return None
        return Question(Op(op), struct.unpack_from(f"<{words}Q", body), bytes(body[8 * words :]))

    def send(self, answer: Answer) -> None:
        """Answer the last question.

        Raises:
            TimeoutError: The deadline passed.
            OSError: The process has closed its end.
        """
        header = _HEADER.pack(answer.code, len(answer.words), len(answer.data))
        self._wait()
        self._socket.sendall(header + struct.pack(f"<{len(answer.words)}Q", *answer.words) + answer.data)

    def _exactly(self, size: int) -> bytearray | None:
        body = bytearray(size)
        view, got = memoryview(body), 0
        while got < size:
            self._wait()
            try:
                count = self._socket.recv_into(view[got:])
            except ConnectionError:
                return None
            if count == 0:
                return None
            got += count
        return body

    def _wait(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
