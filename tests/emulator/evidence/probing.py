"""A probe of tests/gpu/probes on the emulator: CUDA's name of the error, the output, and what was found."""

from __future__ import annotations

from dataclasses import replace

from tests.gpu.probes.probe import Probe, module

from ptxbench.emulator.async_.encode import Refused, encode
from ptxbench.emulator.launch import KernelLaunch, LaunchResult, Policy, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.parse import parse

EXACT = Policy(schedules=("late",), numerics="exact", limit=50_000_000)


def emulated(probe: Probe, policy: Policy = EXACT) -> tuple[str, bytes, LaunchResult | None]:
    """Run it; the error is empty where there is none, the result None where a tensor map is refused."""
    memory = DeviceMemory(1 << 28)
    given, out = memory.allocate(max(len(probe.given), 16)), memory.allocate(probe.out)
    memory.write(given, probe.given)
    memory.write(out, probe.output)
    maps = []
    for each in probe.maps:
        made = encode(replace(each, address=each.address + out))
        if isinstance(made, Refused):
            return "cudaErrorInvalidValue", b"", None
        maps.append(made)
    launch = KernelLaunch(
        "k0",
        probe.grid,
        probe.block,
        probe.cluster,
        dynamic_shared=probe.shared,
        parameters=(given.to_bytes(8, "little"), out.to_bytes(8, "little"), *maps),
        explicit_cluster=probe.cluster != (1, 1, 1),
    )
    result = run_launch(parse(module([probe])), launch, memory, policy)
    return result.error.split(" ")[0], memory.read(out, probe.out), result
