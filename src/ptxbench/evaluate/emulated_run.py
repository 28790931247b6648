"""Calls a candidate on the emulated device, once per draw, and tells what came of it; compares no numbers.

The host code runs once, with no device, and leaves a record; that record is carried out on every draw. Host code that
reads results runs anew each time, with the emulated device behind it. Host code and PTX are a stranger's: each runs in
a confined process of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.apart.messages import Watch
from ptxbench.emulator.apart.process import EmulatingProcess
from ptxbench.emulator.apart.running import Limits, Stopped
from ptxbench.emulator.device import Ran, argument_places
from ptxbench.emulator.host.kernels import kernels_of
from ptxbench.emulator.host.process import record
from ptxbench.emulator.host.record import LaunchRecord, TensorArgument
from ptxbench.emulator.host.runtime import Performer
from ptxbench.emulator.launch import Policy
from ptxbench.emulator.report import Finding
from ptxbench.evaluate.gpu import Plan
from ptxbench.schema.problem import Workload
from ptxbench.schema.stages import Reason
from ptxbench.settings import Settings
from ptxbench.suite.oracles import DTYPES

Arrays = dict[str, NDArray[Any]]

POISON = 0xFF
"""Outputs are filled with this byte before a call: a NaN in every float type, and one that no arithmetic gives."""

UNSUPPORTED, LIMIT, FAILED = "unsupported", "emulation_limit", "emulation_failed"
"""Codes of reasons that say nothing of the candidate: a form that is not there, a limit, the emulator's own fault."""

UNDECIDED = frozenset({UNSUPPORTED, LIMIT, FAILED})

_ENDINGS = {
    "raised": "raised",
    "not_loaded": "load_failed",
    "no_symbol": "no_symbol",
    "crashed": "crashed",
    "timeout": "hang",
    "excess": "crashed",
}
_HINTS = {
    "memory": "Give it a smaller workload, or a GPU.",
    "time": "Give it a smaller workload or a greater PTXBENCH_DEVICE_TIMEOUT; look for a loop without an end.",
    "failed": "Report this with the kernel; a GPU judges it without the emulator.",
}
_STOPS = {"deadlock": "hang", "too-long": LIMIT}


@dataclass(frozen=True)
class Program:
    """A candidate as the emulator needs it; a context manager, for its device is a process of its own."""

    plan: Plan
    device: EmulatingProcess
    settings: Settings

    @classmethod
    def load(cls, plan: Plan, ptx: Path, settings: Settings, limits: Limits | None = None) -> Program:
        """A program whose PTX is read when it is first called.

        Raises:
            ToolError: The machine code cannot be unpacked.
        """
        kernels = kernels_of(plan.library, settings)
        text = ptx.read_text()
        return cls(plan, EmulatingProcess(text, kernels, limits or Limits.of_this_machine(), settings), settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.device.close()


@dataclass(frozen=True)
class Call:
    """One call of the candidate.

    Attributes:
        record: What its host code asked for.
        ran: The launches, in order.
        refused: An operation that the device refused, as CUDA would say it.
        outputs: Copies of the outputs by name.
        changed: Names of the inputs that are not what they were.
        stopped: Why the emulation itself came to no end; nothing else is known then.
        timeline: Of the launches, as JSON, if it was asked for.
    """

    record: LaunchRecord
    ran: tuple[Ran, ...]
    refused: str
    outputs: Arrays
    changed: tuple[str, ...]
    stopped: Reason | None = None
    timeline: bytes = b""

    @property
    def fault(self) -> Reason | None:
        """Why the call did not come to its end; None when it did."""
        return self.stopped or self._lacking() or self._failed() or self._ended()

    def _lacking(self) -> Reason | None:
        hint = "Run it on a GPU, or write it without; `docs/emulator.md` says what is modelled."
        for each in self.ran:
            if each.result.unsupported:
                return Reason(code=UNSUPPORTED, message=f"{each.kernel}: {each.result.unsupported}.", hint=hint)
        if self.record.unsupported:
            names = ", ".join(self.record.unsupported)
            return Reason(code=UNSUPPORTED, message=f"unsupported: the host code calls {names}.", hint=hint)
        return None

    def _failed(self) -> Reason | None:
        for each in self.ran:
            if each.result.error:
                rules = [found for found in each.result.findings if found.severity == "error"]
                last = rules[-1] if rules else None
                code = _STOPS.get(last.rule, "cuda_error") if last else "cuda_error"
                place = f", {last.place}" if last and last.place else ""
                message = f"{each.kernel}{place}: {_what_stopped(each.result.error, last)}"
                hint = _HINTS["time"] if code == LIMIT else sentence(last.hint if last else "")
                return Reason(code=code, message=message, hint=hint)
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

    def call(self, inputs: Arrays, policy: Policy, watch: Watch = "") -> Call:
        """Call the candidate on these inputs; every schedule may take the policy's seconds.

        Raises:
            Refused: The PTX cannot be emulated.
            ToolError: A tool is missing.
            SandboxError: A process cannot be set up.
        """
        arguments = self._arguments()
        if self._record is None:
            self.program.device.start()  # Python starts while the host code runs
            self._record = self._called(arguments)
        try:
            return self._carry_out(self._record, arguments, inputs, policy, watch)
        except Stopped as stop:
            reason = Reason(code=FAILED if stop.kind == "failed" else LIMIT, message=stop.what, hint=_HINTS[stop.kind])
            return Call(self._record, (), "", {}, (), reason)

    def _carry_out(
        self, made: LaunchRecord, arguments: Mapping[str, TensorArgument], inputs: Arrays, policy: Policy, watch: Watch
    ) -> Call:
        device, problem = self.program.device, self.program.plan.problem
        seconds = policy.seconds * len(policy.schedules)
        device.begin([each.size for each in arguments.values()], policy, seconds, watch)
        for name, argument in arguments.items():
            given = inputs.get(name)
            device.write(argument.address, bytes([POISON]) * argument.size if given is None else _bytes(given))
        if self.live and not made.unsupported:
            made = self._called(arguments, device)
        elif made.ending.kind in ("returned", "raised"):
            device.replay(made.operations)
        told, timeline = device.finish()
        left = {name: device.read(argument.address, argument.size) for name, argument in arguments.items()}
        outputs = {spec.name: _array(left[spec.name], arguments[spec.name]) for spec in problem.outputs}
        changed = tuple(name for name, given in inputs.items() if left[name] != _bytes(given))
        return Call(made, told.ran, told.refused, outputs, changed, timeline=timeline)

    def _called(self, arguments: Mapping[str, TensorArgument], performer: Performer | None = None) -> LaunchRecord:
        plan = self.program.plan
        symbol, given = plan.candidate.entry_symbol, list(arguments.values())
        return record(plan.library, symbol, given, self.program.settings, performer=performer)

    def _arguments(self) -> dict[str, TensorArgument]:
        """The arguments: the same addresses for every call."""
        problem = self.program.plan.problem
        shapes = [problem.shape(spec, self.workload) for spec in problem.arguments]
        sizes = [
            int(np.prod(shape)) * spec.dtype.itemsize for spec, shape in zip(problem.arguments, shapes, strict=True)
        ]
        return {
            spec.name: TensorArgument(address=address, shape=shape, dtype=spec.dtype)
            for spec, shape, address in zip(problem.arguments, shapes, argument_places(sizes), strict=True)
        }


def untouched(output: NDArray[Any]) -> tuple[int, NDArray[np.bool_]]:
    """How many elements still hold the poison, and which."""
    words = output.view(np.uint16 if output.dtype.itemsize == 2 else np.uint32)
    kept: NDArray[np.bool_] = words == words.dtype.type(-1 & ((1 << 8 * words.dtype.itemsize) - 1))
    return int(kept.sum()), kept


def sentence(text: str) -> str:
    """A finding's words with a capital and a full stop."""
    return f"{text[0].upper()}{text[1:].rstrip('.')}." if text else ""


def _bytes(array: NDArray[Any]) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def _array(data: bytes, argument: TensorArgument) -> NDArray[Any]:
    return np.frombuffer(data, DTYPES[argument.dtype]).reshape(argument.shape)


def _what_stopped(error: str, last: Finding | None, limit: int = 600) -> str:
    """One sentence; who else waits stands in the findings."""
    if last is None or not last.state:
        return error[:limit]
    others = len(last.state) - 1
    more = f"; {others} more {'group of warps waits' if others == 1 else 'groups of warps wait'}" if others else ""
    return f"{last.rule}: {last.state[0]}{more}"
