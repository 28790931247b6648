"""What the judge needs of its machine, as protocols: a device, shared memory, candidate processes; holds no policy."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from ptxbench.evaluate.child.arena import Slot, View, largest
from ptxbench.evaluate.child.device import DeviceFacts
from ptxbench.evaluate.child.gpu_state import StateReader
from ptxbench.evaluate.child.process import Ended
from ptxbench.evaluate.child.protocol import CandidateFiles
from ptxbench.evaluate.child.session import CallResult
from ptxbench.evaluate.child.timing import Meter
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.values import ToolVersion, Unavailable

SLOTS = 4
"""Sets of pointers that the timed calls rotate over (E21)."""
MEMORY_SHARE = 0.25
"""The part of device memory that the slots may take."""


class Device(Protocol):
    """The judge's own device; see `device.CudaDevice`."""

    @property
    def torch_device(self) -> torch.device:
        """Where the judge's tensors lie."""

    @property
    def facts(self) -> DeviceFacts:
        """What the device says of itself."""

    def synchronize(self) -> None:
        """Wait until the device is idle."""

    def flush_l2(self) -> None:
        """Write over the whole L2 cache."""

    def generator(self, seed: int) -> torch.Generator:
        """A source of random numbers on this device."""

    def answers(self, seconds: float) -> bool:
        """Whether a small kernel still completes within its time."""


class Memory(Protocol):
    """Dedicated allocations that one candidate process will map."""

    def allocate(self, nbytes: int) -> tuple[int, torch.Tensor]:
        """Room for `nbytes` bytes of data between guards: its index, and all of it as a uint8 tensor."""


class Candidate(Protocol):
    """One candidate process."""

    def ready(self) -> None:
        """Wait until the process has come up; raises `PtxbenchError`."""

    def load(self) -> None:
        """Load the candidate's library; raises `CandidateFault`."""

    def call(self, view: View) -> CallResult:
        """Call `run` on a view's arguments; raises `CandidateFault`."""

    def call_cold(self, view: View) -> CallResult:
        """The same, after taking back what the process lets persist in the L2 cache."""

    def empty_call_ms(self) -> float:
        """What a call that does next to nothing costs by the judge's clock; raises `CandidateFault`."""

    @property
    def loaded_cubins(self) -> tuple[str, ...]:
        """SHA-256 of every cubin that the process has loaded since its start."""

    @property
    def protections(self) -> tuple[str, ...]:
        """Protections that are active around the process."""

    @property
    def missing_protections(self) -> tuple[Unavailable, ...]:
        """Protections that are not, with the reason."""

    def finish(self, seconds: float) -> Ended:
        """Let the process end by itself, so that a tool around it can write its report; raises `CandidateFault`."""

    def end(self) -> Ended:
        """End the process and everything it started."""


@dataclass(frozen=True)
class Tool:
    """A tool that a candidate process runs under.

    Attributes:
        wrapper: Command line put before the process's own.
        staged: Call with allocations of the exact sizes.
        keep_root: Keep the rights that reading hardware counters takes.
    """

    wrapper: tuple[str, ...]
    staged: bool
    keep_root: bool


class Desk(Protocol):
    """The judge's machine."""

    @property
    def device(self) -> Device:
        """The judge's own device."""

    @property
    def meter(self) -> Meter | Unavailable:
        """The activity instrument in the judge's own process."""

    @property
    def instrument(self) -> ToolVersion | None:
        """Its name and version."""

    @property
    def reader(self) -> StateReader | Unavailable:
        """Reads clocks, power and temperature."""

    def memory(self) -> AbstractContextManager[Memory]:
        """Memory for one candidate; given back at the end of the block."""

    def begin(self, files: CandidateFiles, memory: Memory, deadline: float, tool: Tool | None = None) -> Candidate:
        """Start a candidate process that maps the memory, without waiting for it.

        Args:
            files: What to load.
            memory: Everything it may map.
            deadline: Seconds of one order before the candidate counts as hung.
            tool: What to run it under; without one its activity is recorded.

        Raises:
            PtxbenchError: The process could not be started.
        """


def slot_count(problem: Problem, workloads: Sequence[Workload], facts: DeviceFacts) -> int:
    """How many slots fit the share of device memory: at most `SLOTS`, at least 1."""
    each = sum(largest(problem, spec, workloads) for spec in problem.arguments)
    return max(1, min(SLOTS, int(MEMORY_SHARE * facts.total_bytes / each)))


def make_slots(memory: Memory, problem: Problem, workloads: Sequence[Workload], count: int) -> list[Slot]:
    """Allocate sets of pointers that are large enough for each of the workloads."""
    slots = []
    for _ in range(count):
        places = {spec.name: memory.allocate(largest(problem, spec, workloads)) for spec in problem.arguments}
        slots.append(
            Slot(
                {name: index for name, (index, _) in places.items()},
                {name: tensor for name, (_, tensor) in places.items()},
            )
        )
    return slots
