"""Numbers made from timed samples: medians, speedups with intervals, floors, witnesses; no clock is read here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ptxbench.schema.stages import Witness

RESAMPLES = 2000
"""Bootstrap resamples: the ends of a 95 % interval rest on 50 of them each."""
WITNESS_SHARE = 0.03
"""How far two honest clocks may disagree (CUPTI and ncu agree within 2 % on the same kernel)."""
DENSE_BF16_FLOP_PER_CLOCK = {9: 4096, 10: 8192}
"""Dense bf16 tensor-core FLOP per clock and SM by major compute capability.

Hopper (9): one wgmma m64n256k16 (2*64*256*16 FLOP) takes 128 clocks on the SM's four tensor cores. Blackwell (10)
has twice that rate.
"""


def median(samples: Sequence[float]) -> float:
    """Median of the samples.

    Raises:
        ValueError: There are none, or one is not a positive finite number.
    """
    return float(np.median(_checked(samples)))


def coefficient_of_variation(samples: Sequence[float]) -> float:
    """Standard deviation (n - 1) / mean; 0 for a single sample. A small value does not prove a right reading."""
    values = _checked(samples)
    return float(values.std(ddof=1) / values.mean()) if values.size > 1 else 0.0


@dataclass(frozen=True)
class Ratio:
    """A ratio of medians with its bootstrap 95 % interval."""

    value: float
    low: float
    high: float


def ratio_of_medians(baseline: Sequence[float], candidate: Sequence[float], seed: int = 0) -> Ratio:
    """Speedup: median(baseline) / median(candidate), with the percentile bootstrap's 95 % interval.

    The two were sampled alternately, so pairs are resampled together and a clock that drifts moves both sides
    (Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13). The same input gives the same interval.

    Args:
        baseline: Milliseconds of the library.
        candidate: Milliseconds of the candidate, as many.
        seed: Of the resampling.

    Raises:
        ValueError: The two differ in number, are empty, or hold something else than positive finite numbers.
    """
    above, below = _checked(baseline), _checked(candidate)
    if above.size != below.size:
        raise ValueError(f"{above.size} baseline samples against {below.size} of the candidate")
    picks = np.random.default_rng(seed).integers(0, above.size, size=(RESAMPLES, above.size))
    ratios = np.median(above[picks], axis=1) / np.median(below[picks], axis=1)
    low, high = np.percentile(ratios, [2.5, 97.5])
    return Ratio(value=float(np.median(above) / np.median(below)), low=float(low), high=float(high))


@dataclass(frozen=True)
class DeviceLimits:
    """What bounds any kernel on a device.

    Attributes:
        major: Major compute capability.
        sm_count: Multiprocessors.
        max_clock_hz: Highest SM clock.
        bandwidth: Device memory, bytes per second.
    """

    major: int
    sm_count: int
    max_clock_hz: float
    bandwidth: float

    @property
    def peak(self) -> float:
        """Dense bf16 FLOP per second at the highest clock.

        Raises:
            ValueError: This generation has no entry in `DENSE_BF16_FLOP_PER_CLOCK`.
        """
        rate = DENSE_BF16_FLOP_PER_CLOCK.get(self.major)
        if rate is None:
            raise ValueError(f"no peak rate is known for compute capability {self.major}.x")
        return rate * self.sm_count * self.max_clock_hz


def floor_ms(flops: float, compulsory_bytes: float, limits: DeviceLimits) -> float:
    """Milliseconds that no kernel can beat: the longer of computing at peak and moving the compulsory bytes (E22)."""
    return 1e3 * max(flops / limits.peak, compulsory_bytes / limits.bandwidth)


def tflops(flops: float, milliseconds: float) -> float:
    """Required floating-point operations per second, in 10^12 per second."""
    return flops / milliseconds / 1e9


def roofline_share(floor: float, milliseconds: float) -> float:
    """The floor as a share of the time taken: 1 is a kernel at the machine's limit."""
    return floor / milliseconds


def witness(
    name: Literal["judge_wall_clock", "ncu_gpu_time"], instrument_ms: float, witness_ms: float, launch_cost_ms: float
) -> Witness:
    """Hold a second clock against the instrument.

    The judge's wall clock sees everything between release and completion, so it may read more by the launch cost,
    and never less than the instrument (beyond 3 % either way). ncu may differ either way by the same allowance.
    """
    allowance = WITNESS_SHARE * instrument_ms + launch_cost_ms
    below = WITNESS_SHARE * instrument_ms if name == "judge_wall_clock" else allowance
    agrees = -below <= witness_ms - instrument_ms <= allowance
    return Witness(name=name, milliseconds=witness_ms, allowance_ms=allowance, agrees=agrees)


def _checked(samples: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    values = np.asarray(samples, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all() or (values <= 0).any():
        raise ValueError("samples must be positive finite numbers, at least one")
    return values
