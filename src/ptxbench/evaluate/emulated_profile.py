"""The profile stage on the emulator: exact executed counts by opcode family, operations, bytes; runs nothing.

PTX opcodes stand for the machine instructions that ptxas makes of them, one for one, in the families that matter here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from math import prod

from ptxbench.emulator.device import Ran
from ptxbench.emulator.launch import Executed
from ptxbench.evaluate.profiler import work_share
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.stages import ExecutedFamily, KernelProfile, Outcome, ProfileStage
from ptxbench.schema.values import Layer, Target

_TMA = (("TMA", "cp.async.bulk.tensor.*"), ("TMA", "cp.reduce.async.bulk.tensor.*"))
_OTHER = (("OTHER_MMA", "mma.*"), ("OTHER_MMA", "wmma.mma.*"))
FAMILIES: dict[Target, tuple[tuple[str, str], ...]] = {
    Target.SM_90A: (("GMMA", "wgmma.mma_async.*"), *_TMA, *_OTHER),
    Target.SM_100A: (
        ("TCGEN_MMA", "tcgen05.mma.*"),
        ("TMEM", "tcgen05.ld.*"),
        ("TMEM", "tcgen05.st.*"),
        *(("TCGEN_CONTROL", f"tcgen05.{word}*") for word in ("alloc", "dealloc", "cp", "commit", "shift")),
        *_TMA,
        *_OTHER,
    ),
}
"""(family, pattern of PTX mnemonics), in the order in which they are tried; the families are those of machine code."""

_LOADS = "cp.async.bulk.tensor.*.shared::*.global.*"
_SHAPE = re.compile(r"\.m(\d+)n(\d+)k(\d+)")
_THREADS = {"GMMA": 128, "OTHER_MMA": 32}
"""Threads that together execute one instruction."""


def family_of(name: str, target: Target) -> str | None:
    """The family of a PTX mnemonic, None for all others."""
    return next((family for family, pattern in FAMILIES[target] if fnmatchcase(name, pattern)), None)


def operations(line: Executed, family: str) -> float | None:
    """Floating-point operations of one line, 2 per multiply-add; a sparse one multiplies half; None: not countable."""
    if family == "TCGEN_MMA":
        return float(line.copied)
    shape = _SHAPE.search(line.name)
    if shape is None:
        return None
    dense = 2.0 * prod(int(size) for size in shape.groups()) * line.threads / _THREADS[family]
    return dense / 2 if ".sp." in line.name else dense


def profile_stage(ran: Sequence[Ran], problem: Problem, workload: Workload, target: Target) -> ProfileStage:
    """What the launches of one call executed."""
    mma = problem.work_families[target].mma
    kernels = tuple(_kernel(each, mma, target) for each in ran)
    wanted = problem.families[target]
    hit = any(
        item.thread_instructions_true > 0 for kernel in kernels for item in kernel.families if item.family in wanted
    )
    reason = None if hit else f"No instruction of {', '.join(wanted)} ran with its predicate true."
    return ProfileStage(
        outcome=Outcome.PASSED,
        kernels=kernels,
        executed=Layer.yes_or_no(hit, reason),
        work=work_share(kernels, problem, workload),
    )


def _kernel(each: Ran, mma: tuple[str, ...], target: Target) -> KernelProfile:
    lines: defaultdict[str, list[Executed]] = defaultdict(list)
    for line in each.result.counts:
        family = family_of(line.name, target)
        if family is not None:
            lines[family].append(line)
    return KernelProfile(
        name=each.kernel,
        own=True,
        families=tuple(
            ExecutedFamily(
                family=family,
                warp_instructions=sum(line.warps for line in found),
                thread_instructions_true=sum(line.threads for line in found),
            )
            for family, found in sorted(lines.items())
        ),
        target_mma_flops=_total((line, family) for family in mma for line in lines[family]),
        other_mma_flops=_total((line, "OTHER_MMA") for line in lines["OTHER_MMA"]),
        tma_bytes=float(sum(line.copied for line in lines["TMA"] if fnmatchcase(line.name, _LOADS))),
    )


def _total(lines: Iterable[tuple[Executed, str]]) -> float | None:
    found = [operations(line, family) for line, family in lines if line.threads]
    return None if None in found else sum(value for value in found if value is not None)
