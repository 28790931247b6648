"""The messages between judge and candidate process as Python values, laid out as `native/wire.h`; it does no I/O.

Everything that comes from a candidate is hostile: `decode` accepts a message only if each part of it makes sense.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from ptxbench.schema.problem import DType

MAGIC = 0x50545842
VERSION = 1
LARGEST = 16384
"""Bytes; no message of either side is longer."""

MAX_ARGUMENTS = 16
MAX_DIMENSIONS = 8
MAX_HIDDEN = 4
MAX_NEEDED = 2
MAX_NAMES = 512
MAX_ENTRIES = 256

_PATH = 512
_SYMBOL = 128
_HEADER = struct.Struct("=IHHII")
_SETUP = struct.Struct(
    f"=iIII{_PATH}s{_PATH}s{_PATH}s{_PATH}s{_PATH}s{_SYMBOL}s" + f"{_PATH}s" * (MAX_HIDDEN + MAX_NEEDED)
)
_MAP = struct.Struct("=Q")
_CALL = struct.Struct("=II")
_ARGUMENT = struct.Struct(f"=IBBHQQII{MAX_DIMENSIONS}q")
_PROGRESS = struct.Struct("=IIQ")
_PROTECTION = struct.Struct("=iI32s96s")
_NAME = struct.Struct("=II4096s")
_MODULE = struct.Struct("=Q32s")
_DONE = struct.Struct("=iiQ64s1024s")
SPAN_HEAD = struct.Struct("=4Q8I")
SPAN_ENTRY = struct.Struct("=QQIIII")
_SPANS = SPAN_HEAD.size + MAX_ENTRIES * SPAN_ENTRY.size


class Kind(IntEnum):
    """What a message is."""

    SETUP = 1
    MAP = 2
    READY = 3
    LOAD = 4
    CALL = 5
    CALIBRATE = 6
    RESET_L2 = 7
    QUIT = 8
    PROGRESS = 32
    PROTECTION = 33
    NAME = 34
    MODULE = 35
    SPANS = 36
    DONE = 37


class Phase(IntEnum):
    """How far a candidate process has come."""

    STARTED = 0
    CONNECTED = 1
    SANDBOXED = 2
    CONTEXT = 3
    MEMORY = 4
    READY = 5
    LOADING = 6
    LOADED = 7
    CALLING = 8
    RETURNED = 9


class Status(IntEnum):
    """How an order ended."""

    OK = 0
    LIBRARY = 1
    CUDA = 2
    LOAD_FAILED = 3
    NO_SYMBOL = 4
    RAISED = 5
    INSTRUMENT = 6
    PROTOCOL = 7
    SANDBOX = 8


class SetupFlag(IntEnum):
    """Ways to run a candidate process."""

    STAGED = 1
    KEEP_ROOT = 2
    UNDER_TOOL = 4
    REPLAY = 8


DLPACK_TYPES: dict[DType, tuple[int, int]] = {DType.BFLOAT16: (4, 16), DType.FLOAT16: (2, 16), DType.FLOAT32: (2, 32)}
"""DLPack's type code and bits of each element type (dlpack.h: kDLFloat 2, kDLBfloat 4)."""


@dataclass(frozen=True)
class Argument:
    """One tensor argument of a call: a contiguous row-major part of a buffer.

    Attributes:
        buffer: Index of the buffer in the session.
        offset: Bytes from the start of the buffer's mapping.
    """

    buffer: int
    offset: int
    dtype: DType
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor."""
        count = self.dtype.itemsize
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True)
class Setup:
    """What a candidate process is told at its start; paths that are not needed are empty."""

    device: int
    flags: int
    cuda: str
    cudart: str
    tvm_ffi: str
    spans: str
    cupti: str
    symbol: str
    hidden: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()
    """Folders that stay in sight below hidden ones, besides those of the libraries."""


class ForgedMessageError(Exception):
    """A message that the candidate program would never send."""


@dataclass(frozen=True)
class Progress:
    """The process has come to a phase; `host_ns` is what the call took by the process's own clock."""

    phase: Phase
    host_ns: int


@dataclass(frozen=True)
class ProtectionReport:
    """One protection of the sandbox; `error` is an errno."""

    name: str
    active: bool
    error: int
    reason: str


@dataclass(frozen=True)
class Name:
    """Entry `index` of the table of kernel names."""

    index: int
    text: str


@dataclass(frozen=True)
class Module:
    """Machine code that was loaded into the process."""

    nbytes: int
    sha256: str


@dataclass(frozen=True)
class RawSpans:
    """The activity instrument's result, not yet interpreted."""

    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Done:
    """The end of an order."""

    status: Status
    cuda_error: int
    host_ns: int
    cuda_name: str
    text: str


Message = Progress | ProtectionReport | Name | Module | RawSpans | Done


def order(kind: Kind, sequence: int, payload: bytes = b"") -> bytes:
    """An order to the candidate process."""
    return _HEADER.pack(MAGIC, VERSION, kind, sequence, _HEADER.size + len(payload)) + payload


def setup_payload(setup: Setup) -> bytes:
    """The payload of SETUP.

    Raises:
        ValueError: A path is too long or there are too many.
    """
    paths = [_fitting(path, _PATH) for path in (setup.cuda, setup.cudart, setup.tvm_ffi, setup.spans, setup.cupti)]
    folders = _padded(setup.hidden, MAX_HIDDEN) + _padded(setup.needed, MAX_NEEDED)
    symbol = _fitting(setup.symbol, _SYMBOL)
    return _SETUP.pack(setup.device, setup.flags, len(setup.hidden), 0, *paths, symbol, *folders)


def map_payload(size: int) -> bytes:
    """The payload of MAP: bytes of the exported allocation."""
    return _MAP.pack(size)


def call_payload(arguments: Sequence[Argument]) -> bytes:
    """The payload of CALL.

    Raises:
        ValueError: More arguments or dimensions than the wire carries.
    """
    if len(arguments) > MAX_ARGUMENTS or any(len(argument.shape) > MAX_DIMENSIONS for argument in arguments):
        raise ValueError(f"at most {MAX_ARGUMENTS} arguments of {MAX_DIMENSIONS} dimensions")
    packed = b"".join(_argument(argument) for argument in arguments)
    return _CALL.pack(len(arguments), 0) + packed.ljust(MAX_ARGUMENTS * _ARGUMENT.size, b"\0")


def _argument(argument: Argument) -> bytes:
    code, bits = DLPACK_TYPES[argument.dtype]
    rank = len(argument.shape)
    shape = argument.shape + (0,) * (MAX_DIMENSIONS - rank)
    return _ARGUMENT.pack(argument.buffer, code, bits, 1, argument.offset, argument.nbytes, rank, 0, *shape)


def _padded(folders: tuple[str, ...], most: int) -> list[bytes]:
    if len(folders) > most:
        raise ValueError(f"{len(folders)} folders; at most {most}")
    return [_fitting(folder, _PATH) for folder in folders] + [b""] * (most - len(folders))


def _fitting(text: str, size: int) -> bytes:
    data = text.encode()
    if len(data) >= size or b"\0" in data:
        raise ValueError(f"{text!r} does not fit into {size} bytes")
    return data


def decode(data: bytes, sequence: int) -> Message:
    """Read one message of a candidate process that answers order `sequence`.

    Raises:
        ForgedMessageError: It is not a message that the candidate program sends.
    """
    if len(data) < _HEADER.size:
        raise ForgedMessageError(f"a message of {len(data)} bytes")
    magic, version, kind, answered, size = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION or size != len(data):
        raise ForgedMessageError("a message with a wrong header")
    if answered != sequence:
        raise ForgedMessageError(f"an answer to order {answered} while {sequence} is running")
    reader = _READERS.get(kind)
    if reader is None:
        raise ForgedMessageError(f"a message of kind {kind}")
    layout, read = reader
    body = data[_HEADER.size :]
    if len(body) != layout:
        raise ForgedMessageError(f"a message of kind {kind} with {len(data)} bytes")
    try:
        return read(body)
    except ValueError as error:  # an enumeration that has no such value
        raise ForgedMessageError(f"a message of kind {kind}: {error}") from error


def _text(raw: bytes) -> str:
    """Printable text up to the first NUL: what comes from a candidate may hold terminal commands."""
    text = raw.split(b"\0", 1)[0].decode("utf-8", errors="replace")
    return "".join(char if char.isprintable() or char == "\n" else "?" for char in text)


def _progress(body: bytes) -> Progress:
    phase, _, host_ns = _PROGRESS.unpack(body)
    return Progress(Phase(phase), host_ns)


def _protection(body: bytes) -> ProtectionReport:
    error, active, name, reason = _PROTECTION.unpack(body)
    return ProtectionReport(_text(name), active == 1, error, _text(reason))


def _name(body: bytes) -> Name:
    index, length, raw = _NAME.unpack(body)
    text = _text(raw)
    if len(text) != length or not text:
        raise ValueError("a kernel's name of another length than it says")
    return Name(index, text)


def _module(body: bytes) -> Module:
    nbytes, digest = _MODULE.unpack(body)
    return Module(nbytes, digest.hex())


def _done(body: bytes) -> Done:
    status, cuda_error, host_ns, cuda_name, text = _DONE.unpack(body)
    return Done(Status(status), cuda_error, host_ns, _text(cuda_name), _text(text))


_READERS: dict[int, tuple[int, Callable[[bytes], Message]]] = {
    Kind.PROGRESS: (_PROGRESS.size, _progress),
    Kind.PROTECTION: (_PROTECTION.size, _protection),
    Kind.NAME: (_NAME.size, _name),
    Kind.MODULE: (_MODULE.size, _module),
    Kind.SPANS: (_SPANS, RawSpans),
    Kind.DONE: (_DONE.size, _done),
}


def layout() -> dict[str, int]:
    """Sizes and offsets as this module sees them, under the names that `candidate --print-layout` uses."""
    head = _HEADER.size
    return {
        "wire_header": head,
        "wire_setup": head + _SETUP.size,
        "wire_map": head + _MAP.size,
        "wire_argument": _ARGUMENT.size,
        "wire_call": head + _CALL.size + MAX_ARGUMENTS * _ARGUMENT.size,
        "wire_order": head,
        "wire_progress": head + _PROGRESS.size,
        "wire_protection": head + _PROTECTION.size,
        "wire_name": head + _NAME.size,
        "wire_module": head + _MODULE.size,
        "wire_spans": head + _SPANS,
        "wire_done": head + _DONE.size,
        "span_result": _SPANS,
        "span_entry": SPAN_ENTRY.size,
        "wire_setup.cuda": head + struct.calcsize("=iIII"),
        "wire_setup.symbol": head + struct.calcsize(f"=iIII{5 * _PATH}s"),
        "wire_setup.hidden": head + struct.calcsize(f"=iIII{5 * _PATH}s{_SYMBOL}s"),
        "wire_setup.needed": head + struct.calcsize(f"=iIII{5 * _PATH}s{_SYMBOL}s{MAX_HIDDEN * _PATH}s"),
        "wire_argument.offset": struct.calcsize("=IBBH"),
        "wire_argument.bytes": struct.calcsize("=IBBHQ"),
        "wire_argument.shape": struct.calcsize("=IBBHQQII"),
        "wire_call.arguments": head + _CALL.size,
        "wire_progress.host_ns": head + struct.calcsize("=II"),
        "wire_protection.reason": head + struct.calcsize("=iI32s"),
        "wire_name.text": head + struct.calcsize("=II"),
        "wire_module.sha256": head + struct.calcsize("=Q"),
        "wire_spans.result": head,
        "wire_done.host_ns": head + struct.calcsize("=ii"),
        "wire_done.text": head + struct.calcsize("=iiQ64s"),
        "span_result.records": struct.calcsize("=4Q"),
        "span_result.entries": SPAN_HEAD.size,
        "version": VERSION,
    }
