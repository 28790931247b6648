"""The profile stage (E9 a-c): the profiler's command line, and what its report says; it starts no candidate.

`ncu_command` goes before the candidate process; `read_report` prints what that left; `profile_stage` judges it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from ptxbench.errors import ToolError
from ptxbench.sass import ncu
from ptxbench.sass.families import FamilyTable, family_of, table
from ptxbench.sass.work import flops_of
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.stages import (
    ExecutedFamily,
    KernelProfile,
    Outcome,
    ProfileStage,
    Reason,
    TimeStage,
    WorkShare,
)
from ptxbench.schema.values import Layer, Target, Unavailable
from ptxbench.suite import compulsory_bytes, required_flops
from ptxbench.toolchain.call import run_tool

EXCESS = 2.5
"""All tensor-core operations together may be this multiple of the required ones before they are flagged (E9c)."""

COUNTER_TOLERANCE = 0.01
"""How far both readings of the same operations may lie apart."""

_PAGE_BYTES = 256 * 2**20
"""Bytes kept of a printed page: half a million machine instructions, each twice."""


def ncu_command(tool: Path, report: Path, log: Path, target: Target) -> tuple[str, ...]:
    """The words to put before the candidate process's command line.

    Counters that do not fit together are collected by running each kernel again from saved memory (kernel replay): the
    candidate's own process is never repeated, so it cannot tell one pass from another. Clocks stay as they are, for the
    times are to be compared with timed calls; caches too, for later kernels of a call find there what earlier ones
    left. Messages go to `log`, which the candidate does not write: whatever it prints is not taken for the profiler's.
    """
    metrics = (*ncu.METRICS, *(counter for counter, _ in table(target).mma_counters))
    return (
        str(tool),
        *("--target-processes", "all"),
        *("--replay-mode", "kernel"),
        *("--clock-control", "none"),
        *("--cache-control", "none"),
        *("--set", "none"),
        *("--metrics", ",".join(metrics)),
        *("--log-file", str(log)),
        *("--force-overwrite", "--export", str(report)),
    )


def print_command(tool: Path, report: Path, page: str) -> tuple[str, ...]:
    """The command that prints the `source` or the `raw` page of a stored report as CSV, with mangled kernel names."""
    printed = ("--page", page, "--csv", "--print-units", "base", "--print-kernel-base", "mangled")
    source = ("--print-source", "sass") if page == "source" else ()
    return (str(tool), "--import", str(report), *printed, *source)


def read_report(tool: Path, report: Path, log: Path, timeout: float) -> tuple[ncu.Launch, ...] | Unavailable:
    """Print both pages of the report that a run left and join them; or why that run left none.

    `report` is the path given to `ncu_command`, with or without the suffix that the profiler adds.
    """
    file = next((path for path in (report, report.with_name(f"{report.name}.ncu-rep")) if path.is_file()), None)
    messages = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    if file is None:
        return ncu.failure(messages) or Unavailable(
            name="ncu",
            reason="ncu left no report: it was killed, or the candidate's process ended without launching a kernel",
        )
    try:
        with ThreadPoolExecutor(2) as both:
            pages = both.map(lambda page: _printed(tool, file, page, timeout), ("source", "raw"))
            return ncu.read_launches(*pages)
    except ToolError as error:
        return Unavailable(name="ncu", reason=error.what, remedy=error.remedy)


def _printed(tool: Path, report: Path, page: str, timeout: float) -> str:
    call = run_tool(print_command(tool, report, page), timeout=timeout, limit=_PAGE_BYTES)
    if not call.succeeded:
        found = ncu.failure(call.stdout + call.stderr)
        ended = "was killed at its timeout" if call.timed_out else f"ended with status {call.returncode}"
        raise ToolError(f"ncu --import --page {page}: {found.reason if found else ended}.")
    return call.stdout


def profile_unavailable(found: Unavailable) -> ProfileStage:
    """The stage where there is no usable profile."""
    reason = Reason(code="profiler_unavailable", message=found.reason, hint=found.remedy)
    return ProfileStage(outcome=Outcome.UNAVAILABLE, reason=reason, executed=Layer.unavailable(found.reason))


def profile_stage(
    launches: Sequence[ncu.Launch],
    own_kernels: Collection[str],
    problem: Problem,
    workload: Workload,
    target: Target,
    outputs_right: bool | None = True,
) -> ProfileStage:
    """What the launches of one call say about the candidate.

    Args:
        launches: Every kernel that ran under the profiler.
        own_kernels: Mangled names of the kernels in the candidate's own machine code; only these earn anything.
        problem: Gives the families of the published tag and the required work.
        workload: The sizes that were run.
        target: The architecture.
        outputs_right: Whether what the profiled call wrote was right; if not, it was not the call that was judged.
    """
    mma = problem.work_families[target].mma
    kernels = tuple(_kernel_profile(launch, _own(launch, own_kernels), mma, target) for launch in launches)
    if outputs_right is not True:
        message = "The call under the profiler did not write the results of the call that was checked."
        return ProfileStage(
            outcome=Outcome.INCONCLUSIVE,
            reason=Reason(code="profiled_outputs_wrong", message=message),
            kernels=kernels,
            executed=Layer.unavailable(message),
        )
    own = [kernel for kernel in kernels if kernel.own]
    own_launches = [launch for launch, kernel in zip(launches, kernels, strict=True) if kernel.own]
    executed = _executed(own_launches, problem.families[target], target)
    work = work_share(own, problem, workload)
    outcome, reason = _outcome(executed, work, _disagreement(own))
    return ProfileStage(
        outcome=outcome,
        reason=reason,
        kernels=kernels,
        executed=executed,
        work=work if outcome is Outcome.PASSED else None,
    )


def _outcome(executed: Layer, work: WorkShare | None, disagreement: Reason | None) -> tuple[Outcome, Reason | None]:
    if executed.state == "unavailable":
        return Outcome.UNAVAILABLE, Reason(code="executed_uncounted", message=executed.reason or "")
    if disagreement is not None:
        return Outcome.INCONCLUSIVE, disagreement
    if work is None:
        return Outcome.UNAVAILABLE, _UNCOUNTED
    return Outcome.PASSED, None


_UNCOUNTED = Reason(
    code="work_uncounted",
    message="The profiler gave no count from which the tensor-core operations follow.",
    hint="Other versions of ncu may have the counters; `ptxbench doctor` tests this one.",
)


def _own(launch: ncu.Launch, own_kernels: Collection[str]) -> bool:
    """Whether the kernel is the candidate's; of a name printed demangled, with parameters, the identifier decides."""
    if launch.name in own_kernels:
        return True
    if "(" not in launch.name:
        return False
    return ncu.base_name(launch.name) in {ncu.base_name(name) for name in own_kernels}


def _kernel_profile(launch: ncu.Launch, own: bool, mma: tuple[str, ...], target: Target) -> KernelProfile:
    families = table(target)
    by_family = _lines_by_family(launch, target)
    target_lines = [line for family in mma for line in by_family.get(family, [])]
    read, written = launch.counters.get(ncu.DRAM_READ), launch.counters.get(ncu.DRAM_WRITTEN)
    seconds = launch.counters.get(ncu.GPU_TIME)
    by_mnemonic, by_counter = _flops(target_lines), _counted_flops(launch, target_lines, families)
    return KernelProfile(
        name=launch.name,
        own=own,
        families=tuple(_executed_family(family, lines) for family, lines in sorted(by_family.items())),
        target_mma_flops=by_counter if by_mnemonic is None else by_mnemonic,
        counter_mma_flops=by_counter,
        other_mma_flops=_flops(by_family.get(families.portable, [])),
        tma_bytes=launch.counters.get(ncu.TMA_BYTES),
        dram_bytes=None if read is None or written is None else read + written,
        gpu_time_ms=None if seconds is None else seconds * 1e3,
    )


def _lines_by_family(launch: ncu.Launch, target: Target) -> dict[str, list[ncu.ExecutedLine]]:
    found: defaultdict[str, list[ncu.ExecutedLine]] = defaultdict(list)
    for line in launch.lines:
        family = family_of(line.opcode, target)
        if family is not None:
            found[family].append(line)
    return dict(found)


def _executed_family(family: str, lines: Iterable[ncu.ExecutedLine]) -> ExecutedFamily:
    """Sums over lines; a line without counts adds none, and `_executed` sees to it that this proves nothing."""
    lines = list(lines)
    return ExecutedFamily(
        family=family,
        warp_instructions=sum(line.warp_instructions or 0 for line in lines),
        thread_instructions_true=sum(line.thread_instructions_true or 0 for line in lines),
    )


def _flops(lines: Iterable[ncu.ExecutedLine]) -> float | None:
    """Operations by mnemonic and executed count; None when a line that ran has no shape, or has no count."""
    total = 0.0
    for line in lines:
        if line.thread_instructions_true is None:
            return None
        flops = flops_of(line.opcode, line.thread_instructions_true) if line.thread_instructions_true else 0.0
        if flops is None:
            return None
        total += flops
    return total


def _counted_flops(launch: ncu.Launch, lines: Iterable[ncu.ExecutedLine], families: FamilyTable) -> float | None:
    """Operations by hardware counter; None when a line that ran has no counter, or its counter saw nothing.

    A counter that stays at zero while its opcodes run counts another type of data, so it says nothing here.
    """
    total = 0.0
    ran = [line.opcode for line in lines if line.thread_instructions_true != 0]
    for counter, pattern in families.mma_counters:
        covered = [opcode for opcode in ran if fnmatchcase(opcode, pattern)]
        value = launch.counters.get(counter)
        if covered and not value:
            return None
        total += value or 0.0
        ran = [opcode for opcode in ran if opcode not in covered]
    return None if ran else total


def same_launches(profile: ProfileStage, clock: TimeStage) -> ProfileStage:
    """The profile, unless the profiled call launched other kernels than each timed call."""
    if profile.outcome is not Outcome.PASSED or not clock.launches:
        return profile
    profiled, timed = sorted(kernel.name for kernel in profile.kernels), sorted(clock.launches)
    if any("(" in name for name in profiled):  # printed demangled: identifiers decide
        profiled, timed = sorted(map(ncu.base_name, profiled)), sorted(map(ncu.base_name, timed))
    if profiled == timed:
        return profile
    message = f"The profiled call launched {_listed(profiled)}, each timed call {_listed(timed)}."
    hint = "Launch the same kernels in every call, the first one too."
    return profile.model_copy(
        update={
            "outcome": Outcome.INCONCLUSIVE,
            "reason": Reason(code="launches_differ", message=message, hint=hint),
            "executed": Layer.unavailable(message),
            "work": None,
        }
    )


def _listed(names: Sequence[str]) -> str:
    return f"{len(names)} kernels ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"


def _executed(own: Sequence[ncu.Launch], wanted: tuple[str, ...], target: Target) -> Layer:
    """The published tag: some line of a wanted family, in the candidate's own kernels, ran with its predicate true."""
    if not own:
        return Layer.yes_or_no(answer=False, reason="None of the candidate's own kernels ran.")
    lines = [line for launch in own for line in launch.lines if family_of(line.opcode, target) in wanted]
    if any(line.thread_instructions_true for line in lines):
        return Layer.yes_or_no(answer=True)
    if any(line.thread_instructions_true is None for line in lines):
        return Layer.unavailable("The profiler gave no executed count for the target's instructions.")
    what = "ran with its predicate true" if lines else "is in the kernels that ran"
    return Layer.yes_or_no(answer=False, reason=f"No instruction of {', '.join(wanted)} {what}.")


def work_share(own: Iterable[KernelProfile], problem: Problem, workload: Workload) -> WorkShare | None:
    """Sums over the candidate's own kernels against the problem's requirements; None when operations are unknown."""
    own = list(own)
    required, compulsory = required_flops(problem, workload), compulsory_bytes(problem, workload)
    target = _sum(kernel.target_mma_flops for kernel in own)
    other = _sum(kernel.other_mma_flops for kernel in own)
    moved = _sum(kernel.tma_bytes for kernel in own)
    if target is None or other is None:
        return None
    return WorkShare(
        target_mma=target / required,
        tma=None if moved is None else moved / compulsory,
        other_mma=other / required,
        excessive=target + other > EXCESS * required,
    )


def _sum(values: Iterable[float | None]) -> float | None:
    known = list(values)
    return None if None in known else sum(value for value in known if value is not None)


def _disagreement(own: Iterable[KernelProfile]) -> Reason | None:
    """Why the profile cannot be trusted: two readings of the same operations differ."""
    for kernel in own:
        mnemonic, counter = kernel.target_mma_flops, kernel.counter_mma_flops
        if mnemonic is None or counter is None:
            continue
        if abs(mnemonic - counter) > COUNTER_TOLERANCE * max(mnemonic, counter):
            message = f"{kernel.name}: {mnemonic:.6g} operations by executed instructions, {counter:.6g} by counter."
            return Reason(code="counters_disagree", message=message, hint="Run `ptxbench doctor` to test the profiler.")
    return None
