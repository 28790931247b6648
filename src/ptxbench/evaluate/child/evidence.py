"""Whether a timing can be believed: whose kernels ran, what other clocks say, what physics allows; times nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median as middle_of

from ptxbench.evaluate.child.instrument import Activity, check_spans
from ptxbench.evaluate.child.preparing import Baselines
from ptxbench.evaluate.child.protocol import CandidateFiles
from ptxbench.evaluate.child.timing import Series, Timed, baseline_times, samples_of
from ptxbench.evaluate.statistics import DeviceLimits, floor_ms, median, roofline_share, tflops, witness
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.stages import GpuState, Outcome, Reason, TimeStage, Witness
from ptxbench.schema.values import ToolVersion
from ptxbench.suite import compulsory_bytes, required_flops

Judgement = tuple[Outcome, Reason]

NAMED = 3
"""How many foreign kernels a message spells out."""


def foreign_kernels(series: Series, files: CandidateFiles) -> tuple[str, ...]:
    """Kernels that ran in a timed call and are not in the candidate's own machine code (E23)."""
    ran = {name for timed in series.candidate for name in _kernels(timed)}
    return tuple(sorted(ran - set(files.kernels)))


def instrument_doubt(series: Series) -> Judgement | None:
    """The verdict where the instrument itself doubts a sample, or could not list all that ran."""
    for timed in series.candidate:
        doubt = check_spans(timed.spans)
        if doubt is None and timed.spans.records > len(timed.spans.kernels):
            doubt = "lost_records"
        if doubt is not None and doubt != "no_records":
            message = f"The instrument reports {doubt.replace('_', ' ')} in a timed call."
            hint = "Launch fewer kernels per call, and only from within `run`."
            return Outcome.INCONCLUSIVE, Reason(code=doubt, message=message, hint=hint)
    return None


def conservation(series: Series, files: CandidateFiles, loaded: Sequence[str]) -> Judgement | None:
    """Hold what ran against the candidate's own machine code.

    Args:
        series: The timed calls.
        files: What the candidate was built to.
        loaded: SHA-256 of every cubin that its process loaded.
    """
    foreign = foreign_kernels(series, files)
    if foreign:
        return _foreign(f"Kernels ran that are not in the candidate's own code: {', '.join(foreign[:NAMED])}.")
    unknown = set(loaded) - set(files.cubin_hashes)
    if unknown:
        return _foreign(f"The process loaded {len(unknown)} cubins that are not in the candidate's library.")
    ran = [tuple(sorted(_kernels(timed))) for timed in series.candidate]
    if not all(ran):
        return _foreign(f"No kernel ran in {ran.count(())} of {len(ran)} timed calls.")
    sets = set(ran)
    if len(sets) > 1:
        message = f"The timed calls launched {len(sets)} different sets of kernels."
        hint = "Launch the same kernels in every call; choose by shape alone, and set up in the first call."
        return Outcome.INCONCLUSIVE, Reason(code="kernels_vary", message=message, hint=hint)
    return None


def launch_cost(series: Series, empty_call_ms: float) -> float:
    """Milliseconds that an honest launch costs beyond its kernels, by the judge's clock.

    An empty call shows what the way to the process and back costs; a library's call, under the same instrument, what
    a launch and the wait for its end cost.
    """
    return empty_call_ms + max(0.0, middle_of(series.launch_costs) if series.launch_costs else 0.0)


def wall_clock(series: Series, launch_cost_ms: float) -> Witness:
    """The judge's own clock as the second witness (E22)."""
    wall = median([timed.wall_ms for timed in series.candidate])
    return witness("judge_wall_clock", median(series.milliseconds), wall, launch_cost_ms)


def disputed(second: Witness, instrument_ms: float) -> Judgement | None:
    """The verdict on two clocks that disagree."""
    if second.agrees:
        return None
    message = (
        f"The instrument reads {instrument_ms:.4g} ms, the judge's clock {second.milliseconds:.4g} ms; "
        f"{second.allowance_ms:.2g} ms are allowed between them."
    )
    hint = "Do all work in kernels of the call itself and little on the host; run again on an idle machine."
    return Outcome.INCONCLUSIVE, Reason(code="timer_disputed", message=message, hint=hint)


@dataclass(frozen=True)
class Speed:
    """A time held against the machine's limits.

    Attributes:
        flops: Required floating-point operations.
        floor_ms: No kernel can be faster; None where the generation's peak is not known.
    """

    flops: int
    floor_ms: float | None

    @classmethod
    def of(cls, problem: Problem, workload: Workload, limits: DeviceLimits) -> Speed:
        """The limits for one workload on one device."""
        flops = required_flops(problem, workload)
        try:
            floor = floor_ms(flops, compulsory_bytes(problem, workload), limits)
        except ValueError:  # a generation without a known peak
            floor = None
        return cls(flops, floor)

    def impossible(self, milliseconds: float) -> Judgement | None:
        """The verdict on a time below the floor."""
        if self.floor_ms is None or milliseconds >= self.floor_ms:
            return None
        message = f"{milliseconds:.4g} ms is below {self.floor_ms:.4g} ms, which the device cannot beat."
        hint = "Part of the work was not done, or not done inside the timed calls."
        return Outcome.INCONCLUSIVE, Reason(code="faster_than_possible", message=message, hint=hint)


def _kernels(timed: Timed) -> tuple[str, ...]:
    return tuple(span.name for span in timed.spans.kernels if span.kind is Activity.KERNEL)


def _foreign(message: str) -> Judgement:
    hint = "Every kernel that runs must be compiled from the candidate's own source."
    return Outcome.CHEATED, Reason(code="foreign_kernel", message=message, hint=hint)


# ---- the stage ----


@dataclass(frozen=True)
class Context:
    """What a series was taken under.

    Attributes:
        problem: The problem.
        workload: Its sizes.
        files: What the candidate was built to.
        loaded: SHA-256 of every cubin that its process loaded.
        launch_cost_ms: What an empty call costs by the judge's clock.
        limits: What bounds a kernel on this device.
        instrument: CUPTI and its version.
        states: The GPU's state before and after.
    """

    problem: Problem
    workload: Workload
    files: CandidateFiles
    loaded: tuple[str, ...]
    launch_cost_ms: float
    limits: DeviceLimits
    instrument: ToolVersion
    states: tuple[GpuState, ...]


def time_stage(series: Series, baselines: Baselines, context: Context) -> TimeStage:
    """The time stage from a series: its numbers, unless something about it cannot be believed."""
    speed = Speed.of(context.problem, context.workload, context.limits)
    stage = TimeStage(
        outcome=Outcome.CHEATED,
        reason=series.wrong,
        instrument=context.instrument,
        missing_baselines=baselines.missing,
        floor_ms=speed.floor_ms,
        outputs_checked=series.outputs_checked,
        foreign_kernels=foreign_kernels(series, context.files),
        launches=tuple(sorted(_kernels(series.candidate[0]))) if series.candidate else (),
        states=context.states,
    )
    if series.wrong:
        return stage
    middle = median(series.milliseconds) if all(each > 0 for each in series.milliseconds) else 0.0
    judgement = (
        conservation(series, context.files, context.loaded) or instrument_doubt(series) or speed.impossible(middle)
    )
    if middle == 0.0:
        return _with(stage, judgement or _foreign("A timed call did no work on the device."))
    second = wall_clock(series, launch_cost(series, context.launch_cost_ms))
    numbers = {
        "candidate": samples_of(series.milliseconds, context.states),
        "baselines": baseline_times(context.problem, series, baselines.libraries, context.states),
        "witnesses": (second,),
        "tflops": tflops(speed.flops, middle),
        "roofline_share": roofline_share(speed.floor_ms, middle) if speed.floor_ms else None,
    }
    return _with(stage.model_copy(update=numbers), judgement or disputed(second, middle))


def _with(stage: TimeStage, judgement: Judgement | None) -> TimeStage:
    outcome, reason = judgement or (Outcome.PASSED, None)
    return stage.model_copy(update={"outcome": outcome, "reason": reason})
