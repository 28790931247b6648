# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""The whole judge over real candidate processes, on a driver of ours that keeps device memory in files; no GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ptxbench.evaluate.statistics import DeviceLimits
from ptxbench.schema.problem import Role, Workload
from ptxbench.schema.stages import Outcome
from ptxbench.schema.values import Unavailable
from ptxbench.suite import load_problem

torch = pytest.importorskip("torch", reason="the judge needs torch, which is an extra")

from ptxbench.evaluate.child.device import DeviceFacts
from ptxbench.evaluate.child.gpu_desk import GpuDesk, SharedMemory
from ptxbench.evaluate.child.measuring import measure
from ptxbench.evaluate.child.memory import Buffer, DeviceMemory
from ptxbench.evaluate.child.parts import NativeParts
from ptxbench.evaluate.child.protocol import CandidateFiles, Measure, Measured, Wrapped
from ptxbench.evaluate.child.wrapping import run_wrapped

MISSING = Unavailable(name="cupti", reason="no device here", remedy="Use a GPU.")


class Cpu:
    torch_device = torch.device("cpu")
    facts = DeviceFacts("CPU", "GPU-0", "1", (9, 0), DeviceLimits(9, 132, 1.98e9, 4.8e12), 1 << 20, 1 << 34)

    def synchronize(self) -> None: ...

    def flush_l2(self) -> None: ...

    def generator(self, seed: int) -> Any:
        return torch.Generator().manual_seed(seed)

    def answers(self, seconds: float) -> bool:
        return True


class FileDesk(GpuDesk):
    """The real desk, with device memory in files and no instrument."""

    def __init__(self, parts: NativeParts) -> None:
        self.device = Cpu()
        self.parts = parts
        self.meter = MISSING
        self.instrument = None
        self.reader = MISSING
        self._ordinal = 0

    @contextmanager
    def memory(self) -> Iterator[SharedMemory]:
        with DeviceMemory(0, self.parts.cuda) as memory:
            yield SharedMemory(memory, self._tensor)

    def _tensor(self, buffer: Buffer) -> Any:
        return torch.frombuffer((ctypes.c_ubyte * buffer.size).from_address(buffer.base), dtype=torch.uint8)


@pytest.fixture(scope="session")
def judged(build_candidate: Callable[..., Path]) -> Path:
    return build_candidate("judged.c")


def request(library: Path, symbol: str, **update: Any) -> Measure:
    problem = load_problem("gemm_n7168_k5120")
    axes = tuple(axis.model_copy(update={"value": {"N": 48, "K": 64}.get(axis.name)}) for axis in problem.axes)
    fields: dict[str, Any] = {
        "problem": problem.model_copy(update={"axes": axes}),
        "workload": Workload(uuid="w", axes={"M": 40}, role=Role.PAPER),
        "neighbours": (Workload(uuid="n", axes={"M": 33}, role=Role.NEIGHBOUR),),
        "seed": 3,
        "candidate": CandidateFiles(library=library, symbol=symbol, kernels=("k",), cubin_hashes=()),
        "time": True,
        "deadline": 5.0,
    }
    return Measure(**(fields | update))


def test_an_honest_process_passes_the_check_and_generalises(parts: NativeParts, judged: Path) -> None:
    measured = measure(FileDesk(parts), request(judged, "honest"))
    assert measured.check.outcome is Outcome.PASSED, measured.check.reason
    assert [draw.workload for draw in measured.check.draws] == ["w"] * 4 + ["n"]
    assert measured.check.generalises.state == "yes"
    assert measured.time is not None
    assert measured.time.outcome is Outcome.UNAVAILABLE
    assert measured.protections
    assert Measured.model_validate_json(measured.model_dump_json()) == measured


@pytest.mark.parametrize(
    ("symbol", "code"),
    [
        ("skips_a_step", "wrong_numbers"),
        ("writes_before_its_output", "out_of_bounds_write"),
        ("changes_its_input", "changed_input"),
        ("hangs", "hang"),
        ("exits", "exited"),
        ("absent", "no_symbol"),
    ],
)
def test_a_process_that_fails_is_named_and_the_next_one_is_judged(
    parts: NativeParts, judged: Path, symbol: str, code: str
) -> None:
    desk = FileDesk(parts)
    measured = measure(desk, request(judged, symbol, deadline=1.0 if symbol == "hangs" else 5.0))
    assert measured.check.outcome is Outcome.FAILED
    assert measured.check.reason is not None
    assert measured.check.reason.code == code
    assert measured.check.reason.hint
    assert measured.time is None
    assert measure(desk, request(judged, "honest", time=False, neighbours=())).check.outcome is Outcome.PASSED


@pytest.mark.parametrize("staged", [False, True])
def test_a_process_under_a_tool_is_checked_and_the_tools_output_comes_back(
    parts: NativeParts, judged: Path, staged: bool, tmp_path: Path
) -> None:
    tool = tmp_path / "tool.sh"
    tool.write_text('#!/bin/sh\n"$@"\nstatus=$?\necho the report\nexit $status\n')
    tool.chmod(0o755)
    fields = request(judged, "honest").model_dump(exclude={"kind", "neighbours", "time"})
    order = Wrapped.model_validate(fields | {"wrapper": (str(tool),), "staged": staged, "deadline": 30.0})
    run = run_wrapped(FileDesk(parts), order)
    assert (run.called, run.outputs_right, run.returncode, run.reason) == (True, True, 0, None)
    assert "the report" in run.stdout
