"""One kernel launch from text to result: layouts, waves of clusters, schedules, counts; reads no files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from ptxbench.emulator.checks.hazards import Hazards
from ptxbench.emulator.checks.texts import Reporter
from ptxbench.emulator.codegen.compile import Compiled
from ptxbench.emulator.errors import Fault, Trap, Unsupported
from ptxbench.emulator.machine.cluster import Cluster
from ptxbench.emulator.machine.cta import Place
from ptxbench.emulator.machine.kernel import Kernel, Shape
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.machine.schedule import Schedule, eager, late, seeded
from ptxbench.emulator.ptx.ir import Function, Module, Space, Variable
from ptxbench.emulator.report import Finding

_MOST_RESIDENT = 132


@dataclass(frozen=True)
class KernelLaunch:
    """What a host call launches.

    Attributes:
        kernel: Name of the entry function.
        grid: CTAs along x, y, z.
        block: Threads along x, y, z.
        cluster: CTAs of a cluster along x, y, z.
        dynamic_shared: Bytes of dynamic shared memory.
        parameters: The bytes of each `.param`, in order.
        shared_offsets: Offsets of static shared variables as the machine code has them; others are placed by alignment.
        registers: Registers per thread at launch; 0 if not known.
        explicit_cluster: Whether the launch, or the kernel, names a cluster shape.
    """

    kernel: str
    grid: Place
    block: Place
    cluster: Place = (1, 1, 1)
    dynamic_shared: int = 0
    parameters: tuple[bytes, ...] = ()
    shared_offsets: Mapping[str, int] = field(default_factory=dict)
    registers: int = 0
    explicit_cluster: bool = False


@dataclass(frozen=True)
class Policy:
    """How to run a launch.

    Attributes:
        schedules: `late`, `eager`, `seed N`; the first runs the whole grid and leaves its results in memory.
        numerics: Of tensor cores, `fast` or `exact`.
        checks: Whether hazards are looked for.
        others: Clusters that the further schedules run; 0: all of them.
        limit: Greatest number of warp instructions of one run.
    """

    schedules: tuple[str, ...] = ("late",)
    numerics: str = "fast"
    checks: bool = True
    others: int = 4
    limit: int = 2_000_000_000


@dataclass(frozen=True)
class Executed:
    """How often one instruction ran: by warps, and by threads whose guard was true."""

    line: int
    name: str
    warps: int
    threads: int


@dataclass(frozen=True)
class Coverage:
    """How much of the grid one schedule ran."""

    schedule: str
    clusters: int
    of: int


@dataclass(frozen=True)
class LaunchResult:
    """What a launch did.

    Attributes:
        counts: Executed instructions of the first schedule, in the order of the text.
        error: CUDA's name of the error that ended it, empty if it ended well.
        unsupported: The instruction that the emulator lacks, empty if none was met.
    """

    counts: tuple[Executed, ...]
    findings: tuple[Finding, ...]
    coverage: tuple[Coverage, ...]
    warp_instructions: int
    error: str = ""
    unsupported: str = ""

    @property
    def ok(self) -> bool:
        """Whether the kernel ran to its end and nothing was found that makes its result wrong."""
        return not self.error and not self.unsupported and all(each.severity != "error" for each in self.findings)


def run_launch(
    module: Module, launch: KernelLaunch, memory: DeviceMemory, policy: Policy | None = None
) -> LaunchResult:
    """Run a kernel; global memory holds the results of the policy's first schedule afterwards.

    Raises:
        Fault: The launch itself is refused; CUDA's name of the error and the reason.
        PtxError: The module has no such kernel.
    """
    return Launch(module, launch, memory, policy or Policy()).run()


class Launch:
    """A launch on its way; a module's compiled kernel can be used for several."""

    def __init__(
        self,
        module: Module,
        launch: KernelLaunch,
        memory: DeviceMemory,
        policy: Policy,
        compiled: Compiled | None = None,
    ) -> None:
        function = module.functions.get(launch.kernel)
        if function is None or not function.blocks:
            raise Fault("cudaErrorInvalidDeviceFunction", f"the module has no kernel `{launch.kernel}`")
        _validate(launch, function)
        self.module, self.launch, self.memory, self.policy = module, launch, memory, policy
        self.function = function
        self.compiled = compiled or Compiled(module, function)
        self.shared_symbols, self.static_bytes = place_shared(module, function, launch.shared_offsets)
        self.findings: dict[tuple[str, int, int], Finding] = {}
        self.locations = {
            ins.line: ins.location
            for block in self.compiled.program.blocks
            for ins in block.instructions
            if ins.location is not None
        }

    def run(self) -> LaunchResult:
        """All schedules of the policy."""
        names = self.policy.schedules
        saved = self.memory.snapshot() if len(names) > 1 else ()
        # Symbols of the module are made once, so that all runs see the same addresses.
        symbols = place_symbols(self.module, self.launch, self.compiled, self.memory)
        kernel, error, unsupported, coverage = self._schedule(names[0], symbols, 0)
        covered = [coverage]
        if len(names) > 1 and not error and not unsupported:
            result = self.memory.snapshot()
            for name in names[1:]:
                self.memory.restore(saved)
                covered.append(self._schedule(name, symbols, self.policy.others)[3])
            self.memory.restore(result)
        self.memory.free(symbols[""])
        return LaunchResult(
            counts=tuple(counts(kernel)),
            findings=tuple(self.findings.values()),
            coverage=tuple(covered),
            warp_instructions=kernel.spent,
            error=error,
            unsupported=unsupported,
        )

    def _schedule(self, name: str, symbols: dict[str, int], most: int) -> tuple[Kernel, str, str, Coverage]:
        kernel = self._kernel(symbols)
        reporter = Reporter(name, self.locations)
        if self.policy.checks:
            kernel.observers_of = lambda cluster: [Hazards(cluster, reporter)]
        grid = Grid(kernel, make_schedule(name), most)
        error = unsupported = ""
        with np.errstate(all="ignore"):
            try:
                grid.run()
            except Trap as trap:
                error = f"{trap.error} at PTX line {trap.line}: {trap.reason}"
            except Unsupported as lacking:
                unsupported = str(lacking)
        for key, finding in reporter.findings.items():
            self.findings.setdefault(key, finding)
        return kernel, error, unsupported, Coverage(name, grid.finished, grid.total)

    def _kernel(self, symbols: dict[str, int]) -> Kernel:
        launch = self.launch
        dynamic_start = max((self.static_bytes + 15) // 16 * 16, 0)
        shape = Shape(
            grid=launch.grid,
            block=launch.block,
            cluster=launch.cluster,
            dynamic_shared=launch.dynamic_shared,
            shared_bytes=dynamic_start + launch.dynamic_shared if launch.dynamic_shared else self.static_bytes,
            shared_symbols=self.shared_symbols,
            parameters=parameter_block(self.compiled, launch),
            explicit_cluster=launch.explicit_cluster or "reqnctapercluster" in self.function.directives,
            registers=launch.registers,
            limit=self.policy.limit,
            numerics=self.policy.numerics,
        )
        kernel = Kernel(self.compiled, shape, self.memory, symbols)
        return kernel


class Grid:
    """Clusters in waves: the next one starts when the others are done or wait for memory that it may write."""

    def __init__(self, kernel: Kernel, schedule: Schedule, most: int) -> None:
        self.kernel = kernel
        self.schedule = schedule
        places = cluster_places(kernel)
        self.total = len(places)
        self.places = places[: most or None]
        self.finished = 0

    def run(self) -> None:
        """Run all clusters.

        Raises:
            Trap: The kernel did something illegal, or hangs.
            Unsupported: It uses an instruction that the emulator lacks.
        """
        resident: list[Cluster] = []
        waiting = list(enumerate(self.places))[::-1]
        most = max(1, _MOST_RESIDENT // len(self.places[0])) if self.places else 1
        while resident or waiting:
            verdicts = []
            for cluster in list(resident):
                outside = sum(other.changed for other in resident if other is not cluster)
                verdict = cluster.advance(outside)
                verdicts.append(verdict)
                if verdict == "done":
                    resident.remove(cluster)
                    self.finished += 1
                elif verdict == "stuck":
                    raise self._deadlock(resident, cluster)
            if waiting and len(resident) < most and (not resident or "done" not in verdicts):
                number, places = waiting.pop()
                resident.append(Cluster(self.kernel, number, places, self.schedule))

    def _deadlock(self, resident: list[Cluster], cluster: Cluster) -> Trap:
        lines, waits = [], []
        for unit in cluster.units:
            for wait in unit.waits:
                warps = unit.warp_numbers(wait.mask)
                lines.append(wait.line)
                waits.append(f"{unit.cta.name()} warps {warps} at PTX line {wait.line}: {wait.describe(unit)}")
            if unit.groups and not unit.waits:
                waits.append(f"{unit.cta.name()} warps {unit.warp_numbers(None)} poll memory that nobody changes")
        return Trap("deadlock", lines[0] if lines else 0, "; ".join(waits))


def make_schedule(name: str) -> Schedule:
    """The schedule of that name."""
    if name.startswith("seed"):
        return seeded(int(name.split()[1]))
    return {"late": late, "eager": eager}[name]()


def cluster_places(kernel: Kernel) -> list[list[Place]]:
    """For each cluster of the grid its CTAs, by rank."""
    gx, gy, gz = kernel.grid
    cx, cy, cz = kernel.cluster
    inside = [(x, y, z) for z in range(cz) for y in range(cy) for x in range(cx)]
    return [
        [(x + dx, y + dy, z + dz) for dx, dy, dz in inside]
        for z in range(0, gz, cz)
        for y in range(0, gy, cy)
        for x in range(0, gx, cx)
    ]


def place_shared(module: Module, function: Function, known: Mapping[str, int]) -> tuple[dict[str, int], int]:
    """Offsets of shared variables from the first user byte, and the bytes of the static ones.

    Static variables lie by falling alignment unless the machine code's offsets are known; dynamic ones behind them all.
    """
    variables = [each for each in (*module.variables.values(), *function.variables) if each.space is Space.SHARED]
    static = [each for each in variables if each.size]
    placed = {each.name: known[each.name] for each in static if each.name in known}
    end = max((placed[each.name] + each.size for each in static if each.name in placed), default=0)
    for each in sorted(static, key=lambda variable: -variable.align):
        if each.name not in placed:
            placed[each.name] = _up(end, each.align)
            end = placed[each.name] + each.size
    for each in variables:
        if not each.size:
            placed[each.name] = _up(end, max(each.align, 16) if end or each.align <= 16 else 16)
    return placed, end


def _up(value: int, align: int) -> int:
    return (value + align - 1) // align * align


def place_symbols(module: Module, launch: KernelLaunch, compiled: Compiled, memory: DeviceMemory) -> dict[str, int]:
    """Addresses of global and constant variables, written with their initial values, and of the parameter block."""
    symbols: dict[str, int] = {}
    placed: list[Variable] = []
    for each in module.variables.values():
        if each.space in (Space.GLOBAL, Space.CONST):
            symbols[each.name] = memory.allocate(max(each.size, 1), each.align)
            placed.append(each)
    for each in placed:
        if each.initial:
            memory.write(symbols[each.name], each.initial)
        for offset, name, addend in each.relocations:
            memory.write(symbols[each.name] + offset, (symbols.get(name, 0) + addend).to_bytes(8, "little"))
    block = parameter_block(compiled, launch)
    symbols[""] = memory.allocate(max(len(block), 1))
    memory.write(symbols[""], block)
    return symbols


def parameter_block(compiled: Compiled, launch: KernelLaunch) -> bytes:
    """The parameters as the kernel sees them."""
    program = compiled.program
    block = bytearray(program.parameter_bytes)
    for (name, offset), data in zip(program.parameters.items(), launch.parameters, strict=True):
        size = next(each.size for each in program.kernel.parameters if each.name == name)
        if len(data) != size:
            raise Fault("cudaErrorInvalidValue", f"parameter `{name}` has {size} bytes, not {len(data)}")
        block[offset : offset + size] = data
    return bytes(block)


def _validate(launch: KernelLaunch, function: Function) -> None:
    """Refuse what CUDA refuses before a kernel starts."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    if not 1 <= threads <= 1024 or min(launch.grid) < 1 or min(launch.block) < 1:
        raise Fault("cudaErrorInvalidConfiguration", f"grid {launch.grid}, block {launch.block}")
    for side, wanted, have in zip("xyz", launch.cluster, launch.grid, strict=True):
        if wanted < 1 or have % wanted:
            raise Fault("cudaErrorInvalidClusterSize", f"grid {side} {have} is no multiple of the cluster's {wanted}")
    if len(launch.parameters) != len(function.parameters):
        raise Fault("cudaErrorInvalidValue", f"{len(launch.parameters)} parameters for {len(function.parameters)}")
    required = function.directives.get("reqntid")
    if required and tuple(required) != launch.block[: len(required)]:
        raise Fault("cudaErrorInvalidValue", f"the kernel requires blocks of {required}")
    most = function.directives.get("maxntid")
    if most and threads > int(np.prod(most)):
        raise Fault("cudaErrorInvalidValue", f"{threads} threads, the kernel was compiled for at most {most}")


def counts(kernel: Kernel) -> Iterator[Executed]:
    """How often each instruction that ran was executed."""
    for block in kernel.executed():
        for ins in kernel.program.blocks[block.index].instructions:
            threads = block.threads if ins.guard is None else kernel.guarded.get(ins.index, block.threads)
            yield Executed(ins.line, ins.name, block.warps, threads)
