"""One kernel launch from text to result: layouts, waves of clusters, schedules, counts; reads no files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from ptxbench.emulator.checks.hazards import Hazards
from ptxbench.emulator.checks.mask_checks import Masks
from ptxbench.emulator.checks.observer import Observer
from ptxbench.emulator.checks.race_hooks import watched as tell_races
from ptxbench.emulator.checks.race_observer import Races
from ptxbench.emulator.checks.tensor_hazards import TensorHazards
from ptxbench.emulator.checks.tensor_texts import TensorReporter
from ptxbench.emulator.checks.texts import Reporter
from ptxbench.emulator.codegen.compile import Compiled, Watch
from ptxbench.emulator.codegen.scalar.measured import exactly
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.blas import one_thread
from ptxbench.emulator.machine.cluster import Cluster
from ptxbench.emulator.machine.cta import Place
from ptxbench.emulator.machine.dependence import Changes, HeldBack
from ptxbench.emulator.machine.kernel import Kernel, Shape
from ptxbench.emulator.machine.layout import parameter_block, place_shared, place_symbols
from ptxbench.emulator.machine.memory import DeviceMemory, Snapshot
from ptxbench.emulator.machine.schedule import Schedule, eager, late, seeded
from ptxbench.emulator.ptx.ir import Function, Module
from ptxbench.emulator.report import Finding
from ptxbench.emulator.running import run_schedule

TRIGGER = "griddepcontrol.launch_dependents"
_MOST_BLOCKS = (2**31 - 1, 65535, 65535)
_MOST_SHARED = 227 << 10
"""Bytes of shared memory that a CTA can have (CUDA programming guide, compute capability 9.0 and 10.0)."""


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
        static_shared: Bytes of static shared memory as the machine code has them; 0 if not known.
        registers: Registers per thread at launch; 0 if not known.
        explicit_cluster: Whether the launch, or the kernel, names a cluster shape.
    """

    kernel: str
    grid: Place
    block: Place
    cluster: Place = (1, 1, 1)
    dynamic_shared: int = 0
    parameters: tuple[bytes, ...] = ()
    static_shared: int = 0
    registers: int = 0
    explicit_cluster: bool = False


@dataclass(frozen=True)
class Policy:
    """How to run a launch.

    Attributes:
        schedules: `late`, `eager`, `seed N`; the first runs the whole grid and leaves its results in memory.
        numerics: `fast`, or `exact`: tensor cores and `ex2.approx` bit for bit as an H200.
        checks: Whether hazards are looked for.
        races: Whether the first schedule looks for races too: lane by lane, on global memory as well.
        first: Clusters that the first schedule runs; 0: all of them.
        others: Clusters that the further schedules run; 0: all of them.
        limit: Greatest number of warp instructions of one run.
        seconds: Greatest time of one run on this machine; 0: no limit.
        watch: Makes a further observer of each cluster (a tracer, a perturbation); None: only the checks look on.
    """

    schedules: tuple[str, ...] = ("late",)
    numerics: str = "fast"
    checks: bool = True
    races: bool = False
    first: int = 0
    others: int = 4
    limit: int = 2_000_000_000
    seconds: float = 0.0
    watch: Callable[[Cluster], Observer] | None = None


@dataclass(frozen=True)
class Executed:
    """How often one instruction ran: by warps, and by threads whose guard was true.

    Attributes:
        copied: Bytes that it moved as an asynchronous copy; boxes count whole, in each CTA that gets them.
            Of tcgen05.mma its operations, 2 per multiply-add: the text does not say its shape.
    """

    line: int
    name: str
    warps: int
    threads: int
    copied: int = 0


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


class LoadedModule:
    """A module whose variables have their places in memory; they keep their values from launch to launch."""

    def __init__(self, module: Module, memory: DeviceMemory) -> None:
        self.module = module
        self.memory = memory
        self.symbols = place_symbols(module, memory)
        self._compiled: dict[tuple[str, bool, bool], Compiled] = {}

    def compiled(self, kernel: str, *, races: bool = False, exact: bool = False) -> Compiled:
        """A kernel ready to run, made once.

        Args:
            kernel: Its name.
            races: Whether its instructions tell the check for races what they do.
            exact: Whether approximations that are known bit for bit are computed so, and products and sums fused as
                the assembler does.

        Raises:
            Fault: The module has no such kernel.
        """
        found = self._compiled.get((kernel, races, exact))
        if found is None:
            function = self.module.functions.get(kernel)
            if function is None or not function.blocks:
                raise Fault("cudaErrorInvalidDeviceFunction", f"the module has no kernel `{kernel}`")
            found = self._compiled[kernel, races, exact] = Compiled(
                self.module, function, _watch(races, exact), contracts=exact
            )
        return found

    def lets_dependents_start(self, kernel: str) -> bool:
        """Whether a kernel has a griddepcontrol.launch_dependents."""
        blocks = self.compiled(kernel).program.blocks
        return any(ins.name == TRIGGER for block in blocks for ins in block.instructions)


def _watch(races: bool, exact: bool) -> Watch | None:
    """What is added to the instructions of a compiled kernel."""
    if races and exact:
        return lambda ins, op: tell_races(ins, exactly(ins, op))
    return tell_races if races else exactly if exact else None


def run_launch(
    module: Module | LoadedModule,
    launch: KernelLaunch,
    memory: DeviceMemory,
    policy: Policy | None = None,
    front: Changes | None = None,
) -> LaunchResult:
    """Run a kernel; global memory holds the results of the policy's first schedule afterwards.

    Args:
        module: Where the kernel is.
        launch: What to run.
        memory: Global memory.
        policy: How to run it.
        front: What the kernel in front changed, if this one may begin before that has ended.

    Raises:
        Fault: The launch itself is refused; CUDA's name of the error and the reason.
    """
    loaded = module if isinstance(module, LoadedModule) else LoadedModule(module, memory)
    with one_thread():
        return _Launch(loaded, launch, policy or Policy(), front).run()


class _Launch:
    """A launch on its way."""

    def __init__(self, loaded: LoadedModule, launch: KernelLaunch, policy: Policy, front: Changes | None) -> None:
        self.loaded, self.launch, self.policy, self.front = loaded, launch, policy, front
        self.memory = loaded.memory
        self._exact = self.policy.numerics == "exact"
        self.compiled = loaded.compiled(launch.kernel, exact=self._exact)
        self.function = self.compiled.program.kernel
        _validate(launch, self.function)
        placed = place_shared(self.compiled.program, launch.static_shared)
        self.shared_symbols, self.static_bytes, self.dynamic_start = placed
        if self.static_bytes + launch.dynamic_shared > _MOST_SHARED:
            raise Fault("cudaErrorInvalidValue", f"more than {_MOST_SHARED} bytes of shared memory")
        self.block = parameter_block(self.compiled.program, launch.parameters)
        self.findings: dict[tuple[str, int, int], Finding] = {}
        self.locations = {
            ins.line: ins.location
            for block in self.compiled.program.blocks
            for ins in block.instructions
            if ins.location is not None
        }

    def run(self) -> LaunchResult:
        """All schedules of the policy."""
        first, *others = self.policy.schedules
        address = self.memory.allocate(max(len(self.block), 1))
        self.memory.write(address, self.block)
        symbols = {**self.loaded.symbols, "": address}
        saved = self.memory.snapshot() if others else ()
        kernel, error, unsupported, coverage = self._schedule(first, symbols, self.policy.first)
        covered = [coverage]
        if others and not error and not unsupported:
            result = self.memory.snapshot()
            for name in others:
                self.memory.restore(saved)
                covered.append(self._schedule(name, symbols, self.policy.others)[3])
                # Quick products sum in another order when they are done one by one; only exact ones can be compared.
                exact = self.policy.numerics == "exact" or not self.compiled.uses_wgmma
                if exact and covered[-1].clusters == coverage.of:
                    self._compare(name, result)
            self.memory.restore(result)
        self.memory.free(address)
        return LaunchResult(
            counts=tuple(counts(kernel)),
            findings=tuple(self.findings.values()),
            coverage=tuple(covered),
            warp_instructions=kernel.spent,
            error=error,
            unsupported=unsupported,
        )

    def _schedule(self, name: str, symbols: dict[str, int], most: int) -> tuple[Kernel, str, str, Coverage]:
        watched = self.policy.races and name == self.policy.schedules[0]
        compiled = self.loaded.compiled(self.launch.kernel, races=watched, exact=self._exact)
        kernel = Kernel(compiled, self._shape(), self.memory, symbols)
        reporter = Reporter(name, self.locations)
        races = Races(kernel, reporter) if watched else None
        kernel.observers_of = lambda cluster: self._observers(cluster, reporter, races)
        schedule = make_schedule(name)
        kernel.held = self._held(schedule)
        ended, total = run_schedule(kernel, schedule, reporter, most)
        if kernel.held is not None:
            kernel.held.land()
            reporter.dependent(kernel.held, whole=not ended.error and ended.finished == total)
        if races is not None:
            part = not ended.error and ended.finished < total
            races.finish(f"{ended.finished} of {total} clusters ran" if part else "")
        for key, finding in reporter.findings.items():
            self.findings.setdefault(key, finding)
        return kernel, ended.error, ended.unsupported, Coverage(name, ended.finished, total)

    def _held(self, schedule: Schedule) -> HeldBack | None:
        """The changes of the kernel in front, hidden; an eager schedule lets it end before this one starts."""
        if self.front is None or schedule.eager:
            return None
        held = HeldBack(self.front, self.memory)
        held.hide()
        return held

    def _observers(self, cluster: Cluster, reporter: Reporter, races: Races | None) -> list[Observer]:
        checks: list[Observer] = []
        reporter.cluster = cluster.number
        if self.policy.checks:
            hazards = Hazards(cluster, reporter)
            checks.append(hazards)
            if self.compiled.uses_masks:
                checks.append(Masks(reporter))
            if self.compiled.uses_tensor_memory:
                checks.append(TensorHazards(hazards, TensorReporter(reporter)))
        if races is not None:
            checks.append(races.observer(cluster))
        return [*checks, self.policy.watch(cluster)] if self.policy.watch else checks

    def _compare(self, name: str, result: Snapshot) -> None:
        """Two schedules of a whole grid should leave the same bytes."""
        for allocation, data in result:
            there = self.memory.view(allocation.start, allocation.end - allocation.start)
            different = np.flatnonzero(there != data)
            if different.size:
                message = f"{different.size} bytes from {allocation.start + int(different[0]):#x} on differ from those "
                message += f"that the schedule `{self.policy.schedules[0]}` leaves"
                hint = "something is read before it is ordered, or sums of floats are formed in another order"
                made = Finding("schedule-dependent", "warning", message, 0, hint=hint, schedule=name)
                self.findings.setdefault(("schedule-dependent", 0, 0), made)

    def _shape(self) -> Shape:
        launch, directives = self.launch, self.function.directives
        return Shape(
            grid=launch.grid,
            block=launch.block,
            cluster=launch.cluster,
            dynamic_shared=launch.dynamic_shared,
            shared_bytes=self.dynamic_start + launch.dynamic_shared if launch.dynamic_shared else self.static_bytes,
            shared_symbols=self.shared_symbols,
            parameters=self.block,
            explicit_cluster=launch.explicit_cluster or "reqnctapercluster" in directives,
            registers=launch.registers,
            limit=self.policy.limit,
            numerics=self.policy.numerics,
            seconds=self.policy.seconds,
        )


def make_schedule(name: str) -> Schedule:
    """The schedule of that name."""
    if name.startswith("seed"):
        return seeded(int(name.split()[1]))
    return {"late": late, "eager": eager}[name]()


def _validate(launch: KernelLaunch, function: Function) -> None:
    """Refuse what CUDA refuses before a kernel starts."""
    threads = launch.block[0] * launch.block[1] * launch.block[2]
    beyond = any(have > most for have, most in zip(launch.grid, _MOST_BLOCKS, strict=True))
    if not 1 <= threads <= 1024 or min(launch.grid) < 1 or min(launch.block) < 1 or beyond:
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
            yield Executed(ins.line, ins.name, block.warps, threads, kernel.moved.get(ins.line, 0))
