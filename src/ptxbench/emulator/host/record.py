"""The launch record: what host code asked the device for, as frozen values; nothing here runs or replays it.

Addresses are opaque numbers: those of the arguments are the caller's, those of the candidate's own allocations were
made up. A replayer that has other addresses finds them by `Relocation`, and tensor maps by `tensor_maps`.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

from pydantic import ConfigDict, Field

from ptxbench.emulator.async_ import tensormap
from ptxbench.schema.problem import DType
from ptxbench.schema.values import Frozen

Triple: TypeAlias = tuple[int, int, int]

GIVEN_STREAM = 3
"""Number of the stream that the caller hands over; 0 and 1 are the default stream, 2 is that of each thread."""


class Value(Frozen):
    """A part of the record; bytes are base64 in JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class TensorArgument(Value):
    """A contiguous row-major tensor handed to the candidate; `address` is a device address, never read by the host."""

    address: int
    shape: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        """Bytes."""
        count = self.dtype.itemsize
        for extent in self.shape:
            count *= extent
        return count


class Relocation(Value):
    """Eight bytes of some data hold the address `addend` bytes into an argument or an allocation of the record."""

    offset: int
    of: Literal["argument", "allocation"]
    index: int
    addend: int


class Blob(Value):
    """Bytes that the host handed over, and the device addresses among them (at multiples of 8)."""

    data: bytes
    relocations: tuple[Relocation, ...] = ()

    def tensor_maps(self) -> tuple[tuple[int, tensormap.TensorMap], ...]:
        """Tensor maps in the bytes, each with its offset: what to encode again on a device that has a driver."""
        found = []
        for at in range(0, len(self.data) - tensormap.BYTES + 1, 64):
            piece = self.data[at : at + tensormap.BYTES]
            if tensormap.is_record(piece):
                found.append((at, tensormap.from_bytes(piece)))
        return tuple(found)


class Launch(Value):
    """One kernel launch that a device would have accepted."""

    kind: Literal["launch"] = "launch"
    kernel: str
    """Mangled name."""
    grid: Triple
    block: Triple
    cluster: Triple
    dynamic_shared: int
    """Bytes."""
    parameters: tuple[Blob, ...]
    """One per PTX parameter."""
    stream: int
    cooperative: bool = False
    programmatic: bool = False
    """May start before the launch in front of it has ended (programmatic stream serialization)."""


class Copy(Value):
    """A copy of `height` rows of `width` bytes; `data` has the rows, dense, when the source is host memory."""

    kind: Literal["copy"] = "copy"
    direction: Literal["to_device", "to_host", "on_device"]
    destination: int
    source: int
    width: int
    height: int
    destination_pitch: int
    source_pitch: int
    data: Blob | None
    stream: int


class Fill(Value):
    """Sets `height` rows of `width` elements of `element_bytes` bytes to `value`."""

    kind: Literal["fill"] = "fill"
    address: int
    value: int
    element_bytes: int
    width: int
    height: int
    pitch: int
    stream: int


class Allocate(Value):
    """Device memory; with `symbol` that of a variable of the module."""

    kind: Literal["allocate"] = "allocate"
    index: int
    address: int
    size: int
    stream: int | None = None
    """The stream it is ordered in; None for cudaMalloc."""
    symbol: str = ""


class Free(Value):
    """Gives device memory back."""

    kind: Literal["free"] = "free"
    address: int
    stream: int | None = None


class Order(Value):
    """Order between streams and the host: an event recorded or awaited by a stream, or the host waiting."""

    kind: Literal["order"] = "order"
    what: Literal["record", "wait", "synchronize"]
    stream: int | None
    """None for all streams."""
    event: int | None = None


class Attribute(Value):
    """A kernel's attribute set (cudaFuncSetAttribute); `number` is that of cudaFuncAttribute."""

    kind: Literal["attribute"] = "attribute"
    kernel: str
    number: int
    value: int


class Pool(Value):
    """An attribute of the default memory pool set; `number` is that of cudaMemPoolAttr."""

    kind: Literal["pool"] = "pool"
    number: int
    value: int


Operation: TypeAlias = Annotated[
    Launch | Copy | Fill | Allocate | Free | Order | Attribute | Pool, Field(discriminator="kind")
]


class Handle(Value):
    """A stream or an event that the host code has made, with the flags that it gave."""

    what: Literal["stream", "event"]
    number: int
    flags: int


class Ending(Value):
    """How the host code ended.

    `returned`; `raised` (it reported an error); `not_loaded`, `no_symbol`; `crashed` (a signal, `exit`, `abort`);
    `timeout`; `excess` (more calls or bytes than are kept).
    """

    kind: Literal["returned", "raised", "not_loaded", "no_symbol", "crashed", "timeout", "excess"]
    message: str = ""


class LaunchRecord(Value):
    """Everything that one call of a candidate asked for, in order; the first call also what its loading asked for.

    Attributes:
        live: Why the record cannot stand for the call, e.g. that the host reads device data; empty when it can.
        failures: Calls that returned an error, as on a device, with the reason.
        unsupported: Names of calls that the stub libraries do not have.
        hints: Settings that change no result but perhaps the time, and are not in the operations.
        handles: Streams and events that the process had made when it ended.
    """

    symbol: str
    arguments: tuple[TensorArgument, ...]
    operations: tuple[Operation, ...]
    live: tuple[str, ...]
    failures: tuple[str, ...]
    ending: Ending
    unsupported: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    handles: tuple[Handle, ...] = ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        """The kernel launches alone."""
        return tuple(operation for operation in self.operations if isinstance(operation, Launch))

    @property
    def replayable(self) -> bool:
        """Whether replaying the operations is the same as making the call."""
        return self.ending.kind == "returned" and not self.live
