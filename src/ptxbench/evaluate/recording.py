"""Records a candidate's host code before it is judged, and decides whether its calls can be replayed; replays nothing.

Every workload is recorded twice, with other addresses in another order. What the host code asks for may change from
call to call (a counter, set-up in the first call), but not with the addresses, nor from one recording to the next: then
the calls, replayed one after another, are the calls that it would have made.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ptxbench.emulator.host.device import HostDevice
from ptxbench.emulator.host.kernels import KernelInfo, kernel_info
from ptxbench.emulator.host.process import HostSettings, record_calls
from ptxbench.emulator.host.record import LaunchRecord, TensorArgument
from ptxbench.evaluate.replay import Calls, Code, Piece, Program, Step, UnfitError, calls_of
from ptxbench.schema.problem import Problem, Workload
from ptxbench.settings import Settings
from ptxbench.toolchain.elf import Cubin

HostMode = Literal["auto", "live", "replay"]
"""`auto`: replay, else live; `replay`: nothing else; `live`: the host code runs in every call."""

JUDGED_CALLS = 96
"""Calls that are recorded of the workload that is timed: more than the judge makes of it."""

OTHER_CALLS = 4
"""Calls that are recorded of a neighbour, which is checked alone."""

SECONDS = 5.0
"""Time for one recording; the calls take a few milliseconds each."""

# Addresses as the judge's: one set of pointers per slot, data behind a guard, 2 MiB apart at the least.
_GUARD, _STEP, _SLOT = 64 * 1024, 1 << 34, 1 << 40
_BASES = (0x7000_0000_0000, 0x6100_0060_0000)
# They come to known addresses at different calls, and have no period that a counter in the host code is likely to have.
_ORDERS = ((0, 1, 2, 3, 1, 0, 3, 2, 2, 0, 1, 3, 0), (2, 0, 2, 3, 1, 1, 0, 3, 2, 3, 0))


@dataclass(frozen=True)
class Subject:
    """A built candidate whose host code is to be recorded."""

    library: Path
    symbol: str
    cubins: tuple[Cubin, ...]
    problem: Problem
    device: HostDevice
    """What the host code is told of the device, which must be what it will run on."""


@dataclass(frozen=True)
class Recorded:
    """What the two recordings of each workload left.

    Attributes:
        program: The calls to replay.
        exact: Both recordings agree in every byte. If not, they differ in bytes of parameters that hold no address, as
            the padding of a structure does; should the replay fail, only a live run can tell whether they matter.
    """

    program: Program
    exact: bool


def record_program(subject: Subject, workloads: Sequence[Workload], settings: Settings) -> Recorded | str:
    """The replay program of a candidate for these workloads, or in one sentence why its host code must run live.

    The first workload is the one that is timed.

    Raises:
        ToolError: A tool is missing.
        SandboxError: The host process cannot be set up.
    """
    homes: dict[str, int] = {}
    for number, cubin in enumerate(subject.cubins):
        for name in cubin.kernels:
            homes.setdefault(name, number)
    kernels = {name: kernel_info(subject.cubins[number], name) for name, number in homes.items()}
    recorder = _Recorder(subject, kernels, settings)
    first = recorder.calls(workloads[0], JUDGED_CALLS, 0)
    if isinstance(first, str):
        return first
    agreed = recorder.rest(first, workloads)
    if isinstance(agreed, str):
        return agreed
    table = tuple((number, name) for name, number in homes.items())
    program = Program(tuple(cubin.data for cubin in subject.cubins), table, tuple(each.calls for each in agreed))
    return Recorded(program, all(each.exact for each in agreed))


@dataclass(frozen=True)
class _Agreed:
    calls: Calls
    exact: bool


@dataclass(frozen=True)
class _Recorder:
    subject: Subject
    kernels: dict[str, KernelInfo]
    settings: Settings

    def rest(self, first: Calls, workloads: Sequence[Workload]) -> list[_Agreed] | str:
        """Record all but the first recording of the first workload, side by side, and compare."""
        jobs = [(workloads[0], JUDGED_CALLS, 1)]
        jobs += [(workload, OTHER_CALLS, which) for workload in workloads[1:] for which in (0, 1)]
        with ThreadPoolExecutor(len(jobs)) as pool:
            made = [first, *pool.map(lambda job: self.calls(*job), jobs)]
        agreed = []
        for found, again in zip(made[::2], made[1::2], strict=True):
            if isinstance(found, str) or isinstance(again, str):
                return found if isinstance(found, str) else str(again)
            both = agree(found, again)
            if isinstance(both, str):
                return both
            agreed.append(both)
        return agreed

    def calls(self, workload: Workload, count: int, which: int) -> Calls | str:
        """One recording of `count` calls, or why they cannot be replayed."""
        problem, subject = self.subject.problem, self.subject
        arguments = [argument_slots(problem, workload, which, number) for number in range(count)]
        host = HostSettings(subject.device, SECONDS, self.kernels)
        records = record_calls(subject.library, subject.symbol, arguments, self.settings, host)
        reason = why_live(records)
        if reason:
            return reason
        try:
            return calls_of(records, self.kernels)
        except UnfitError as error:
            return f"the host code {error}"


def argument_slots(problem: Problem, workload: Workload, which: int, number: int) -> tuple[TensorArgument, ...]:
    """The arguments of call `number` in recording `which`: one of four sets of addresses."""
    order = _ORDERS[which]
    start = _BASES[which] + order[number % len(order)] * _SLOT + _GUARD
    return tuple(
        TensorArgument(address=start + index * _STEP, shape=problem.shape(spec, workload), dtype=spec.dtype)
        for index, spec in enumerate(problem.arguments)
    )


def why_live(records: Sequence[LaunchRecord]) -> str:
    """Why the records of one process cannot stand for its calls; empty when they can."""
    last = records[-1]
    if last.ending.kind != "returned":
        return f"without a device the host code does not return ({last.ending.kind}): {last.ending.message[:300]}"
    if last.live:
        return f"the host code {last.live[0]}"
    if last.failures:
        return f"without a device a call of the host code fails: {last.failures[0][:300]}"
    return f"the host code sets what a record does not hold: {last.hints[0]}" if last.hints else ""


def agree(found: Calls, again: Calls) -> _Agreed | str:
    """What two recordings of the same calls have in common, or where they differ."""
    if found == again:
        return _Agreed(found, exact=True)
    steps = []
    for number, (call, other) in enumerate(zip(found.steps, again.steps, strict=True), 1):
        if len(call) != len(other):
            return _DIFFERS.format(number)
        joined = [_join(one, two) for one, two in zip(call, other, strict=True)]
        if None in joined:
            return _DIFFERS.format(number)
        steps.append(tuple(step for step in joined if step is not None))
    return _Agreed(replace(found, steps=tuple(steps)), exact=False)


_DIFFERS = "what the host code asks for depends on more than the call: call {} differs between two recordings"


def _join(one: Step, other: Step) -> Step | None:
    """The step of both; None where they differ in more than the bytes of parameters."""
    if one == other:
        return one
    alike = (one.code, one.words) == (other.code, other.words) and one.code is Code.LAUNCH
    pairs = list(zip(one.pieces, other.pieces, strict=False))
    if not alike or any(len(mine.data) != len(theirs.data) for mine, theirs in pairs):
        return None
    pieces = (
        Piece(
            data=mine.data,
            patches=tuple(each for each in mine.patches if each in theirs.patches),
            maps=tuple(each for each in mine.maps if each in theirs.maps),
        )
        for mine, theirs in pairs
    )
    return replace(one, pieces=tuple(pieces))
