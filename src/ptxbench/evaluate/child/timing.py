"""Times a checked candidate alternately with the libraries (E20-E22); whether to believe it is `evidence`'s work.

Every call meets inputs and pointers in an order that it cannot know, a flushed L2 and poisoned outputs; a random half
of the timed outputs is taken out and checked. The next call is released only after that.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

import torch

from ptxbench.evaluate.child.arena import Slot, View, as_bytes, untouched
from ptxbench.evaluate.child.baselines import Call, Library
from ptxbench.evaluate.child.checking import Prepared, right
from ptxbench.evaluate.child.instrument import InstrumentError, SpanResult, Window
from ptxbench.evaluate.child.session import CallResult
from ptxbench.evaluate.child.tensors import TORCH, Tensors
from ptxbench.evaluate.outputs import Expectation
from ptxbench.evaluate.rules import published_rule
from ptxbench.evaluate.statistics import median, ratio_of_medians
from ptxbench.schema.problem import Problem
from ptxbench.schema.stages import BaselineTime, GpuState, Reason, Samples

WARM_UPS = 10
SAMPLES = 50


class Meter(Protocol):
    """The judge's own activity instrument."""

    def window(self) -> AbstractContextManager[Window]:
        """Record what runs inside; the device must be idle at its end."""


class Bench(Protocol):
    """What timing needs of a device."""

    def synchronize(self) -> None:
        """Wait until the device is idle."""

    def flush_l2(self) -> None:
        """Write over the whole L2 cache and take back what persists in it."""


@dataclass(frozen=True)
class Timed:
    """One call of the candidate.

    Attributes:
        spans: What the instrument saw in the candidate's process.
        wall_ms: The judge's own clock, from release to return.
    """

    spans: SpanResult
    wall_ms: float


Enter = Callable[[View], CallResult]
"""Calls the candidate on a view's arguments; raises `CandidateFault`."""


@dataclass(frozen=True)
class Turn:
    """One planned call: which draw in which slot, and whether its outputs are checked."""

    draw: int
    slot: int
    checked: bool
    sample: bool
    """False for a warm-up."""


def schedule(seed: int, draws: int, slots: int) -> list[Turn]:
    """The secret order of calls: 10 warm-ups, then 50 samples of which a random half is checked.

    Two calls in a row never share a slot, so that no pointer repeats from one call to the next.
    """
    source = random.Random(seed)  # noqa: S311  (the seed is the secret)
    checked = set(source.sample(range(WARM_UPS, WARM_UPS + SAMPLES), SAMPLES // 2))
    turns: list[Turn] = []
    for number in range(WARM_UPS + SAMPLES):
        free = [slot for slot in range(slots) if slots == 1 or not turns or slot != turns[-1].slot]
        turns.append(Turn(source.randrange(draws), source.choice(free), number in checked, number >= WARM_UPS))
    return turns


@dataclass
class Series:
    """Everything that was read while timing.

    Attributes:
        candidate: Each sample.
        libraries: Milliseconds of each sample by the library's place in the list.
        launch_costs: Milliseconds by which the judge's clock read more than the instrument around a library's call.
        outputs_checked: Timed calls whose outputs were taken out and checked.
        wrong: Why a timed call's outputs were not right; ends the series.
        proven: No mistake explains it: nothing was written, or the result of other inputs.
    """

    candidate: list[Timed] = field(default_factory=list)
    libraries: list[list[float]] = field(default_factory=list)
    launch_costs: list[float] = field(default_factory=list)
    outputs_checked: int = 0
    wrong: Reason | None = None
    proven: bool = False

    @property
    def milliseconds(self) -> list[float]:
        """The candidate's samples by the instrument: first start to last end over all streams."""
        return [timed.spans.duration_ns / 1e6 for timed in self.candidate]


class Timer:
    """Takes one series of samples."""

    def __init__(self, bench: Bench, meter: Meter | None, enter: Enter) -> None:
        self._bench = bench
        self._meter = meter
        self._enter = enter

    def run(
        self,
        problem: Problem,
        draws: Sequence[Prepared],
        slots: Sequence[Slot],
        libraries: Sequence[Library],
        seed: int,
    ) -> Series:
        """Alternate the candidate with each library, sample by sample.

        Raises:
            CandidateFault: The candidate failed in a call.
            InstrumentError: The activity instrument failed in a process.
        """
        views = [slot.view(problem, draws[0].draw.workload) for slot in slots]
        series = Series(libraries=[[] for _ in libraries])
        bound = [[library.bind(problem, each.draw.inputs) for each in draws] for library in libraries]
        for turn in schedule(seed, len(draws), len(slots)):
            prepared, view = draws[turn.draw], views[turn.slot]
            timed = self._candidate(view, prepared.draw.inputs)
            if turn.sample:
                series.candidate.append(timed)
            if turn.checked:
                series.outputs_checked += 1
                got = view.take_outputs()
                series.wrong = wrong_output(view, got, prepared)
                if series.wrong:
                    series.proven = not_computed(got, [each for each in draws if each is not prepared])
                    break
            for samples, calls in zip(series.libraries, bound, strict=True):
                milliseconds, wall = self._library(calls[turn.draw])
                if turn.sample:
                    samples.append(milliseconds)
                    series.launch_costs.append(wall - milliseconds)
        return series

    def _candidate(self, view: View, inputs: Tensors) -> Timed:
        view.load(inputs)
        self._bench.flush_l2()
        self._bench.synchronize()
        result = self._enter(view)
        if result.spans is None:
            raise InstrumentError(result.instrument_error or "the candidate's process sent no activity")
        return Timed(result.spans, result.wall_ns / 1e6)

    def _library(self, call: Call) -> tuple[float, float]:
        """Milliseconds of one call by the instrument, and by the clock."""
        assert self._meter is not None
        self._bench.flush_l2()
        self._bench.synchronize()
        with self._meter.window() as window:
            started = time.perf_counter_ns()
            call()
            self._bench.synchronize()
            wall = time.perf_counter_ns() - started
        return window.result.duration_ns / 1e6, wall / 1e6


def not_computed(got: Tensors, others: Sequence[Prepared]) -> bool:
    """Whether a call left its outputs unwritten, or wrote what belongs to another draw."""
    if all(untouched(tensor)[0] == tensor.numel() for tensor in got.values()):
        return True
    return any(all(_matches(got[name], held) for name, held in other.expected.items()) for other in others)


def _matches(got: torch.Tensor, held: Expectation) -> bool:
    return published_rule(TORCH, got, held.reference, held.atol, held.rtol).passed


def wrong_output(view: View, got: Tensors, prepared: Prepared) -> Reason | None:
    """Why a timed call's outputs or inputs are not right.

    Outputs equal bit for bit to those that passed the check are right; others are judged as in the check.
    """
    changed = view.inputs_changed(prepared.draw.inputs)
    if changed:
        return _cheat(f"A timed call changed its input {' and '.join(changed)}, which the checked calls did not.")
    for name, held in prepared.expected.items():
        if prepared.proven is not None and torch.equal(as_bytes(got[name]), as_bytes(prepared.proven[name])):
            continue
        if not right(held, name, got[name]):
            return _cheat(f"In a timed call {name} was wrong, after the same inputs had passed the check.")
    return None


def _cheat(message: str) -> Reason:
    hint = "Every call must compute its result from the inputs it is given; nothing may be kept between calls."
    return Reason(code="timed_output_wrong", message=message, hint=hint)


def samples_of(milliseconds: Sequence[float], states: Sequence[GpuState]) -> Samples:
    """A series as a record, with the mean of the clocks read around it."""
    clock = sum(state.sm_clock_mhz for state in states) / len(states) if states else None
    return Samples(milliseconds=tuple(milliseconds), median=median(milliseconds), mean_clock_mhz=clock)


def baseline_times(
    problem: Problem, series: Series, libraries: Sequence[Library], states: Sequence[GpuState]
) -> tuple[BaselineTime, ...]:
    """The libraries' samples with the candidate's speedup over each."""
    published: dict[str, str] = {baseline.name: baseline.published_version for baseline in problem.baselines}
    times = []
    for library, milliseconds in zip(libraries, series.libraries, strict=True):
        ratio = ratio_of_medians(milliseconds, series.milliseconds)
        times.append(
            BaselineTime(
                name=library.name,
                version=library.version,
                published_version=published[library.name],
                call=library.how,
                samples=samples_of(milliseconds, states),
                speedup=ratio.value,
                interval=(ratio.low, ratio.high),
            )
        )
    return tuple(times)
