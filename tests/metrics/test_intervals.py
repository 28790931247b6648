"""Intervals against a known library and against what they promise in simulation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.metrics.making import trajectories

from ptxbench.metrics.cells import TurnRows
from ptxbench.metrics.intervals import clustered_bootstrap, wilson
from ptxbench.metrics.shares import Share, target_turn_share_at_k


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.8, 0.95]))
def test_wilsons_interval_is_that_of_scipy(counts: tuple[int, int], confidence: float) -> None:
    hits, total = counts
    expected = stats.binomtest(hits, total).proportion_ci(confidence, method="wilson")
    assert wilson(Share(hits, total), confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_no_interval_without_data() -> None:
    assert wilson(Share(0, 0)) is None
    assert clustered_bootstrap(trajectories("c"), lambda found: 1.0) is None


def test_an_interval_of_what_is_not_measured_is_none() -> None:
    assert clustered_bootstrap(trajectories("c", "c"), lambda found: None) is None


def _share(found: Sequence[TurnRows]) -> float | None:
    return target_turn_share_at_k(found, 8).value


def test_the_bootstrap_is_the_same_every_time() -> None:
    found = trajectories("T.T", "...", "TT", ".T.c")
    assert clustered_bootstrap(found, _share) == clustered_bootstrap(found, _share)


def test_the_clustered_interval_holds_what_it_claims_where_one_over_turns_would_not() -> None:
    # Trajectories either have it or have not: their turns agree, so 24 trajectories of 8 turns are no 192 observations.
    random = np.random.default_rng(7)
    truth, simulations = 0.5, 150
    inside = naive = 0
    for _ in range(simulations):
        words = ["T" * 8 if hit else "." * 8 for hit in random.random(24) < truth]
        found = trajectories(*words)
        interval = clustered_bootstrap(found, _share, draws=200)
        assert interval is not None
        inside += interval[0] <= truth <= interval[1]
        over_turns = wilson(target_turn_share_at_k(found, 8))
        assert over_turns is not None
        naive += over_turns[0] <= truth <= over_turns[1]
    # 95 % less three standard errors of the simulation.
    assert inside / simulations > 0.89
    assert naive / simulations < 0.75
