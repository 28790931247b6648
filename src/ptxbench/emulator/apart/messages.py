"""What a caller and its emulating process say to each other: frozen values as JSON, bytes beside them; nothing runs.

A message is two lengths of 8 bytes (JSON, bytes), the JSON, the bytes. The emulating process reads a stranger's PTX,
so that the caller believes none of its answers: their length is bounded before they are read, their shape is checked
field by field, and nothing in them is code (a pickle would be).
"""

from __future__ import annotations

import struct
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, TypeAdapter

from ptxbench.emulator.device import Ran
from ptxbench.emulator.host.kernels import KernelInfo
from ptxbench.emulator.host.record import Operation, Value
from ptxbench.emulator.launch import Policy
from ptxbench.emulator.witness import Spoilt

HEADER = struct.Struct("<QQ")
MOST_JSON = 1 << 28
"""Bytes of JSON beyond which an answer is not read."""

Watch: TypeAlias = Literal["", "trace"] | Spoilt
"""What looks on: nothing but the checks, the timeline's tracer, or one that spoils results."""


class How(Value):
    """`Policy` without its observer."""

    schedules: tuple[str, ...]
    numerics: str
    checks: bool
    races: bool
    first: int
    others: int
    limit: int
    seconds: float

    @classmethod
    def of(cls, policy: Policy) -> How:
        """The fields of a policy."""
        return cls(**{name: getattr(policy, name) for name in cls.model_fields})


class Load(Value):
    """Read the PTX text in the bytes; comes first, and once."""

    kind: Literal["load"] = "load"
    kernels: tuple[KernelInfo, ...]


class Begin(Value):
    """An empty device with room for arguments of these sizes, at `argument_places`."""

    kind: Literal["begin"] = "begin"
    sizes: tuple[int, ...]
    how: How
    watch: Watch = ""


class Write(Value):
    """Put the bytes into device memory."""

    kind: Literal["write"] = "write"
    address: int


class Read(Value):
    """Answer with bytes of device memory; zeros where there is none."""

    kind: Literal["read"] = "read"
    address: int
    size: int


class Perform(Value):
    """Carry out operations in order, up to the first that fails."""

    kind: Literal["perform"] = "perform"
    operations: tuple[Operation, ...]


class Finish(Value):
    """Answer with what all launches did; with the timeline in the bytes if there is one."""

    kind: Literal["finish"] = "finish"


Request: TypeAlias = Annotated[Load | Begin | Write | Read | Perform | Finish, Field(discriminator="kind")]
REQUESTS: TypeAdapter[Request] = TypeAdapter(Request)


class Refusal(Value):
    """Why a request was not carried out.

    `text`: the PTX cannot be read; `unsupported`: it has a form that the emulator lacks; `memory`: more than there may
    be; `failed`: the emulator's own mistake.
    """

    kind: Literal["text", "unsupported", "memory", "failed"]
    message: str


class Reply(Value):
    """The answer to any request; `code` is CUDA's error of the operation that failed, 0 if none did."""

    refusal: Refusal | None = None
    code: int = 0
    ran: tuple[Ran, ...] = ()
    refused: str = ""


def pack(message: Value, data: bytes | memoryview = b"") -> bytes:
    """Header and JSON of a message whose bytes follow."""
    text = message.model_dump_json().encode()
    return HEADER.pack(len(text), len(data)) + text
