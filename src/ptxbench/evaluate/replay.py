"""The replay program: recorded calls as the words that `child/native/program.h` lays out; it records and runs nothing.

Addresses become places (an argument or an allocation, and bytes from its start), tensor maps the arguments of the
driver's encode calls, so that a process with other addresses can put its own in.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from ptxbench.emulator.async_.tensormap import BYTES as MAP_BYTES
from ptxbench.emulator.async_.tensormap import TensorMap
from ptxbench.emulator.host.kernels import KernelInfo
from ptxbench.emulator.host.record import (
    Allocate,
    Attribute,
    Blob,
    Copy,
    Fill,
    Free,
    Launch,
    LaunchRecord,
    Operation,
    Order,
    Pool,
    TensorArgument,
)
from ptxbench.schema.problem import DType

MAGIC, VERSION = 0x7961_6C70_6552_7450, 1
NONE = (1 << 64) - 1
STREAMS = 4
"""Streams that exist anyway: null, legacy, of the thread, the judge's."""

COOPERATIVE, PROGRAMMATIC = 1, 2
_MAP_ADDRESS = 16
"""Where the record of a tensor map holds its address."""

_TYPES: dict[DType, tuple[int, int]] = {DType.BFLOAT16: (4, 16), DType.FLOAT16: (2, 16), DType.FLOAT32: (2, 32)}
_MASK = (1 << 64) - 1


class Code(IntEnum):
    """What a step does; the numbers of `enum step_code`."""

    LAUNCH, COPY_IN, COPY, FILL, ALLOCATE, SYMBOL, FREE, RECORD, WAIT = range(9)
    WAIT_STREAM, WAIT_EVENT, WAIT_ALL, ATTRIBUTE, POOL = range(9, 14)


class UnfitError(Exception):
    """The record cannot become a program; the message says why."""


@dataclass(frozen=True)
class Place:
    """An address: `addend` bytes from the start of an argument (kind 0) or an allocation (kind 1)."""

    kind: int
    index: int
    addend: int

    @property
    def words(self) -> tuple[int, int, int]:
        """As it stands in a program."""
        return self.kind, self.index, self.addend & _MASK


@dataclass(frozen=True)
class Encode:
    """A tensor map to encode at `offset`, for the memory at `place`; `words` as in `struct map`."""

    offset: int
    place: Place
    words: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """Bytes for the device: places are put in at the patches' offsets, tensor maps at theirs; both are zeros here."""

    data: bytes
    patches: tuple[tuple[int, Place], ...] = ()
    maps: tuple[Encode, ...] = ()


@dataclass(frozen=True)
class Step:
    """One operation."""

    code: Code
    words: tuple[int, ...] = ()
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Calls:
    """All recorded calls of one workload, in order.

    Attributes:
        arguments: DLPack's type code and bits, and the shape, of each argument.
        allocations: How many there are in all.
        streams, events: Flags of each that the host code makes.
        steps: Of each call.
    """

    arguments: tuple[tuple[int, int, tuple[int, ...]], ...]
    allocations: int
    streams: tuple[int, ...]
    events: tuple[int, ...]
    steps: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True)
class Program:
    """Everything that a candidate's process needs to replay its calls.

    Attributes:
        cubins: The candidate's machine code.
        kernels: Number of the cubin, and mangled name, of each kernel.
        workloads: Their calls; a call's shapes tell which is meant.
    """

    cubins: tuple[bytes, ...]
    kernels: tuple[tuple[int, str], ...]
    workloads: tuple[Calls, ...]


# ---- records to steps ----


def calls_of(records: Sequence[LaunchRecord], kernels: Mapping[str, KernelInfo]) -> Calls:
    """The calls that `record_calls` left, at least one.

    Args:
        records: One per call, of one process.
        kernels: In the order of the program's kernels.

    Raises:
        UnfitError: Something in them cannot be replayed.
    """
    handles = records[-1].handles
    streams = [handle for handle in handles if handle.what == "stream"]
    events = [handle for handle in handles if handle.what == "event"]
    writer = _Writer(
        kernels,
        {**{number: number for number in range(STREAMS)}, **{h.number: STREAMS + i for i, h in enumerate(streams)}},
        {handle.number: index for index, handle in enumerate(events)},
    )
    steps = tuple(writer.call(record) for record in records)
    return Calls(
        arguments=tuple((*_TYPES[argument.dtype], argument.shape) for argument in records[0].arguments),
        allocations=writer.allocations,
        streams=tuple(handle.flags for handle in streams),
        events=tuple(handle.flags for handle in events),
        steps=steps,
    )


class _Writer:
    """Turns operations into steps; knows the memory that there is."""

    def __init__(
        self, kernels: Mapping[str, KernelInfo], streams: Mapping[int, int], events: Mapping[int, int]
    ) -> None:
        self._kernels = kernels
        self._numbers = {name: number for number, name in enumerate(kernels)}
        self._streams = streams
        self._events = events
        self._starts: list[int] = []
        self._memory: list[tuple[int, int]] = []
        self._arguments: Sequence[TensorArgument] = ()

    @property
    def allocations(self) -> int:
        """How many there have been."""
        return len(self._memory)

    def call(self, record: LaunchRecord) -> tuple[Step, ...]:
        """The steps of one call."""
        self._arguments = record.arguments
        return tuple(step for operation in record.operations for step in self._steps(operation))

    def _steps(self, operation: Operation) -> Iterable[Step]:
        write: Callable[..., Step | None] = _WRITERS[type(operation)]
        step = write(self, operation)
        return () if step is None else (step,)

    def launch(self, launch: Launch) -> Step:
        info = self._kernels[launch.kernel]
        if tuple(len(blob.data) for blob in launch.parameters) != info.parameters:
            raise UnfitError(f"launches {launch.kernel} with parameters that it does not have")
        flags = COOPERATIVE * launch.cooperative | PROGRAMMATIC * launch.programmatic
        shape = (*launch.grid, *launch.block, *launch.cluster, launch.dynamic_shared)
        words = (self._numbers[launch.kernel], *shape, self._stream(launch.stream), flags)
        return Step(Code.LAUNCH, words, tuple(self._piece(blob) for blob in launch.parameters))

    def copy(self, copy: Copy) -> Step | None:
        if not copy.width or not copy.height:
            return None
        to = (*self._place(copy.destination).words, copy.destination_pitch)
        size = (copy.width, copy.height, self._stream(copy.stream))
        if copy.direction == "on_device":
            return Step(Code.COPY, (*to, *self._place(copy.source).words, copy.source_pitch, *size))
        if copy.data is None or len(copy.data.data) != copy.width * copy.height:
            raise UnfitError("copies other bytes than it has")
        return Step(Code.COPY_IN, (*to, *size), (self._piece(copy.data),))

    def fill(self, fill: Fill) -> Step | None:
        if not fill.width or not fill.height:
            return None
        size = (fill.value, fill.element_bytes, fill.width, fill.height, fill.pitch)
        return Step(Code.FILL, (*self._place(fill.address).words, *size, self._stream(fill.stream)))

    def allocate(self, allocate: Allocate) -> Step:
        position = bisect_right(self._starts, allocate.address)
        self._starts.insert(position, allocate.address)
        self._memory.insert(position, (allocate.size, allocate.index))
        if allocate.symbol:
            return Step(Code.SYMBOL, (allocate.index,), (Piece(allocate.symbol.encode() + b"\0"),))
        stream = NONE if allocate.stream is None else self._stream(allocate.stream)
        return Step(Code.ALLOCATE, (allocate.index, allocate.size, stream))

    def free(self, free: Free) -> Step:
        stream = NONE if free.stream is None else self._stream(free.stream)
        return Step(Code.FREE, (*self._place(free.address).words, stream))

    def attribute(self, attribute: Attribute) -> Step:
        return Step(Code.ATTRIBUTE, (self._numbers[attribute.kernel], attribute.number, attribute.value & _MASK))

    def pool(self, pool: Pool) -> Step:
        return Step(Code.POOL, (pool.number, pool.value))

    def order(self, order: Order) -> Step:
        if order.what == "synchronize":
            if order.event is not None:
                return Step(Code.WAIT_EVENT, (self._event(order.event),))
            return (
                Step(Code.WAIT_ALL) if order.stream is None else Step(Code.WAIT_STREAM, (self._stream(order.stream),))
            )
        code = Code.RECORD if order.what == "record" else Code.WAIT
        return Step(code, (self._event(order.event), self._stream(order.stream)))

    def _stream(self, number: int | None) -> int:
        found = None if number is None else self._streams.get(number)
        if found is None:
            raise UnfitError("works on a stream that it never made")
        return found

    def _event(self, number: int | None) -> int:
        found = None if number is None else self._events.get(number)
        if found is None:
            raise UnfitError("uses an event that it never made")
        return found

    def _place(self, address: int) -> Place:
        for index, argument in enumerate(self._arguments):
            if argument.address <= address <= argument.address + argument.size:
                return Place(0, index, address - argument.address)
        position = bisect_right(self._starts, address) - 1
        if position >= 0:
            size, index = self._memory[position]
            if address <= self._starts[position] + size:
                return Place(1, index, address - self._starts[position])
        raise UnfitError("uses memory that is neither an argument of the call nor its own")

    def _piece(self, blob: Blob) -> Piece:
        data = bytearray(blob.data)
        places = {
            each.offset: Place(0 if each.of == "argument" else 1, each.index, each.addend) for each in blob.relocations
        }
        maps = []
        for offset, tensor_map in blob.tensor_maps():
            place = places.pop(offset + _MAP_ADDRESS, None)
            if place is None:  # what an earlier call has left in bytes that this one does not set
                continue
            maps.append(Encode(offset, place, map_words(tensor_map)))
            data[offset : offset + MAP_BYTES] = bytes(MAP_BYTES)
            for at in range(offset, offset + MAP_BYTES, 8):
                places.pop(at, None)
        for offset in places:
            data[offset : offset + 8] = bytes(8)
        return Piece(bytes(data), tuple(sorted(places.items())), tuple(maps))


_WRITERS: dict[type, Callable[..., Step | None]] = {
    Launch: _Writer.launch,
    Copy: _Writer.copy,
    Fill: _Writer.fill,
    Allocate: _Writer.allocate,
    Free: _Writer.free,
    Attribute: _Writer.attribute,
    Order: _Writer.order,
    Pool: _Writer.pool,
}


def map_words(tensor_map: TensorMap) -> tuple[int, ...]:
    """The arguments of an encode call, as `struct map` has them: without the address, 40 words.

    Raises:
        UnfitError: It is a call that a replay does not make.
    """
    t = tensor_map
    if t.im2col and t.im2col.wide:
        raise UnfitError("encodes a tensor map with cuTensorMapEncodeIm2colWide")
    head = (int(t.im2col is not None), t.type, t.rank, 0, t.interleave, t.swizzle, t.l2, t.fill)
    column = (t.im2col.channels, t.im2col.pixels) if t.im2col else (0, 0)
    corners = (t.im2col.lower, t.im2col.upper) if t.im2col else ((), ())
    rows = (t.dims, t.strides, t.box, t.element_strides, *corners)
    return (*head, *column, *(word & _MASK for row in rows for word in (*row, *[0] * 5)[:5]))


# ---- programs to words ----


def encode_program(program: Program) -> bytes:
    """The file that the candidate's process reads."""
    parts = [_words(MAGIC, VERSION, len(program.cubins))]
    parts += [_bytes(cubin) for cubin in program.cubins]
    parts.append(_words(len(program.kernels)))
    for cubin, name in program.kernels:
        parts += [_words(cubin), _bytes(name.encode() + b"\0")]
    parts.append(_words(len(program.workloads)))
    for calls in program.workloads:
        parts += _calls(calls)
    return b"".join(parts)


def _calls(calls: Calls) -> Iterable[bytes]:
    yield _words(len(calls.arguments))
    for code, bits, shape in calls.arguments:
        yield _words(code, bits, len(shape), *shape)
    yield _words(calls.allocations, len(calls.streams), *calls.streams, len(calls.events), *calls.events)
    yield _words(len(calls.steps))
    for steps in calls.steps:
        yield _words(len(steps))
        for step in steps:
            yield _words(step.code, len(step.words), *step.words, len(step.pieces))
            for piece in step.pieces:
                yield _bytes(piece.data) + _words(len(piece.patches))
                yield b"".join(_words(offset, *place.words) for offset, place in piece.patches)
                yield _words(len(piece.maps))
                yield b"".join(_words(each.offset, *each.place.words, *each.words) for each in piece.maps)


def _words(*words: int) -> bytes:
    return struct.pack(f"<{len(words)}Q", *words)


def _bytes(data: bytes) -> bytes:
    return _words(len(data)) + data + bytes(-len(data) % 8)
