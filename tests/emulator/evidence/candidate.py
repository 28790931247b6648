"""Whole candidates without a GPU: built, their host code recorded, their launches run, results against the oracle."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tests.emulator.evidence.bench import ROOT, Array, Bench, f32, pointer

from ptxbench.emulator.host.process import record
from ptxbench.emulator.host.record import Allocate, Blob, Copy, Fill, Launch, LaunchRecord, TensorArgument
from ptxbench.emulator.launch import KernelLaunch, LaunchResult, Policy
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.ir import Module
from ptxbench.emulator.ptx.parse import parse
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.suite.catalogue import load_problem, pick_workload
from ptxbench.suite.make import make_problem
from ptxbench.suite.oracles import DTYPES, draw_inputs, oracle
from ptxbench.toolchain.build import build

REFERENCE = ROOT / "reference"


@dataclass(frozen=True)
class Run:
    """One call of a candidate.

    Attributes:
        results: One per launch.
        seconds: Of emulation.
        misses: Per output, its greatest error over the greatest entry of the oracle's.
    """

    record: LaunchRecord
    results: tuple[LaunchResult, ...]
    seconds: float
    misses: Mapping[str, float]


def workload(problem: Problem, **axes: int) -> Workload:
    """The first small workload, with these sizes."""
    first = pick_workload(problem, "small")
    return first.model_copy(update={"axes": {**first.axes, **axes}})


@functools.cache
def small_gemm(n: int, k: int) -> Problem:
    """The GEMM problem with a smaller B."""
    with tempfile.TemporaryDirectory() as folder:
        return load_problem(make_problem("gemm", {"n": n, "k": k}, Path(folder) / "gemm"))


@functools.cache
def module_of(source: str, target: Target = Target.SM_90A) -> tuple[Module, Path]:
    """The PTX of a candidate, parsed, and its library."""
    built = build(Candidate.from_source(source), target, Settings.load())
    assert built.library is not None, built.stage.log
    assert built.ptx is not None
    return parse(built.ptx.read_text()), built.library


def run_candidate(source: str, problem: Problem, policy: Policy, target: Target = Target.SM_90A, /, **axes: int) -> Run:
    """Call a candidate once on normal inputs."""
    sizes = workload(problem, **axes)
    inputs = draw_inputs(problem, sizes, seed=1)
    wanted = oracle(problem, sizes, inputs)
    module, library = module_of(source, target)
    # The host code's own allocations count from BASE on; the arguments lie behind them, so that none is both.
    bench = Bench(policy, memory=DeviceMemory(1 << 30, reserved=1 << 24))
    arrays = {
        **inputs,
        **{spec.name: np.zeros(wanted[spec.name].shape, DTYPES[spec.dtype]) for spec in problem.outputs},
    }
    arguments = [
        TensorArgument(address=bench.upload(arrays[spec.name]), shape=arrays[spec.name].shape, dtype=spec.dtype)
        for spec in problem.arguments
    ]
    addresses = {spec.name: argument.address for spec, argument in zip(problem.arguments, arguments, strict=True)}
    told = record(library, "run", arguments, Settings.load())
    assert told.ending.kind == "returned", told.ending
    assert told.replayable, told.live
    results, seconds = [], 0.0
    for result in performed(told, bench, module):
        results.append(result)
        seconds += bench.seconds
        if not result.ok:
            break
    misses = {
        name: _miss(bench.download(addresses[name], arrays[name].shape, arrays[name].dtype), wanted[name])
        for name in wanted
    }
    return Run(told, tuple(results), seconds, misses)


def performed(told: LaunchRecord, bench: Bench, module: Module) -> Iterator[LaunchResult]:
    """Carry out what the host code asked for; the result of each launch as it ends."""
    made: dict[int, int] = {}
    for each in told.operations:
        assert not isinstance(each, (Copy, Fill)), each
        if isinstance(each, Allocate):
            made[each.index] = bench.memory.allocate(each.size)
        elif isinstance(each, Launch):
            yield bench.launch(module, _launch(each, made))


def _launch(told: Launch, made: Mapping[int, int]) -> KernelLaunch:
    return KernelLaunch(
        told.kernel,
        grid=told.grid,
        block=told.block,
        cluster=told.cluster,
        dynamic_shared=told.dynamic_shared,
        parameters=tuple(_relocated(each, made) for each in told.parameters),
    )


def _relocated(blob: Blob, made: Mapping[int, int]) -> bytes:
    """The bytes, with the addresses of the candidate's own allocations as they are on the bench."""
    data = bytearray(blob.data)
    for each in blob.relocations:
        if each.of == "allocation":
            data[each.offset : each.offset + 8] = pointer(made[each.index] + each.addend)
    return bytes(data)


def _miss(have: Array, want: Array) -> float:
    difference: Any = np.abs(f32(have) - f32(want))
    return float(difference.max() / np.abs(f32(want)).max())
