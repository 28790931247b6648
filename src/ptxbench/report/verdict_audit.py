"""Recomputes what a verdict states from the stage data it holds; it runs nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose

from ptxbench.evaluate.profiler import work_share
from ptxbench.evaluate.statistics import median, ratio_of_medians, roofline_share, tflops
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.stages import CheckStage, Outcome, ProfileStage, SanitizeStage, TimeStage
from ptxbench.schema.verdict import Verdict
from ptxbench.suite import required_flops

TOLERANCE = 1e-9
"""Relative: the same arithmetic on the same numbers, on another machine."""


@dataclass(frozen=True)
class Difference:
    """Something that is stored otherwise than it follows.

    Attributes:
        where: File, trajectory and turn.
        what: What differs.
        stored: As it stands in the run.
        follows: As it was recomputed.
    """

    where: str
    what: str
    stored: str
    follows: str


def verdict_differences(verdict: Verdict, problem: Problem, workload: Workload, where: str) -> Iterator[Difference]:
    """Everything in a verdict that does not follow from its stage data.

    The status and the layers need no look: readers derive them anew.
    """
    stages = verdict.stages
    found = (
        *_check(stages.check),
        *_sanitize(stages.sanitize),
        *_profile(stages.profile, verdict, problem, workload),
        *_time(stages.time, problem, workload),
    )
    for what, stored, follows in found:
        yield Difference(where, what, stored, follows)


Found = tuple[str, str, str]
"""What differs, as stored, as it follows."""


def _check(stage: CheckStage) -> Iterator[Found]:
    outputs = [output for draw in stage.draws for output in draw.outputs]
    for output in outputs:
        if output.published != (output.failing == 0):
            yield f"published rule of {output.name}", str(output.published), f"{output.failing} elements fail"
        if output.block is not None and output.contract is not None:
            holds = output.block.rms_relative_error <= output.block.bound
            if output.contract and not holds:
                yield f"contract of {output.name}", "holds", f"{output.block.rms_relative_error} > {output.block.bound}"
    if stage.outcome is Outcome.PASSED:
        wrong = [output.name for output in outputs if output.contract is False]
        own = [draw for draw in stage.draws if not draw.inputs_unchanged or not draw.guards_intact]
        if wrong and stage.generalises.state != "no":
            yield "outcome of check", "passed", f"the contract does not hold for {', '.join(wrong)}"
        if own:
            yield "outcome of check", "passed", "an input was changed or memory beside an output was written"
        if not outputs:
            yield "outcome of check", "passed", "no output was compared"
    normal = [output for draw in stage.draws if draw.recipe == "normal" for output in draw.outputs]
    bad = any(not output.published for output in normal)
    if stage.published.state == "yes" and bad and stage.generalises.state != "no":
        yield "published layer", "yes", "an element misses the tolerance"


def _sanitize(stage: SanitizeStage) -> Iterator[Found]:
    for run in stage.runs:
        errors = sum(finding.severity == "error" for finding in run.findings)
        if errors and run.outcome is Outcome.PASSED:
            yield f"outcome of {run.tool}", "passed", f"{errors} errors were found"
    if stage.outcome is Outcome.PASSED and any(run.outcome is not Outcome.PASSED for run in stage.runs):
        yield "outcome of sanitize", "passed", "not all of its tools passed"


def _profile(stage: ProfileStage, verdict: Verdict, problem: Problem, workload: Workload) -> Iterator[Found]:
    if stage.outcome is not Outcome.PASSED:
        return
    own = [kernel for kernel in stage.kernels if kernel.own]
    ran = any(
        family.thread_instructions_true > 0
        for kernel in own
        for family in kernel.families
        if family.family in verdict.families
    )
    if stage.executed.state in ("yes", "no") and (stage.executed.state == "yes") != ran:
        yield "executed layer", stage.executed.state, "yes" if ran else "no"
    follows = work_share(own, problem, workload)
    stored, share = stage.work, follows
    if stored is not None and share is not None:
        for name in ("target_mma", "tma", "other_mma"):
            yield from _number(f"work share {name}", getattr(stored, name), getattr(share, name))
    elif (stored is None) != (share is None):
        yield "work share", str(stored), str(share)
    decorative = [need.family for need in stage.needs if need.necessity.state == "no"]
    if decorative and stage.necessity.state == "yes":
        yield "necessity layer", "yes", f"{', '.join(decorative)} is decoration"


def _time(stage: TimeStage, problem: Problem, workload: Workload) -> Iterator[Found]:
    if stage.candidate is None or not stage.candidate.milliseconds:
        return
    samples = stage.candidate.milliseconds
    yield from _number("median of the kernel", stage.candidate.median, median(samples))
    for baseline in stage.baselines:
        name, against = baseline.name, baseline.samples.milliseconds
        yield from _number(f"median of {name}", baseline.samples.median, median(against))
        if len(against) != len(samples):
            yield f"samples of {name}", str(len(against)), f"{len(samples)}, taken in turn with the kernel's"
            continue
        ratio = ratio_of_medians(against, samples)
        yield from _number(f"speedup over {name}", baseline.speedup, ratio.value)
        for end, stored, follows in zip(("lower", "upper"), baseline.interval, (ratio.low, ratio.high), strict=True):
            yield from _number(f"{end} end of the speedup over {name}", stored, follows)
    middle = median(samples)
    if stage.floor_ms is not None and stage.roofline_share is not None:
        yield from _number("roofline share", stage.roofline_share, roofline_share(stage.floor_ms, middle))
    if stage.tflops is not None:
        yield from _number("TFLOP/s", stage.tflops, tflops(required_flops(problem, workload), middle))


def _number(what: str, stored: float | None, follows: float | None) -> Iterator[Found]:
    if stored is None or follows is None:
        if stored is not follows:
            yield what, str(stored), str(follows)
    elif not isclose(stored, follows, rel_tol=TOLERANCE):
        yield what, f"{stored:.9g}", f"{follows:.9g}"
