"""What each runtime or driver call does: errors as a device gives them, and one operation in the record; runs nothing.

The host program's questions come in, in order; answers go out. With a `Performer` every operation is also carried out
at once (an emulated device), and host code that reads device data gets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from ptxbench.emulator.async_.encode import encode
from ptxbench.emulator.async_.tensormap import Im2col, TensorMap
from ptxbench.emulator.host.device import HostDevice
from ptxbench.emulator.host.kernels import KernelInfo
from ptxbench.emulator.host.launches import Failure, KernelState, LaunchShape, check_launch
from ptxbench.emulator.host.memory import AddressMap, reserved_ranges
from ptxbench.emulator.host.record import (
    GIVEN_STREAM,
    Allocate,
    Attribute,
    Copy,
    Fill,
    Free,
    Handle,
    Launch,
    Operation,
    Order,
    Pool,
    TensorArgument,
)
from ptxbench.emulator.host.wire import (
    COOPERATIVE,
    EVERY_STREAM,
    PROGRAMMATIC,
    Answer,
    EventAction,
    Op,
    Question,
    StreamAction,
)
from ptxbench.schema.problem import DType

_INVALID_VALUE, _OUT_OF_MEMORY, _INVALID_FUNCTION, _INVALID_HANDLE, _NOT_SUPPORTED = 1, 2, 98, 400, 801
_MAX_OPERATIONS = 20_000
_MAX_DATA = 256 * 2**20
_CODES = {DType.BFLOAT16: (4, 16), DType.FLOAT16: (2, 16), DType.FLOAT32: (2, 32)}
"""DLPack's type codes and bits."""

_STREAMS = (0, 1, 2, GIVEN_STREAM)
_POOL_ATTRIBUTES = range(1, 5)
"""Three rules of reuse, and the release threshold."""

_DIRECTIONS = {1: "to_device", 2: "to_host", 3: "on_device"}


class Performer(Protocol):
    """A device that carries out what is recorded."""

    def perform(self, operation: Operation) -> int:
        """Do it; the CUDA error code that the call returns."""

    def read(self, address: int, size: int) -> bytes:
        """Bytes of device memory."""


class Excess(Exception):  # noqa: N818  (an end of the host process, not our error)
    """More calls or bytes than a record keeps."""


class Runtime:
    """The state behind the stub libraries of one host process."""

    def __init__(
        self,
        calls: Sequence[Sequence[TensorArgument]],
        kernels: Mapping[str, KernelInfo],
        device: HostDevice,
        performer: Performer | None = None,
    ) -> None:
        self._calls = tuple(calls)
        self._device = device
        self._performer = performer
        self._kernels = [KernelState(info) for info in kernels.values()]
        self._numbers = {name: number for number, name in enumerate(kernels, 1)}
        self._memory = AddressMap(self._calls[0])
        self._handles = 16  # smaller numbers are the default streams and the caller's
        self._streams: set[int] = set(_STREAMS)
        self._events: set[int] = set()
        self._data = 0
        self.handles: list[Handle] = []
        self.operations: list[Operation] = []
        self.starts: list[int] = []
        """Of each call made so far, the number of operations before it."""
        self.hints: dict[str, None] = {}
        self.live: dict[str, None] = {}
        self.failures: list[str] = []
        self.unsupported: dict[str, None] = {}

    def answer(self, question: Question) -> Answer:
        """The answer to one question of the host program.

        Raises:
            Excess: The record has become too long.
        """
        self._data += len(question.data)
        if len(self.operations) > _MAX_OPERATIONS or len(self.failures) > _MAX_OPERATIONS or self._data > _MAX_DATA:
            raise Excess(f"more than {_MAX_OPERATIONS} calls, or more than {_MAX_DATA >> 20} MiB handed over")
        try:
            result = _HANDLERS[question.op](self, question)
        except (ValueError, IndexError, KeyError) as error:  # words that no stub sends
            result = Failure(_INVALID_VALUE, f"not a call: {error}")
        if isinstance(result, Failure):
            self.failures.append(f"{question.op.name.lower()}: error {result.code}: {result.reason}")
            return Answer(result.code)
        return result

    def _start(self, _: Question) -> Answer:
        first = self._calls[0]
        ranges = reserved_ranges([argument for call in self._calls for argument in call])
        words = [len(ranges), *(word for pair in ranges for word in pair), len(first)]
        for argument in first:
            words += [argument.address, *_CODES[argument.dtype], 1, len(argument.shape), *argument.shape]
        return Answer(words=tuple(words))

    def _call(self, _: Question) -> Answer:
        """The next call's addresses; no word when all are made."""
        if len(self.starts) == len(self._calls):
            return Answer()
        arguments = self._calls[len(self.starts)]
        self.starts.append(len(self.operations))
        self._memory.arguments(arguments)
        return Answer(words=tuple(argument.address for argument in arguments))

    def _pool(self, question: Question) -> Answer | Failure:
        number, value = question.words
        if number not in _POOL_ATTRIBUTES:
            return Failure(_INVALID_VALUE, f"the memory pool's attribute {number} cannot be set")
        return self._do(Pool(number=number, value=value))

    def _hint(self, question: Question) -> Answer:
        self.hints[question.text] = None
        return Answer()

    def _unsupported(self, question: Question) -> Answer:
        self._mark(f"calls {question.text}, which works on a device alone")
        self.unsupported[question.text] = None
        self.failures.append(f"{question.text}: error {_NOT_SUPPORTED}: it works on a device alone")
        return Answer(_NOT_SUPPORTED)

    def _kernel(self, question: Question) -> Answer | Failure:
        number = self._numbers.get(question.text)
        if number is None:
            return Failure(_INVALID_FUNCTION, f"the kernel {question.text} is not in the machine code")
        return Answer(words=(number, *self._kernels[number - 1].info.parameters))

    def _variable(self, question: Question) -> Answer | Failure:
        return self._new(question.words[0], None, question.text)

    def _launch(self, question: Question) -> Answer | Failure:
        number, *words = question.words
        grid, block, cluster = (_triple(words[at : at + 3]) for at in (0, 3, 6))
        shared, stream, flags = words[9:12]
        kernel = self._kernels[number - 1]
        cooperative = bool(flags & COOPERATIVE)
        if stream not in self._streams:
            return Failure(_INVALID_HANDLE, f"no stream {stream:#x}")
        got = check_launch(self._device, kernel, LaunchShape(grid, block, cluster, shared, cooperative))
        if isinstance(got, Failure):
            return Failure(got.code, f"{kernel.info.name}: {got.reason}")
        parameters, at = [], 0
        for size in kernel.info.parameters:
            parameters.append(self._memory.blob(question.data[at : at + size]))
            at += size
        return self._do(
            Launch(
                kernel=kernel.info.name,
                grid=grid,
                block=block,
                cluster=got,
                dynamic_shared=shared,
                parameters=tuple(parameters),
                stream=stream,
                cooperative=cooperative,
                programmatic=bool(flags & PROGRAMMATIC),
            )
        )

    def _kernel_set(self, question: Question) -> Answer | Failure:
        number, attribute, value = question.words
        changed = self._kernels[number - 1].with_attribute(attribute, _signed(value))
        if isinstance(changed, Failure):
            return changed
        self._kernels[number - 1] = changed
        return self._do(Attribute(kernel=changed.info.name, number=attribute, value=_signed(value)))

    def _kernel_get(self, question: Question) -> Answer:
        kernel = self._kernels[question.words[0] - 1]
        info = kernel.info
        version = 10 * self._device.target.compute_capability[0]
        cluster = info.required_cluster or (0, 0, 0)
        bounds = (info.max_threads or 1024, info.registers, version, kernel.most_dynamic)
        return Answer(words=(info.static_shared, 0, 0, *bounds, *cluster, int(kernel.non_portable)))

    def _occupancy(self, question: Question) -> Answer:
        number, threads, shared, cluster = question.words
        blocks = self._device.blocks_per_sm(self._kernels[number - 1].info, threads, shared)
        return Answer(words=(blocks if cluster == 1 else blocks * self._device.multiprocessors // cluster,))

    def _allocate(self, question: Question) -> Answer | Failure:
        size, stream, in_order = question.words
        return self._new(size, stream if in_order else None, "") if size else Answer(words=(0,))

    def _new(self, size: int, stream: int | None, symbol: str) -> Answer | Failure:
        free = self._device.memory - self._memory.used
        if size > free or not self._memory.room(size):
            return Failure(_OUT_OF_MEMORY, f"{size} bytes, {free} are free")
        index, address = self._memory.allocate(size)
        answer = self._do(Allocate(index=index, address=address, size=size, stream=stream, symbol=symbol))
        return Answer(answer.code, words=(address,))

    def _free(self, question: Question) -> Answer | Failure:
        address, stream, in_order = question.words
        if not self._memory.free(address):
            return Failure(_INVALID_VALUE, f"nothing was allocated at {address:#x}")
        return self._do(Free(address=address, stream=stream if in_order else None))

    def _copy(self, question: Question) -> Answer | Failure:
        kind, destination, source, width, height, destination_pitch, source_pitch, stream = question.words
        to_device, from_device = kind in (1, 3), kind in (2, 3)
        for used, address, pitch in ((to_device, destination, destination_pitch), (from_device, source, source_pitch)):
            if used and not self._memory.holds(address, max(height - 1, 0) * pitch + width):
                return Failure(_INVALID_VALUE, f"a copy of {height} x {width} bytes at {address:#x}: not device memory")
        answer = self._do(
            Copy(
                direction=_DIRECTIONS[kind],
                destination=destination,
                source=source,
                width=width,
                height=height,
                destination_pitch=destination_pitch,
                source_pitch=source_pitch,
                data=self._memory.blob(question.data) if kind == 1 else None,
                stream=stream,
            )
        )
        if _DIRECTIONS[kind] != "to_host" or answer.code:
            return answer
        self._data += width * height
        if self._performer is None:
            self._mark("reads device data on the host")
            return Answer(data=bytes(min(width * height, _MAX_DATA)))
        rows = (self._performer.read(source + row * source_pitch, width) for row in range(height))
        return Answer(data=b"".join(rows))

    def _fill(self, question: Question) -> Answer | Failure:
        address, value, element, width, height, pitch, stream = question.words
        if not self._memory.holds(address, max(height - 1, 0) * pitch + width * element):
            return Failure(_INVALID_VALUE, f"a fill of {height} x {width} elements at {address:#x}: not device memory")
        size = {"address": address, "value": value, "element_bytes": element}
        return self._do(Fill(**size, width=width, height=height, pitch=pitch, stream=stream))

    def _stream(self, question: Question) -> Answer | Failure:
        action, stream, other = question.words
        if action == StreamAction.CREATE:
            return Answer(words=(self._handle(self._streams, "stream", other),))
        if stream != EVERY_STREAM and stream not in self._streams:
            return Failure(_INVALID_HANDLE, f"no stream {stream:#x}")
        if action == StreamAction.DESTROY:
            self._streams.discard(stream if stream not in _STREAMS else EVERY_STREAM)
        elif action == StreamAction.CALLBACK:
            self._mark("runs host functions within a stream")
        elif action == StreamAction.WAIT:
            if other not in self._events:
                return Failure(_INVALID_HANDLE, f"no event {other:#x}")
            return self._do(Order(what="wait", stream=stream, event=other))
        else:
            return self._do(Order(what="synchronize", stream=None if stream == EVERY_STREAM else stream))
        return Answer()

    def _event(self, question: Question) -> Answer | Failure:
        action, event, stream = question.words
        if action == EventAction.CREATE:
            return Answer(words=(self._handle(self._events, "event", stream),))
        if event not in self._events or (action == EventAction.RECORD and stream not in self._streams):
            return Failure(_INVALID_HANDLE, f"no event {event:#x} or no stream {stream:#x}")
        if action == EventAction.DESTROY:
            self._events.discard(event)
            return Answer()
        if action == EventAction.RECORD:
            return self._do(Order(what="record", stream=stream, event=event))
        return self._do(Order(what="synchronize", stream=None, event=event))

    def _attribute(self, question: Question) -> Answer | Failure:
        value = self._device.attribute(question.words[0])
        if value is None:
            self._mark(f"asks for the device attribute {question.words[0]}")
            return Failure(_NOT_SUPPORTED, f"the device attribute {question.words[0]} is not known here")
        return Answer(words=(value,))

    def _encode(self, question: Question) -> Answer | Failure:
        record = encode(_tensor_map(question.words))
        return Answer(data=record) if isinstance(record, bytes) else Failure(record.code, record.reason)

    def _memory_info(self, question: Question) -> Answer:
        """No word: free and total bytes. One: whether an address is the device's. Two: the direction of a copy."""
        if not question.words:
            return Answer(words=(self._device.memory - self._memory.used, self._device.memory))
        inside = [self._memory.holds(address, 0) for address in question.words]
        if len(inside) == 1:
            return Answer(words=(int(inside[0]),))
        return Answer(words=({(True, False): 1, (False, True): 2}.get((inside[0], inside[1]), 3),))

    def _do(self, operation: Operation) -> Answer:
        self.operations.append(operation)
        return Answer(self._performer.perform(operation) if self._performer else 0)

    def _mark(self, reason: str) -> None:
        self.live[reason] = None

    def _handle(self, known: set[int], what: Literal["stream", "event"], flags: int) -> int:
        self._handles += 1
        known.add(self._handles)
        self.handles.append(Handle(what=what, number=self._handles, flags=flags))
        return self._handles


_HANDLERS = {
    Op.START: Runtime._start,
    Op.UNSUPPORTED: Runtime._unsupported,
    Op.KERNEL: Runtime._kernel,
    Op.VARIABLE: Runtime._variable,
    Op.LAUNCH: Runtime._launch,
    Op.KERNEL_SET: Runtime._kernel_set,
    Op.KERNEL_GET: Runtime._kernel_get,
    Op.OCCUPANCY: Runtime._occupancy,
    Op.ALLOCATE: Runtime._allocate,
    Op.FREE: Runtime._free,
    Op.COPY: Runtime._copy,
    Op.FILL: Runtime._fill,
    Op.STREAM: Runtime._stream,
    Op.EVENT: Runtime._event,
    Op.ATTRIBUTE: Runtime._attribute,
    Op.ENCODE: Runtime._encode,
    Op.MEMORY: Runtime._memory_info,
    Op.CALL: Runtime._call,
    Op.HINT: Runtime._hint,
    Op.POOL: Runtime._pool,
}


def _tensor_map(words: Sequence[int]) -> TensorMap:
    """The arguments of an encode call, in the order of driver.c."""
    mode, kind, rank, address, interleave, swizzle, l2, fill, channels, pixels = words[:10]
    dims, strides, box, steps, lower, upper = (tuple(words[at : at + 5]) for at in range(10, 40, 5))
    wide = max(mode - 1, 0)
    space = 1 if wide else max(rank - 2, 0)
    corners = [tuple(_signed(value) for value in corner[:space]) for corner in (lower, upper)]
    return TensorMap(
        type=kind,
        address=address,
        dims=dims[:rank],
        strides=strides[: max(rank - 1, 0)],
        box=() if mode else box[:rank],
        element_strides=steps[:rank],
        interleave=interleave,
        swizzle=swizzle,
        l2=l2,
        fill=fill,
        im2col=Im2col(corners[0], corners[1], channels, pixels, wide) if mode else None,
    )


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


def _triple(words: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = words
    return x, y, z
