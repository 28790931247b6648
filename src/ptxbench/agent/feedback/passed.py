"""What there is to know about a kernel that runs: its speed, whose instructions did the work, its resources; sections.

Numbers of the workload that the model knows alone; whether other sizes pass is not told.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxbench.agent.feedback.advice import family
from ptxbench.agent.feedback.failures import own_draws
from ptxbench.agent.feedback.quoting import kernel_name, plain, quoted
from ptxbench.agent.feedback.section import Section
from ptxbench.schema.stages import BaselineTime, Diagnostic, KernelResources
from ptxbench.schema.verdict import State, Verdict

KERNELS = 6
REMARKS = 4
FULL_WORK_SHARE = 0.5
"""From this share on the target's instructions count as having done the work."""

REGISTERS_OF_SM = 65536
WARPS_OF_SM = 64
"""Both targets: compute capability 9.0 and 10.0 (CUDA Programming Guide, technical specifications)."""
REGISTER_UNIT = 8
"""Registers of a thread are given out in this unit."""


def speed(verdict: Verdict, target_speedup: float) -> Section:
    """Speedup with its interval, the times behind it, the share of the roofline, and how far the target is."""
    time = verdict.stages.time
    lines: list[str] = []
    for baseline in time.baselines if time.candidate is not None else ():
        assert time.candidate is not None
        lines.append(f"- {_against(baseline, time.candidate.median)}")
    if time.tflops is not None:
        share = f", {time.roofline_share:.0%} of the roofline" if time.roofline_share is not None else ""
        lines.append(f"- {time.tflops:.0f} TFLOP/s{share}")
    if time.reason is not None and verdict.status.state is State.PASSED:
        lines.append(f"- no speed: {quoted(time.reason.message)}")
    if lines and time.baselines and target_speedup > 0:
        lines.append(f"- {_to_target(time.baselines[0], target_speedup)}")
    return Section("Speed", tuple(lines))


def target(verdict: Verdict) -> Section:
    """Whether the target's own instructions are there, executed, did the work, and are needed."""
    lines = [f"- {line}" for line in (*_missing(verdict), *_executed(verdict), *_work(verdict))]
    needs = verdict.stages.profile.needs
    for each in needs:
        if each.necessity.state == "no":
            lines.append(
                f"- {family(each.family)} is decorative: with all that it computes or moves spoilt, the outputs stay "
                "right. Let the outputs come from it."
            )
    if needs and all(each.necessity.state == "yes" for each in needs):
        lines.append("- the outputs need all of them")
    return Section(f"Instructions of {verdict.target.value}", tuple(lines))


def precision(verdict: Verdict) -> Section:
    """A pass that misses the published tolerance in places, though its errors are within the contract."""
    missed = [
        f"- {plain(output.name, 40)}: {output.failing:,} of {output.total:,} elements miss the published tolerance, "
        "within the allowed RMS error"
        for draw in own_draws(verdict)
        for output in draw.outputs
        if not output.published and draw.recipe == "normal"
    ]
    return Section("Precision", tuple(dict.fromkeys(missed)))


def resources(verdict: Verdict) -> Section:
    """What ptxas gave each kernel, what its registers allow, and remarks that cost speed."""
    kernels = verdict.stages.build.kernels
    lines = [f"- {_resources(kernel)}" for kernel in kernels[:KERNELS]]
    lines += [f"- and {len(kernels) - KERNELS} more kernels"] if len(kernels) > KERNELS else []
    notes = [each for each in verdict.stages.build.diagnostics if each.severity == "warning"]
    lines += [f"- compiler: {_remark(each)}" for each in {plain(each.message): each for each in notes}.values()][
        :REMARKS
    ]
    return Section("Resources", tuple(lines))


def _against(baseline: BaselineTime, median: float) -> str:
    low, high = baseline.interval
    return (
        f"{baseline.speedup:.3f}x {baseline.name} (95 % interval {low:.3f} to {high:.3f}): {median:.4g} ms against "
        f"{baseline.samples.median:.4g} ms"
    )


def _to_target(baseline: BaselineTime, target_speedup: float) -> str:
    if baseline.speedup >= target_speedup:
        return f"the target of {target_speedup:g}x is reached"
    return f"the target of {target_speedup:g}x means {baseline.samples.median / target_speedup:.4g} ms"


def _missing(verdict: Verdict) -> Iterator[str]:
    """The one thing that is missing first: none in the code, or none executed."""
    names = ", ".join(family(name) for name in verdict.families)
    layers = verdict.layers.target
    if layers.static.state == "no":
        yield f"none of them ({names}) is in the machine code: the kernel is right, but does not use its target"
    elif layers.executed.state == "no":
        yield f"{names}: in the machine code, but none executed; look at the branch around them"


def _executed(verdict: Verdict) -> Iterator[str]:
    totals: dict[str, int] = {}
    for kernel in verdict.stages.profile.kernels:
        for each in kernel.families:
            totals[each.family] = totals.get(each.family, 0) + each.warp_instructions
    ran = [f"{family(name)} {count:,}" for name, count in sorted(totals.items()) if count]
    if ran:
        yield f"warp instructions executed: {', '.join(ran)}"


def _work(verdict: Verdict) -> Iterator[str]:
    work = verdict.stages.profile.work
    if work is None:
        return
    tma = f"; TMA brings {_share(work.tma)} the compulsory bytes" if work.tma is not None else ""
    other = f"; mma.sync does {_share(work.other_mma)} them" if work.other_mma else ""
    yield f"the target's tensor cores do {_share(work.target_mma)} the required operations{other}{tma}"
    if work.target_mma < FULL_WORK_SHARE:
        yield "let the target's tensor-core instructions do the work, not a part of it"
    if work.excessive:
        yield "far more tensor-core operations than required: some of the work is done more than once, or for nothing"


def _share(share: float) -> str:
    return f"{share:.0%} of" if share < 2 else f"{share:.1f} times"


def _resources(kernel: KernelResources) -> str:
    unit = -(-max(kernel.registers, 1) // REGISTER_UNIT) * REGISTER_UNIT
    warps = min(WARPS_OF_SM, REGISTERS_OF_SM // (unit * 32))
    spills = kernel.spill_store_bytes + kernel.spill_load_bytes
    parts = [
        f"{kernel.registers} registers a thread (room for {warps} of {WARPS_OF_SM} warps on an SM)",
        f"{spills} bytes of spills" if spills else "no spills",
        *([f"{kernel.stack_bytes} bytes of stack"] if kernel.stack_bytes else []),
        *([f"{kernel.static_shared_bytes} bytes of static shared memory"] if kernel.static_shared_bytes else []),
    ]
    return f"{kernel_name(kernel.name)}: {', '.join(parts)}"


def _remark(each: Diagnostic) -> str:
    file = each.file.rpartition("/")[2]
    at = f"{quoted(f'{file}:{each.line}')}: " if each.line is not None else ""
    return f"{at}{quoted(each.message)}"
