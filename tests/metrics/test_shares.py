"""Shares of trajectories and turns, on outcomes that can be counted by hand."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.metrics.making import row, trajectories

from ptxbench.metrics.shares import (
    Share,
    correct_at_k,
    correct_turn_share_at_k,
    failure_mix,
    fast_at_k,
    first_correct_turn,
    generalisation_share,
    pass_at_k,
    target_correct_at_k,
    target_turn_share_at_k,
)

OUTCOMES = st.lists(st.text("..cT", min_size=1, max_size=8), min_size=1, max_size=8)


def test_a_trajectory_counts_from_its_first_correct_turn_on() -> None:
    found = trajectories("..c.", "T...", "....")
    assert [correct_at_k(found, k) for k in (1, 2, 3, 4)] == [Share(1, 3), Share(1, 3), Share(2, 3), Share(2, 3)]
    assert target_correct_at_k(found, 4) == Share(1, 3)
    assert [first_correct_turn(turns) for turns in found] == [2, 0, None]


def test_turn_shares_count_turns_and_not_trajectories() -> None:
    found = trajectories("TTc.", ".T")
    assert target_turn_share_at_k(found, 8) == Share(3, 6)
    assert target_turn_share_at_k(found, 2) == Share(3, 4)
    assert correct_turn_share_at_k(found, 8) == Share(4, 6)


def test_a_kernel_exactly_as_fast_as_p_is_not_faster() -> None:
    found = trajectories("c", "c", speed=1.2)
    assert (fast_at_k(found, 1, 1.2).hits, fast_at_k(found, 1, 1.1).hits) == (0, 2)


def test_a_correct_turn_without_a_time_is_not_fast() -> None:
    assert fast_at_k([[row(ok=True)]], 1, 0.0) == Share(0, 1)


def test_nothing_to_count_is_no_share() -> None:
    assert correct_at_k([], 8).value is None
    assert pass_at_k([], 1, 8) is None


@given(OUTCOMES)
def test_correctness_never_falls_with_more_turns_and_the_target_never_exceeds_it(words: list[str]) -> None:
    found = trajectories(*words)
    hits = [correct_at_k(found, k).hits for k in range(9)]
    assert hits == sorted(hits)
    assert hits[0] == 0
    assert all(target_correct_at_k(found, k).hits <= hits[k] for k in range(9))


@given(OUTCOMES, st.integers(1, 8))
def test_pass_at_k_is_the_share_of_all_draws_of_k_trajectories(words: list[str], k: int) -> None:
    found = trajectories(*words)
    estimate = pass_at_k(found, k, 8)
    draws = list(combinations([first_correct_turn(turns) is not None for turns in found], k))
    if not draws:
        assert estimate is None
    else:
        assert estimate == pytest.approx(sum(map(any, draws)) / len(draws))


def test_failures_are_counted_by_stage() -> None:
    rows = [row(), row(), row(ok=True), row(failure="no_kernel")]
    assert failure_mix(rows) == {"build": 2, "passed": 1, "no_kernel": 1}


def test_a_kernel_generalises_when_it_passes_on_every_other_workload() -> None:
    passed = [("a", True), ("a", False), ("b", True), ("b", True), ("c", False)]
    assert generalisation_share(passed) == Share(1, 3)
