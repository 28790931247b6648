"""`emulate`: one kernel on arrays of the caller, outside of the suite; trusted callers only, for nothing is confined.

CUDA source is compiled by the toolchain as a candidate is; PTX text is taken as it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.launch import Executed, KernelLaunch, LaunchResult, Policy, run_launch
from ptxbench.emulator.machine.cta import Place
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.ir import Module
from ptxbench.emulator.ptx.parse import parse
from ptxbench.emulator.report import Finding
from ptxbench.errors import CandidateError
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.build import build

Argument: TypeAlias = NDArray[Any] | np.generic | bytes | Callable[[tuple[int, ...]], bytes]
"""An array (its address is passed), a NumPy scalar, the bytes of a parameter, or what makes them (a tensor map, say)
from the addresses of the arrays, in their order."""

_VERSION = re.compile(r"^\s*\.version\s+\d", re.MULTILINE)


@dataclass(frozen=True)
class Launch:
    """What to launch.

    Attributes:
        kernel: Its name, mangled or (where that is unique) as in the source; may be empty if there is only one.
        grid: CTAs along x, y, z; what is left out is 1.
        block: Threads along x, y, z, likewise.
        arguments: One per parameter.
        cluster: CTAs of a cluster.
        dynamic_shared: Bytes.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Argument, ...] = ()
    cluster: tuple[int, ...] = (1, 1, 1)
    dynamic_shared: int = 0


@dataclass(frozen=True)
class Result:
    """What a launch left.

    Attributes:
        arrays: The arrays among the arguments as they are afterwards, in their order; those passed in are unchanged.
        launch: Counts, findings, coverage and how it ended.
    """

    arrays: tuple[NDArray[Any], ...]
    launch: LaunchResult

    @property
    def ok(self) -> bool:
        """Whether it ran to its end and nothing was found that makes its result wrong."""
        return self.launch.ok

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What is wrong with it."""
        return self.launch.findings

    @property
    def counts(self) -> tuple[Executed, ...]:
        """How often each instruction ran."""
        return self.launch.counts


def emulate(source: str | Path, launch: Launch, policy: Policy | None = None, target: Target = Target.SM_90A) -> Result:
    """Run one kernel of a CUDA source or a PTX text (or the file of one) on arrays.

    `target` is what CUDA source is compiled for; PTX says it itself.

    Raises:
        CandidateError: The source does not compile, or has no such kernel.
        PtxError: The text is not PTX.
        Fault: CUDA would refuse the launch.
    """
    text = source.read_text() if isinstance(source, Path) else source
    module = parse(text if _VERSION.search(text) else _compiled(text, target))
    memory = DeviceMemory()
    given = [each for each in launch.arguments if isinstance(each, np.ndarray)]
    addresses = tuple(memory.allocate(max(each.nbytes, 1)) for each in given)
    for address, array in zip(addresses, given, strict=True):
        memory.write(address, np.ascontiguousarray(array).tobytes())
    wanted = KernelLaunch(
        kernel=_kernel(module, launch.kernel),
        grid=_place(launch.grid),
        block=_place(launch.block),
        cluster=_place(launch.cluster),
        dynamic_shared=launch.dynamic_shared,
        parameters=tuple(_parameters(launch.arguments, addresses)),
        explicit_cluster=_place(launch.cluster) != (1, 1, 1),
    )
    result = run_launch(module, wanted, memory, policy)
    left = [
        np.frombuffer(memory.read(address, array.nbytes), array.dtype).reshape(array.shape)
        for address, array in zip(addresses, given, strict=True)
    ]
    return Result(tuple(left), result)


def _compiled(source: str, target: Target) -> str:
    built = build(Candidate.from_source(source), target, Settings.load())
    if built.ptx is None:
        reason = built.stage.reason
        raise CandidateError(reason.message if reason else "The source does not compile.", "Correct the source.")
    return built.ptx.read_text()


def _kernel(module: Module, name: str) -> str:
    entries = [each.name for each in module.functions.values() if each.entry]
    mangled = re.compile(rf"(?<!\d){len(name)}{re.escape(name)}")
    found = [name] if name in entries else [each for each in entries if not name or mangled.search(each)]
    if len(found) != 1:
        raise CandidateError(f"There is no one kernel {name!r}.", f"There are: {', '.join(entries) or 'none'}.")
    return found[0]


def _parameters(arguments: tuple[Argument, ...], addresses: tuple[int, ...]) -> list[bytes]:
    left, made = iter(addresses), []
    for each in arguments:
        if isinstance(each, np.ndarray):
            made.append(next(left).to_bytes(8, "little"))
        elif isinstance(each, np.generic):
            made.append(each.tobytes())
        else:
            made.append(each if isinstance(each, bytes) else each(addresses))
    return made


def _place(sizes: tuple[int, ...]) -> Place:
    x, y, z = (*sizes, 1, 1, 1)[:3]
    return x, y, z
