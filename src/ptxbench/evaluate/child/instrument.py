"""The activity instrument (CUPTI) as the judge uses it, and the reading of its results; it decides no verdict."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Literal

from ptxbench.evaluate.child.wire import MAX_ENTRIES, SPAN_ENTRY, SPAN_HEAD, ForgedMessageError
from ptxbench.schema.values import Unavailable

_NO_NAME = 0xFFFFFFFF
_REMEDY = "Install nvidia-cuda-cupti 13 or a CUDA 13 toolkit with CUPTI, and let no other profiler attach."

Doubt = Literal["no_records", "lost_records", "absurd_records", "stray_work", "nameless_kernels"]


class Activity(IntEnum):
    """What ran on the device."""

    KERNEL = 0
    COPY = 1
    SET = 2


@dataclass(frozen=True)
class KernelSpan:
    """One piece of work on the device; `name` is the kernel's mangled name, empty for copies and sets.

    Times are CUPTI's nanoseconds; `graph` is 0 outside of CUDA graphs.
    """

    name: str
    start_ns: int
    end_ns: int
    stream: int
    kind: Activity
    graph: int


@dataclass(frozen=True)
class SpanResult:
    """Everything that ran in one window, over all streams.

    Attributes:
        start_ns: First start; 0 where nothing ran.
        end_ns: Last end.
        window_ns: Begin and end of the window.
        kernels: At most 256 entries; `records` counts all believable ones.
        dropped: Records that CUPTI lost.
        absurd: Records without times, inverted ones, and ones far outside the window.
        strays: Work that ran after the last window had closed and before this one.
        nameless: Kernels whose name found no room in the table.
    """

    start_ns: int
    end_ns: int
    window_ns: tuple[int, int]
    kernels: tuple[KernelSpan, ...]
    records: int
    dropped: int
    absurd: int
    strays: int
    nameless: int

    @property
    def duration_ns(self) -> int:
        """First start to last end (E20)."""
        return self.end_ns - self.start_ns


def check_spans(result: SpanResult) -> Doubt | None:
    """Why the result cannot be believed, or None."""
    if result.dropped:
        return "lost_records"
    if result.absurd or result.end_ns < result.start_ns:
        return "absurd_records"
    if result.records == 0:
        return "no_records"
    if result.strays:
        return "stray_work"
    return "nameless_kernels" if result.nameless else None


def read_spans(data: bytes, names: Sequence[str]) -> SpanResult:
    """Read a `struct span_result`; `names` is the table of kernel names of the process that it comes from.

    Raises:
        ForgedMessageError: It contradicts itself.
    """
    begin, end, first, last, records, dropped, absurd, strays, listed, nameless, named, _ = SPAN_HEAD.unpack_from(data)
    if listed != min(records, MAX_ENTRIES) or named != len(names):
        raise ForgedMessageError("a result of the instrument with wrong counts")
    entries = SPAN_ENTRY.iter_unpack(data[SPAN_HEAD.size : SPAN_HEAD.size + listed * SPAN_ENTRY.size])
    spans = tuple(_span(entry, names) for entry in entries)
    if spans and (min(s.start_ns for s in spans) < first or max(s.end_ns for s in spans) > last):
        raise ForgedMessageError("a result of the instrument whose entries lie outside of its span")
    return SpanResult(first, last, (begin, end), spans, records, dropped, absurd, strays, nameless)


def _span(entry: tuple[int, ...], names: Sequence[str]) -> KernelSpan:
    start, end, kind, name, stream, graph = entry
    if name != _NO_NAME and name >= len(names):
        raise ForgedMessageError("a kernel whose name is not in the table")
    try:
        activity = Activity(kind)
    except ValueError as error:
        raise ForgedMessageError(f"an activity of kind {kind}") from error
    return KernelSpan("" if name == _NO_NAME else names[name], start, end, stream, activity, graph)


class _Failure(ctypes.Structure):
    """`struct span_failure`."""

    _fields_ = (
        ("code", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("name", ctypes.c_char * 64),
        ("text", ctypes.c_char * 256),
    )


class Window:
    """One window of the instrument; `result` is there once it is closed."""

    def __init__(self) -> None:
        self._result: SpanResult | None = None

    @property
    def result(self) -> SpanResult:
        """What ran in the window.

        Raises:
            RuntimeError: The window is still open.
        """
        if self._result is None:
            raise RuntimeError("the window is still open")
        return self._result

    def close(self, result: SpanResult) -> None:
        """Keep the result."""
        self._result = result


class Spans:
    """The instrument in this process. CUPTI allows one user per process, so there is one of these at most."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self._library.spans_name.restype = ctypes.c_char_p
        self._names: list[str] = []

    @classmethod
    def open(cls, library: Path, cupti: Path) -> Spans | Unavailable:
        """Load `library` (libptxspans.so) and start CUPTI.

        Returns:
            The instrument, or why there is none (missing CUPTI; another profiler, by name).
        """
        try:
            loaded = ctypes.CDLL(str(library))
        except OSError as error:
            return Unavailable(name="cupti", reason=f"{library} cannot be loaded: {error}", remedy=_REMEDY)
        failure = _Failure()
        if loaded.spans_open(str(cupti).encode(), 0, ctypes.byref(failure)) != 0:
            reason = f"{failure.name.decode()} {failure.text.decode(errors='replace')}".strip()
            return Unavailable(name="cupti", reason=reason, remedy=_REMEDY)
        return cls(loaded)

    @property
    def version(self) -> int:
        """CUPTI's own version number."""
        self._library.spans_version.restype = ctypes.c_uint32
        return int(self._library.spans_version())

    @contextmanager
    def window(self) -> Iterator[Window]:
        """Record what runs inside. The device must be idle when the block ends.

        Raises:
            InstrumentError: CUPTI fails; the block's work is not measured then.
        """
        window = Window()
        self._require(self._library.spans_begin())
        yield window
        raw = ctypes.create_string_buffer(SPAN_HEAD.size + MAX_ENTRIES * SPAN_ENTRY.size)
        self._require(self._library.spans_end(raw))
        named = SPAN_HEAD.unpack_from(raw.raw)[10]
        while len(self._names) < named:
            self._names.append(self._library.spans_name(ctypes.c_uint32(len(self._names))).decode())
        window.close(read_spans(raw.raw, self._names))

    def _require(self, code: int) -> None:
        if code:
            self._library.spans_code_name.restype = ctypes.c_char_p
            raise InstrumentError(self._library.spans_code_name(code).decode() or str(code))


class InstrumentError(Exception):
    """CUPTI failed in the middle of a measurement; the message is its name for the error."""
