"""Medians, intervals, floors and witnesses on samples whose answers are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.evaluate.statistics import (
    DeviceLimits,
    coefficient_of_variation,
    floor_ms,
    median,
    ratio_of_medians,
    roofline_share,
    tflops,
    witness,
)

H200 = DeviceLimits(major=9, sm_count=132, max_clock_hz=1.98e9, bandwidth=4.8e12)
GEMM_FLOPS = 2 * 8192 * 7168 * 5120
times = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40)


def test_the_median_ignores_one_slow_sample() -> None:
    assert median([1.0, 1.1, 50.0]) == 1.1
    assert median([1.0, 2.0]) == 1.5


@pytest.mark.parametrize("samples", [[], [0.0], [-1.0], [math.nan], [1.0, math.inf]])
def test_samples_that_no_clock_can_give_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="positive finite"):
        median(samples)


def test_the_coefficient_of_variation_is_relative_to_the_mean() -> None:
    assert coefficient_of_variation([2.0, 2.0, 2.0]) == 0
    assert coefficient_of_variation([1.0, 3.0]) == pytest.approx(math.sqrt(2) / 2)
    assert coefficient_of_variation([5.0]) == 0


def test_the_interval_of_a_speedup_holds_the_true_ratio_and_is_reproducible() -> None:
    rng = np.random.default_rng(3)
    baseline, candidate = 0.75 + 0.01 * rng.standard_normal(50), 1.12 + 0.01 * rng.standard_normal(50)
    ratio = ratio_of_medians(list(baseline), list(candidate))
    assert ratio.low < 0.75 / 1.12 < ratio.high
    assert ratio.high - ratio.low < 0.02
    assert ratio == ratio_of_medians(list(baseline), list(candidate))


def test_a_clock_that_drifts_moves_both_sides_and_leaves_the_interval_narrow() -> None:
    drift = np.linspace(1, 1.3, 50)
    ratio = ratio_of_medians(list(drift * 2), list(drift))
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2, 2, 2))


def test_samples_that_were_not_taken_in_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="2 baseline samples against 1"):
        ratio_of_medians([1.0, 2.0], [1.0])


@settings(max_examples=50, deadline=None)
@given(times, st.floats(0.1, 10))
def test_the_ratio_lies_in_its_interval_and_follows_the_unit(samples: list[float], factor: float) -> None:
    ratio = ratio_of_medians([factor * sample for sample in samples], samples)
    assert ratio.value == pytest.approx(factor, rel=1e-6)
    assert ratio.low == pytest.approx(factor, rel=1e-6)
    assert ratio.high == pytest.approx(factor, rel=1e-6)


def test_the_floor_of_the_paper_gemm_is_below_cublas_on_an_h200() -> None:
    compulsory = 2 * (8192 * 5120 + 7168 * 5120 + 8192 * 7168)
    floor = floor_ms(GEMM_FLOPS, compulsory, H200)
    assert floor == pytest.approx(1e3 * GEMM_FLOPS / (4096 * 132 * 1.98e9))
    assert 0.5 < floor < 0.754
    assert roofline_share(floor, 0.754) == pytest.approx(floor / 0.754)
    assert tflops(GEMM_FLOPS, 0.754) == pytest.approx(797, abs=1)


def test_the_floor_of_work_without_arithmetic_is_its_bytes() -> None:
    assert floor_ms(0, 4.8e9, H200) == pytest.approx(1.0)


def test_blackwell_computes_twice_as_much_per_clock() -> None:
    blackwell = DeviceLimits(major=10, sm_count=132, max_clock_hz=1.98e9, bandwidth=8e12)
    assert blackwell.peak == 2 * H200.peak


def test_a_generation_without_a_known_rate_has_no_floor() -> None:
    with pytest.raises(ValueError, match=r"8\.x"):
        floor_ms(1, 1, DeviceLimits(major=8, sm_count=108, max_clock_hz=1.4e9, bandwidth=2e12))


@pytest.mark.parametrize(
    ("reading", "agrees"),
    [(1.0, True), (1.049, True), (1.051, False), (0.98, True), (0.96, False), (5.0, False)],
)
def test_the_wall_clock_may_read_more_by_the_launch_cost_but_hardly_less(reading: float, agrees: bool) -> None:
    result = witness("judge_wall_clock", 1.0, reading, 0.02)
    assert result.allowance_ms == pytest.approx(0.05)
    assert result.agrees is agrees


def test_the_profilers_clock_may_differ_either_way() -> None:
    assert witness("ncu_gpu_time", 1.0, 0.96, 0.02).agrees
    assert not witness("ncu_gpu_time", 1.0, 0.94, 0.02).agrees
