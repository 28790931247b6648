"""Runs a case of the repository's kernels on the emulator, host code and all, tensor cores in their exact mode."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tests.emulator.agreement.cases import Array, Case, arrays, outputs
from tests.emulator.evidence.bench import Bench
from tests.emulator.evidence.candidate import module_of, performed

from ptxbench.emulator.host.process import record
from ptxbench.emulator.host.record import TensorArgument
from ptxbench.emulator.launch import LaunchResult, Policy
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.settings import Settings


@dataclass(frozen=True)
class Ran:
    """What a case left: its outputs, and the result of each launch."""

    outputs: Mapping[str, Array]
    results: tuple[LaunchResult, ...]

    @property
    def error(self) -> str:
        """Why it ended early; empty."""
        return next((each.error or each.unsupported for each in self.results if each.error or each.unsupported), "")


def run(case: Case, policy: Policy) -> Ran:
    """Call it once."""
    held = arrays(case)
    module, library = module_of(case.source)
    bench = Bench(policy, memory=DeviceMemory(1 << 30, reserved=1 << 24))
    specs = {spec.name: spec for spec in case.problem.arguments}
    arguments = {
        name: TensorArgument(address=bench.upload(array), shape=array.shape, dtype=specs[name].dtype)
        for name, array in held.items()
    }
    told = record(library, "run", list(arguments.values()), Settings.load())
    assert told.ending.kind == "returned", told.ending
    results = tuple(performed(told, bench, module))
    left = {
        name: bench.download(arguments[name].address, array.shape, array.dtype)
        for name, array in outputs(case, held).items()
    }
    return Ran(left, results)
