"""The emulating process: reads a stranger's PTX, carries out requests over its socket, knows no expected result.

    python -m ptxbench.emulator.apart.serve SOCKET MEMORY

It makes ready what it needs of this machine, then gives up its rights, then reads. It ends with its caller.
"""

from __future__ import annotations

import ctypes
import gc
import resource
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import assert_never

from ptxbench.emulator.apart.messages import (
    HEADER,
    REQUESTS,
    Begin,
    Finish,
    Load,
    Perform,
    Read,
    Refusal,
    Reply,
    Request,
    Watch,
    Write,
    pack,
)
from ptxbench.emulator.apart.rights import read_only
from ptxbench.emulator.checks.observer import Observer
from ptxbench.emulator.device import CAPACITY, Device, argument_places, device_memory
from ptxbench.emulator.errors import PtxError, Unsupported
from ptxbench.emulator.host.kernels import KernelInfo
from ptxbench.emulator.launch import KernelLaunch, Policy, run_launch
from ptxbench.emulator.machine.cluster import Cluster
from ptxbench.emulator.ptx.ir import Module
from ptxbench.emulator.ptx.parse import parse
from ptxbench.emulator.trace import Trace
from ptxbench.emulator.witness import spoiler

_PR_SET_PDEATHSIG = 1
_BESIDE = 2 << 30
"""Bytes of addresses that libraries and thread stacks reserve and do not use."""


@dataclass
class Server:
    """Carries out requests, in order."""

    module: Module | None = None
    kernels: dict[str, KernelInfo] = field(default_factory=dict)
    device: Device | None = None
    trace: Trace | None = None

    def answer(self, request: Request, data: bytes) -> tuple[Reply, bytes]:
        """What comes of a request; never an exception, for the text that it is about is hostile."""
        try:
            return self._carry_out(request, data)
        except PtxError as error:
            return _refuse("text", f"{error}"), b""
        except Unsupported as error:
            return _refuse("unsupported", f"{error}"), b""
        except MemoryError:
            self.device = self.trace = None
            return _refuse("memory", "an allocation failed"), b""
        except Exception as error:  # noqa: BLE001  (whatever a hostile text provokes must end as an answer)
            return _refuse("failed", _told(error)), b""

    def _carry_out(self, request: Request, data: bytes) -> tuple[Reply, bytes]:
        if isinstance(request, Load):
            self.module = parse(data.decode("utf-8", "replace"))
            self.kernels = {each.name: each for each in request.kernels}
            return Reply(), b""
        if isinstance(request, Begin):
            self._begin(request)
            return Reply(), b""
        device = self.device
        assert device is not None, "the device begins first"
        if isinstance(request, Write):
            device.memory.write(request.address, data)
        elif isinstance(request, Read):
            return Reply(), device.read(request.address, request.size)
        elif isinstance(request, Perform):
            codes = (device.perform(each) for each in request.operations)
            return Reply(code=next((code for code in codes if code), 0)), b""
        elif isinstance(request, Finish):
            timeline = self.trace.text().encode() if self.trace else b""
            return Reply(ran=tuple(device.ran), refused=device.refused), timeline
        else:
            assert_never(request)
        return Reply(), b""

    def _begin(self, request: Begin) -> None:
        assert self.module is not None, "the text comes first"
        self.device = self.trace = None
        gc.collect()  # the old device's memory goes before new memory comes
        self.trace = Trace() if request.watch == "trace" else None
        policy = Policy(**request.how.model_dump(), watch=_watcher(request.watch, self.trace))
        memory = device_memory()
        for address, size in zip(argument_places(request.sizes), request.sizes, strict=True):
            memory.place(address, size)
        self.device = Device(self.module, self.kernels, policy, memory)


def _watcher(watch: Watch, trace: Trace | None) -> Callable[[Cluster], Observer] | None:
    if trace is not None:
        return trace.watch
    if watch == "mma" or watch == "tma":  # noqa: PLR1714  (so that its type is known)
        return spoiler(watch)
    return None


def _refuse(kind: str, message: str) -> Reply:
    return Reply(refusal=Refusal.model_validate({"kind": kind, "message": message[:2000]}))


def _told(error: Exception) -> str:
    """The error with the innermost place, for the one who has to mend it."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def _receive(end: socket.socket, size: int) -> bytes:
    """Exactly so many bytes; the process ends when its caller has."""
    body = bytearray(size)
    view, got = memoryview(body), 0
    while got < size:
        count = end.recv_into(view[got:])
        if count == 0:
            raise SystemExit(0)
        got += count
    return bytes(body)


_READY = """
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out) {
  .reg .b64 d; .reg .b32 r;
  ld.param.u64 d, [out]; ld.global.b32 r, [d]; add.s32 r, r, 1; st.global.b32 [d], r; ret;
}
"""


def get_ready() -> None:
    """Run a kernel of our own: what is made on first use (libraries, helpers) is made while that is allowed."""
    memory = device_memory()
    address = memory.allocate(4)
    launch = KernelLaunch("k", (1, 1, 1), (32, 1, 1), parameters=(address.to_bytes(8, "little"),))
    run_launch(parse(_READY), launch, memory)


def main() -> None:
    """Serve until the caller closes its end."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    get_ready()
    read_only([Path(sys.prefix), Path(sys.base_prefix), *(Path(each) for each in sys.path if each)])
    most = int(sys.argv[2]) + CAPACITY + _BESIDE
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    server = Server()
    with socket.socket(fileno=int(sys.argv[1])) as end:
        while True:
            size, more = HEADER.unpack(_receive(end, HEADER.size))
            request = REQUESTS.validate_json(_receive(end, size))
            reply, data = server.answer(request, _receive(end, more))
            end.sendall(pack(reply, data))
            end.sendall(data)


if __name__ == "__main__":
    main()
