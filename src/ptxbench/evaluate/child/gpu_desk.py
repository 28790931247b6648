"""The judge's desk on a real GPU: torch's device, memory that processes can map, sessions; holds no policy."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from ptxbench.evaluate.child.arena import View
from ptxbench.evaluate.child.baselines import library_versions
from ptxbench.evaluate.child.desk import Candidate, Device, Memory, Tool
from ptxbench.evaluate.child.device import CudaDevice
from ptxbench.evaluate.child.gpu_state import open_reader
from ptxbench.evaluate.child.instrument import Spans
from ptxbench.evaluate.child.memory import Buffer, CudaView, DeviceMemory
from ptxbench.evaluate.child.oracle import exact_arithmetic
from ptxbench.evaluate.child.parts import Instrument, build_parts
from ptxbench.evaluate.child.process import Ended
from ptxbench.evaluate.child.protocol import CandidateFiles, Hello
from ptxbench.evaluate.child.session import CallResult, Session, SessionSpec
from ptxbench.schema.values import ToolVersion, Unavailable
from ptxbench.settings import Settings

START_SECONDS = 30.0
"""For a candidate process to come up, before any of the candidate's code runs; without a tool it takes 0.3 s."""


class SharedMemory:
    """`desk.Memory` in buffers that a candidate process can map."""

    def __init__(self, memory: DeviceMemory, tensor: Callable[[Buffer], torch.Tensor]) -> None:
        self._memory = memory
        self._tensor = tensor
        self.buffers: list[Buffer] = []

    def allocate(self, nbytes: int) -> tuple[int, torch.Tensor]:
        """See `desk.Memory.allocate`."""
        buffer = self._memory.allocate(nbytes)
        self.buffers.append(buffer)
        return len(self.buffers) - 1, self._tensor(buffer)


class SessionCandidate:
    """`desk.Candidate` in a session."""

    def __init__(
        self, session: Session, folder: tempfile.TemporaryDirectory[str], seconds: tuple[float, float], device: Device
    ) -> None:
        self._session = session
        self._folder = folder
        self._start_seconds, self._deadline = seconds
        self._device = device

    def ready(self) -> None:
        """See `desk.Candidate.ready`."""
        self._session.ready(self._start_seconds)

    def load(self) -> None:
        """See `desk.Candidate.load`."""
        self._session.load(self._deadline)

    def call(self, view: View) -> CallResult:
        """See `desk.Candidate.call`."""
        self._device.synchronize()  # what the judge wrote must be there before another process reads it
        return self._session.call(view.arguments, self._deadline)

    def call_cold(self, view: View) -> CallResult:
        """See `desk.Candidate.call_cold`."""
        self._session.reset_l2()
        return self._session.call(view.arguments, self._deadline)

    def empty_call_ms(self) -> float:
        """See `desk.Candidate.empty_call_ms`."""
        self._session.reset_l2()
        return self._session.calibrate().wall_ns / 1e6

    @property
    def loaded_cubins(self) -> tuple[str, ...]:
        """See `desk.Candidate.loaded_cubins`."""
        return tuple(module.sha256 for module in self._session.modules)

    @property
    def protections(self) -> tuple[str, ...]:
        """See `desk.Candidate.protections`."""
        return tuple(report.name for report in self._session.protections if report.active)

    @property
    def missing_protections(self) -> tuple[Unavailable, ...]:
        """See `desk.Candidate.missing_protections`."""
        return tuple(
            Unavailable(name=report.name, reason=report.reason or os.strerror(report.error))
            for report in self._session.protections
            if not report.active
        )

    def finish(self, seconds: float) -> Ended:
        """See `desk.Candidate.finish`."""
        return self._session.finish(seconds)

    def end(self) -> Ended:
        """See `desk.Candidate.end`."""
        ended = self._session.close()
        self._folder.cleanup()
        return ended


class GpuDesk:
    """`desk.Desk` on one GPU."""

    def __init__(self, ordinal: int, settings: Settings) -> None:
        exact_arithmetic()
        self.device: Device = CudaDevice(ordinal)
        self.parts = build_parts(settings)
        self.meter = self._open_meter()
        self.instrument = None
        if isinstance(self.meter, Spans):
            self.instrument = ToolVersion(name="cupti", version=str(self.meter.version))
        self.reader = open_reader(self.device.facts.uuid)
        self._ordinal = ordinal

    def _open_meter(self) -> Spans | Unavailable:
        found = self.parts.instrument
        return Spans.open(found.library, found.cupti) if isinstance(found, Instrument) else found

    @contextmanager
    def memory(self) -> Iterator[SharedMemory]:
        """See `desk.Desk.memory`."""
        with DeviceMemory(self._ordinal) as memory:
            yield SharedMemory(memory, self._tensor)
            self.device.synchronize()

    def _tensor(self, buffer: Buffer) -> torch.Tensor:
        return torch.as_tensor(CudaView(buffer.base, buffer.size, buffer), device=self.device.torch_device)

    def begin(self, files: CandidateFiles, memory: Memory, deadline: float, tool: Tool | None = None) -> Candidate:
        """See `desk.Desk.begin`."""
        assert isinstance(memory, SharedMemory)
        start_seconds = START_SECONDS if tool is None else max(START_SECONDS, deadline)
        folder = tempfile.TemporaryDirectory(prefix="ptxbench-candidate-")
        spec = SessionSpec(
            parts=self.parts,
            library=files.program or files.library,
            symbol=files.symbol,
            device=self._ordinal,
            buffers=tuple(memory.buffers),
            folder=Path(folder.name),
            staged=bool(tool and tool.staged),
            wrapper=tool.wrapper if tool else (),
            keep_root=bool(tool and tool.keep_root),
            measured=tool is None and isinstance(self.parts.instrument, Instrument),
            replayed=files.program is not None,
        )
        return SessionCandidate(Session.begin(spec, start_seconds), folder, (start_seconds, deadline), self.device)


def hello(desk: GpuDesk) -> Hello:
    """What this judge found on its machine."""
    facts = desk.device.facts
    libraries, missing = library_versions()
    tools = [ToolVersion(name="torch", version=torch.__version__)]
    for found in (desk.instrument, desk.reader):
        if isinstance(found, ToolVersion):
            tools.append(found)
        elif isinstance(found, Unavailable):
            missing += (found,)
        elif found is not None:
            tools.append(found.tool)
    if isinstance(desk.meter, Unavailable):
        missing += (desk.meter,)
    return Hello(
        device_name=facts.name,
        gpu_uuid=facts.uuid,
        driver=facts.driver,
        compute_capability=facts.capability,
        sm_count=facts.limits.sm_count,
        max_sm_clock_mhz=int(facts.limits.max_clock_hz / 1e6),
        memory_bandwidth=facts.limits.bandwidth,
        tools=tuple(tools),
        baselines=libraries,
        missing=missing,
    )
