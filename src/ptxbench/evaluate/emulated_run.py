"""Calls a candidate on the emulated device, once per draw, and tells what came of it; compares no numbers.

The host code runs once, with no device, and leaves a record; that record is carried out on every draw. Host code that
reads results runs anew each time, with the emulated device behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.device import Device, Ran, device_memory
from ptxbench.emulator.host.kernels import KernelInfo, kernels_of
from ptxbench.emulator.host.process import record
from ptxbench.emulator.host.record import LaunchRecord, TensorArgument
from ptxbench.emulator.launch import Policy
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.ir import Module
from ptxbench.emulator.ptx.parse import parse
from ptxbench.evaluate.gpu import Plan
from ptxbench.schema.problem import DType, Workload
from ptxbench.schema.stages import Reason
from ptxbench.settings import Settings
from ptxbench.suite.oracles import DTYPES

Arrays = dict[str, NDArray[Any]]

POISON = 0xFF
"""Outputs are filled with this byte before a call: a NaN in every float type, and one that no arithmetic gives."""

UNSUPPORTED, TOO_LONG = "unsupported", "too_long"
"""Codes of reasons that say nothing about the candidate."""

_ENDINGS = {
    "raised": "raised",
    "not_loaded": "load_failed",
    "no_symbol": "no_symbol",
    "crashed": "crashed",
    "timeout": "hang",
    "excess": "crashed",
}
_STOPS = {"deadlock": "hang", "too-long": TOO_LONG}


@dataclass(frozen=True)
class Program:
    """A candidate as the emulator needs it."""

    plan: Plan
    module: Module
    kernels: Mapping[str, KernelInfo]
    settings: Settings

    @classmethod
    def load(cls, plan: Plan, ptx: Path, settings: Settings) -> Program:
        """Read the candidate's PTX and what its machine code says of its kernels.

        Raises:
            PtxError: The text is beyond what the emulator reads.
            ToolError: The machine code cannot be unpacked.
        """
        return cls(plan, parse(ptx.read_text()), kernels_of(plan.library, settings), settings)


@dataclass(frozen=True)
class Call:
    """One call of the candidate.

    Attributes:
        record: What its host code asked for.
        ran: The launches, in order.
        refused: An operation that the device refused, as CUDA would say it.
        outputs: Copies of the outputs by name.
        changed: Names of the inputs that are not what they were.
    """

    record: LaunchRecord
    ran: tuple[Ran, ...]
    refused: str
    outputs: Arrays
    changed: tuple[str, ...]

    @property
    def fault(self) -> Reason | None:
        """Why the call did not come to its end; None when it did."""
        return self._lacking() or self._stopped() or self._ended()

    def _lacking(self) -> Reason | None:
        hint = "Run it on a GPU, or write it without; `docs/emulator.md` says what is modelled."
        for each in self.ran:
            if each.result.unsupported:
                return Reason(code=UNSUPPORTED, message=f"{each.kernel}: {each.result.unsupported}.", hint=hint)
        if self.record.unsupported:
            names = ", ".join(self.record.unsupported)
            return Reason(code=UNSUPPORTED, message=f"unsupported: the host code calls {names}.", hint=hint)
        return None

    def _stopped(self) -> Reason | None:
        for each in self.ran:
            if each.result.error:
                rules = [found for found in each.result.findings if found.severity == "error"]
                last = rules[-1] if rules else None
                code = _STOPS.get(last.rule, "cuda_error") if last else "cuda_error"
                place = f" ({last.location.file}:{last.location.line})" if last and last.location else ""
                message = f"{each.kernel}{place}: {_shortened(each.result.error)}"
                return Reason(code=code, message=message, hint=last.hint if last else "")
        return None

    def _ended(self) -> Reason | None:
        ending = self.record.ending
        if ending.kind != "returned":
            failures = f" Before that, {self.record.failures[0]}." if self.record.failures else ""
            return Reason(code=_ENDINGS[ending.kind], message=f"{ending.message}{failures}")
        refused = self.refused or ("" if self.record.launches else next(iter(self.record.failures), ""))
        return Reason(code="cuda_error", message=refused) if refused else None


@dataclass
class Emulation:
    """One workload of a program, called any number of times."""

    program: Program
    workload: Workload
    _record: LaunchRecord | None = field(default=None, init=False)

    @property
    def live(self) -> bool:
        """Whether the host code itself runs in every call, because its record cannot stand for it."""
        return self._record is not None and self._record.ending.kind == "returned" and not self._record.replayable

    def call(self, inputs: Arrays, policy: Policy) -> Call:
        """Call the candidate on these inputs.

        Raises:
            ToolError: A tool is missing.
            SandboxError: The host process cannot be set up.
        """
        plan, settings = self.program.plan, self.program.settings
        memory = device_memory()
        arguments = self._arguments(memory, inputs)
        device = Device(self.program.module, self.program.kernels, policy, memory)
        symbol, list_of = plan.candidate.entry_symbol, list(arguments.values())
        if self._record is None:
            self._record = record(plan.library, symbol, list_of, settings)
        made = self._record
        if self.live and not made.unsupported:
            made = record(plan.library, symbol, list_of, settings, performer=device)
        elif made.ending.kind in ("returned", "raised"):
            device.replay(made.operations)
        outputs = {spec.name: _array(memory, arguments[spec.name], spec.dtype) for spec in plan.problem.outputs}
        changed = [name for name, given in inputs.items() if _read(memory, arguments[name]) != _bytes(given)]
        return Call(made, tuple(device.ran), device.refused, outputs, tuple(changed))

    def _arguments(self, memory: DeviceMemory, inputs: Arrays) -> dict[str, TensorArgument]:
        """The arguments in fresh memory: the same addresses for every call."""
        made = {}
        for spec in self.program.plan.problem.arguments:
            shape = self.program.plan.problem.shape(spec, self.workload)
            size = int(np.prod(shape)) * spec.dtype.itemsize
            argument = TensorArgument(address=memory.allocate(size), shape=shape, dtype=spec.dtype)
            given = inputs.get(spec.name)
            memory.write(argument.address, bytes([POISON]) * size if given is None else _bytes(given))
            made[spec.name] = argument
        return made


def untouched(output: NDArray[Any]) -> tuple[int, NDArray[np.bool_]]:
    """How many elements still hold the poison, and which."""
    words = output.view(np.uint16 if output.dtype.itemsize == 2 else np.uint32)
    kept: NDArray[np.bool_] = words == words.dtype.type(-1 & ((1 << 8 * words.dtype.itemsize) - 1))
    return int(kept.sum()), kept


def _bytes(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def _read(memory: DeviceMemory, argument: TensorArgument) -> bytes:
    return memory.read(argument.address, argument.size)


def _array(memory: DeviceMemory, argument: TensorArgument, dtype: DType) -> NDArray[Any]:
    return np.frombuffer(_read(memory, argument), DTYPES[dtype]).reshape(argument.shape)


def _shortened(error: str, limit: int = 600) -> str:
    """One sentence; who else waits stands in the findings."""
    return error if len(error) <= limit else f"{error[:limit].rsplit('; ', 1)[0]}; and more"
