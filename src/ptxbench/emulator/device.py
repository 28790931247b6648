"""An emulated device: carries out what host code asked for, in order (memory, copies, fills, launches); judges nothing.

Streams and events need nothing here: the host asks in an order that they allow, and each operation is over before the
next begins. A launch with programmatic stream serialization is told what it need not see yet of the one in front of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.host.kernels import KernelInfo
from ptxbench.emulator.host.record import Allocate, Attribute, Copy, Fill, Free, Launch, Operation
from ptxbench.emulator.launch import TRIGGER, KernelLaunch, LaunchResult, LoadedModule, Policy, run_launch
from ptxbench.emulator.machine.dependence import Changes
from ptxbench.emulator.machine.memory import BASE, DeviceMemory
from ptxbench.emulator.ptx.ir import Module

ALLOCATIONS = 1 << 32
"""Bytes of addresses that are the candidate's own; its arguments lie behind them."""

ARGUMENTS = 1 << 34
"""Bytes of addresses for the arguments; the module's variables and parameters lie behind them."""

CAPACITY = ALLOCATIONS + ARGUMENTS + (1 << 32)
"""Bytes of addresses in all."""

_GAP = 1 << 16
_ALIGN = 512

_INVALID_VALUE, _OUT_OF_MEMORY, _LAUNCH_FAILURE = 1, 2, 719


def device_memory() -> DeviceMemory:
    """Empty memory, with room for what the stub runtime gives out."""
    return DeviceMemory(CAPACITY, reserved=ALLOCATIONS + ARGUMENTS)


def argument_places(sizes: Sequence[int]) -> tuple[int, ...]:
    """An address for each argument of so many bytes; between them lie gaps, so that a step beyond one is found.

    Raises:
        Fault: cudaErrorMemoryAllocation, when the device has no room for them.
    """
    places, following = [], BASE + ALLOCATIONS + _GAP
    for size in sizes:
        places.append(following)
        following = -(-(following + size) // _ALIGN) * _ALIGN + _GAP
    if following > BASE + ALLOCATIONS + ARGUMENTS:
        raise Fault("cudaErrorMemoryAllocation", f"{sum(sizes)} bytes of arguments do not fit the emulated device")
    return tuple(places)


@dataclass(frozen=True)
class Ran:
    """One launch and what it did."""

    kernel: str
    result: LaunchResult


class Device:
    """One device with one candidate's module; the operations of a host program go to `perform`, in order.

    Attributes:
        ran: The launches so far.
        refused: Why an operation could not be carried out, as CUDA would say it; empty while all could.
    """

    def __init__(
        self, module: Module, kernels: Mapping[str, KernelInfo], policy: Policy, memory: DeviceMemory | None = None
    ) -> None:
        self.memory = memory or device_memory()
        self.ran: list[Ran] = []
        self.refused = ""
        self._loaded = LoadedModule(module, self.memory)
        self._kernels = kernels
        self._policy = policy
        self._front: tuple[int, Changes] | None = None
        """The stream of the last launch, and what it changed, while a launch behind it may begin before its end."""

    @property
    def stopped(self) -> bool:
        """Whether a kernel failed, so that the device does nothing more."""
        return any(each.result.error or each.result.unsupported for each in self.ran)

    def replay(self, operations: Iterable[Operation]) -> None:
        """Carry out a record, up to the first failure."""
        for operation in operations:
            if self.perform(operation):
                return

    def perform(self, operation: Operation) -> int:
        """Carry out one operation; the CUDA error code that its call returns."""
        if self.stopped:
            return _LAUNCH_FAILURE
        try:
            if isinstance(operation, Launch):
                return self._launch(operation)
            if not isinstance(operation, Attribute):
                self._front = None
            if isinstance(operation, Allocate):
                self._allocate(operation)
            elif isinstance(operation, Free):
                self.memory.free(operation.address)
            elif isinstance(operation, Copy):
                self._copy(operation)
            elif isinstance(operation, Fill):
                self._fill(operation)
        except Fault as fault:
            self.refused = self.refused or str(fault)
            return _OUT_OF_MEMORY if isinstance(operation, Allocate) else _INVALID_VALUE
        return 0

    def read(self, address: int, size: int) -> bytes:
        """Bytes of device memory; zeros where there is none."""
        try:
            return self.memory.read(address, size)
        except Fault:
            return bytes(size)

    def _launch(self, launch: Launch) -> int:
        info = self._kernels.get(launch.kernel)
        wanted = KernelLaunch(
            kernel=launch.kernel,
            grid=launch.grid,
            block=launch.block,
            cluster=launch.cluster,
            dynamic_shared=launch.dynamic_shared,
            parameters=tuple(blob.data for blob in launch.parameters),
            static_shared=info.static_shared if info else 0,
            registers=info.registers if info and self._keeps_setmaxnreg(launch.kernel) else 0,
            explicit_cluster=launch.cluster != (1, 1, 1),
        )
        front, self._front = self._front, None
        changes = front[1] if front is not None and launch.programmatic and front[0] == launch.stream else None
        saved = self.memory.snapshot() if self._loaded.lets_dependents_start(launch.kernel) else None
        result = run_launch(self._loaded, wanted, self.memory, self._policy, changes)
        if saved is not None and any(each.name == TRIGGER and each.threads for each in result.counts):
            self._front = (launch.stream, Changes.since(saved, self.memory))
        self.ran.append(Ran(launch.kernel, result))
        return _LAUNCH_FAILURE if result.error or result.unsupported else 0

    def _keeps_setmaxnreg(self, kernel: str) -> bool:
        function = self._loaded.module.functions.get(kernel)
        return function is not None and function.keeps_setmaxnreg

    def _allocate(self, wanted: Allocate) -> None:
        if not wanted.address - BASE < ALLOCATIONS:
            raise Fault("cudaErrorMemoryAllocation", f"{wanted.size} bytes are more than the emulated device has left")
        self.memory.place(wanted.address, wanted.size)
        known = self._loaded.symbols.get(wanted.symbol)
        if known is not None:  # a variable of the module: from now on it lies where the host knows it
            self.memory.write(wanted.address, self.memory.read(known, wanted.size))
            self._loaded.symbols[wanted.symbol] = wanted.address

    def _copy(self, copy: Copy) -> None:
        if copy.direction == "to_host":
            return
        rows = memoryview(copy.data.data) if copy.data is not None else None
        for row in range(copy.height):
            if rows is not None:
                piece: bytes | memoryview = rows[row * copy.width : (row + 1) * copy.width]
            else:
                piece = self.memory.read(copy.source + row * copy.source_pitch, copy.width)
            self.memory.write(copy.destination + row * copy.destination_pitch, piece)

    def _fill(self, fill: Fill) -> None:
        value = fill.value & ((1 << 8 * fill.element_bytes) - 1)
        row = value.to_bytes(fill.element_bytes, "little") * fill.width
        for number in range(fill.height):
            self.memory.write(fill.address + number * fill.pitch, row)
