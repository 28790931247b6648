"""Comparisons against a known library, and how often they decide where there is nothing to decide."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from tests.metrics.making import row

from ptxbench.metrics.cells import TurnRows
from ptxbench.metrics.compare import Better, compare
from ptxbench.metrics.speed import best_at_k


def speeds(values: list[float]) -> list[TurnRows]:
    return [[row(f"t{number}", ok=True, speedup=value)] for number, value in enumerate(values)]


def best(turns: TurnRows) -> float | None:
    return best_at_k(turns, 8)


A = {"gemm": speeds([0.9, 0.95, 0.97, 0.92, 0.99]), "mha": speeds([0.5, 0.55, 0.6, 0.52])}
B = {"gemm": speeds([0.4, 0.7, 0.5, 0.55, 0.45]), "mha": speeds([0.2, 0.3, 0.25, 0.35])}


def test_the_better_model_is_found_whichever_way_round_it_is_asked() -> None:
    forth, back = compare(A, B, best), compare(B, A, best)
    assert forth is not None
    assert back is not None
    assert (forth.better, back.better) == (Better.A, Better.B)
    assert forth.difference == pytest.approx(-back.difference)
    assert forth.difference == pytest.approx(((0.946 - 0.52) + (0.5425 - 0.275)) / 2)
    assert (forth.problems, forth.trajectories) == (2, (9, 9))


def test_equal_models_are_undecided() -> None:
    same = compare(A, A, best)
    assert same is not None
    assert (same.better, same.difference, same.p_value) == (Better.UNDECIDED, 0.0, 1.0)


def test_few_trajectories_are_undecided_however_far_apart() -> None:
    # Of 2 against 2 there are six deals; none can be rarer than one in six.
    found = compare({"p": speeds([1.0, 1.0])}, {"p": speeds([0.0, 0.0])}, best)
    assert found is not None
    assert found.better is Better.UNDECIDED


def test_problems_that_only_one_has_do_not_count() -> None:
    assert compare(A, {"another": B["gemm"]}, best) is None
    found = compare(A, {"gemm": B["gemm"], "another": B["mha"]}, best)
    assert found is not None
    assert found.problems == 1


def test_the_p_value_of_one_problem_is_that_of_scipy() -> None:
    left, right = [0.9, 0.5, 0.7, 0.6, 0.8, 0.75], [0.6, 0.4, 0.55, 0.62, 0.5, 0.45]
    ours = compare({"p": speeds(left)}, {"p": speeds(right)}, best)
    exact = stats.permutation_test(
        (left, right), lambda x, y, axis: np.mean(x, axis=axis) - np.mean(y, axis=axis), vectorized=True
    )
    assert ours is not None
    assert ours.p_value == pytest.approx(exact.pvalue, abs=0.01)


def test_models_that_are_alike_are_told_apart_no_more_often_than_claimed() -> None:
    random = np.random.default_rng(3)
    simulations, decided = 200, 0
    for _ in range(simulations):
        a, b = ({name: speeds(list(random.random(8))) for name in ("x", "y")} for _ in range(2))
        found = compare(a, b, best, draws=300)
        assert found is not None
        decided += found.better is not Better.UNDECIDED
    # 5 % and three standard errors of the simulation.
    assert decided / simulations < 0.05 + 3 * (0.05 * 0.95 / simulations) ** 0.5


def test_a_difference_that_is_there_is_found_most_of_the_time() -> None:
    random = np.random.default_rng(4)
    found = [
        compare({"x": speeds(list(random.random(12) + 1.0))}, {"x": speeds(list(random.random(12)))}, best)
        for _ in range(20)
    ]
    assert sum(each is not None and each.better is Better.A for each in found) >= 19
