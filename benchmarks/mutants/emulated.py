"""One launch of a kernel or a mutant on the emulator, in several schedules, with all checks; reads no labels."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
from benchmarks.mutants.kernels import Array, MapOf, Piece, PointerTo, Problem, parsed

from ptxbench.emulator.async_.encode import Refused, encode
from ptxbench.emulator.async_.tensormap import TensorMap
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.launch import KernelLaunch, LaunchResult, LoadedModule, Policy, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory

SCHEDULES = ("late", "eager", "seed 1")
LIMIT = 300_000
"""Warp instructions of one schedule: some ten times what the largest of the tiny problems takes."""


@dataclass(frozen=True)
class Seen:
    """What the emulator said of one launch.

    Attributes:
        errors: `rule @ PTX line` of findings that fail a kernel, and CUDA's errors.
        warnings: Of warnings and lints, likewise.
        wrong: The schedules with wrong numbers.
        executed: PTX lines that ran in the first schedule.
        seconds: Processor time.
    """

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    executed: frozenset[int] = frozenset()
    seconds: float = 0.0


def emulate(text: str, problem: Problem, schedules: tuple[str, ...] = SCHEDULES) -> Seen:
    """Run PTX in schedules until one fails; races are looked for in the first."""
    start = os.times()
    errors: list[str] = []
    warnings: list[str] = []
    wrong: list[str] = []
    executed: frozenset[int] = frozenset()
    try:
        memory = DeviceMemory(1 << 28)
        addresses = [memory.allocate(array.nbytes) for array in problem.arrays]
        launch = _launch(text, problem, addresses)
        loaded = LoadedModule(parsed(text), memory)
        before = memory.snapshot()
        for schedule in schedules:
            memory.restore(before)
            for address, array in zip(addresses, problem.arrays, strict=True):
                memory.write(address, array.tobytes())
            result = run_launch(loaded, launch, memory, Policy((schedule,), races=schedule == "late", limit=LIMIT))
            executed = executed or frozenset(each.line for each in result.counts if each.warps)
            _collect(result, errors, warnings)
            held = zip(addresses, problem.arrays, strict=True)
            left = [np.frombuffer(memory.read(at, old.nbytes), old.dtype).reshape(old.shape) for at, old in held]
            if not result.error and not right(problem, left):
                wrong.append(schedule)
            if errors or wrong:
                break
    except Fault as fault:
        errors.append(str(fault))
    spent = sum(os.times()[:2]) - sum(start[:2])
    return Seen(tuple(errors), tuple(warnings), tuple(wrong), executed, round(spent, 2))


def right(problem: Problem, left: list[Array]) -> bool:
    """Whether the outputs are what they must be."""
    for place, wanted in problem.expected.items():
        have, want = left[place].astype(np.float32), wanted.astype(np.float32)
        most = problem.tolerances.get(place, 0.0) * np.abs(want).max()
        if not np.abs(have - want).max() <= most:  # a NaN is not right
            return False
    return True


def record_of(shape: TensorMap) -> bytes:
    """The bytes of a tensor map.

    Raises:
        Fault: The driver would refuse it.
    """
    made = encode(shape)
    if isinstance(made, Refused):
        raise Fault("CUDA_ERROR_INVALID_VALUE", f"cuTensorMapEncodeTiled: {made.reason}")
    return made


def _launch(text: str, problem: Problem, addresses: list[int]) -> KernelLaunch:
    def piece(each: Piece) -> bytes:
        if isinstance(each, MapOf):
            return record_of(_placed(each.shape, addresses[each.array]))
        return addresses[each.array].to_bytes(8, "little") if isinstance(each, PointerTo) else each

    (kernel,) = [each.name for each in parsed(text).functions.values() if each.entry]
    return KernelLaunch(
        kernel,
        problem.grid,
        problem.block,
        problem.cluster,
        dynamic_shared=problem.shared,
        parameters=tuple(b"".join(map(piece, pieces)) for pieces in problem.parameters),
        explicit_cluster=problem.cluster != (1, 1, 1),
    )


def _placed(shape: TensorMap, address: int) -> TensorMap:
    return replace(shape, address=address)


def _collect(result: LaunchResult, errors: list[str], warnings: list[str]) -> None:
    for each in result.findings:
        into = errors if each.severity == "error" else warnings
        text = f"{each.rule} @ {each.line}"
        if text not in into:
            into.append(text)
    if result.unsupported:
        errors.append(f"unsupported {result.unsupported}")
    if result.error and not errors:
        errors.append(result.error)
