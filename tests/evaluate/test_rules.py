"""The two rules on honest and dishonest results of GEMM and attention, computed in NumPy; no kernel runs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.evaluate.outputs import Expectation, check_output
from ptxbench.evaluate.rules import (
    NUMPY,
    Layout,
    accumulation_allowance,
    block_errors,
    contract_bounds,
    pieces,
    published_rule,
    rounding_errors,
)

BF16 = ml_dtypes.bfloat16
FP8 = ml_dtypes.float8_e4m3fn


def bf16(array: Any) -> Any:
    return np.asarray(array, dtype=np.float32).astype(BF16)


def draw(rng: np.random.Generator, shape: tuple[int, ...], spiky: bool = False) -> Any:
    values = rng.standard_normal(shape)
    if spiky:
        values += 10 * rng.standard_normal(shape) * (rng.random(shape) < 0.001)
    return bf16(values)


def wide(array: Any) -> Any:
    return array.astype(np.float64)


def expectation(library: Any, oracle: Any) -> Expectation:
    bounds = contract_bounds(
        rounding_errors(NUMPY, oracle, str(library.dtype), 128), block_errors(NUMPY, library, oracle, 128), 2.0
    )
    return Expectation(reference=library, oracle=oracle, bounds=bounds)


class Gemm:
    """C = A B^T of 384x256x1024 with a library that accumulates in float32 and rounds once."""

    def __init__(self, seed: int = 0, spiky: bool = False) -> None:
        rng = np.random.default_rng(seed)
        self.a, self.b = draw(rng, (384, 1024), spiky), draw(rng, (256, 1024), spiky)
        self.oracle = wide(self.a) @ wide(self.b).T
        self.library = bf16(self.a.astype(np.float32) @ self.b.astype(np.float32).T)

    def check(self, got: Any) -> Any:
        return check_output(NUMPY, "C", got, expectation(self.library, self.oracle))

    def summed_in_steps(self, step: int) -> Any:
        total = np.zeros(self.oracle.shape, np.float32)
        for k in range(0, self.a.shape[1], step):
            total += self.a[:, k : k + step].astype(np.float32) @ self.b[:, k : k + step].astype(np.float32).T
        return total


def softmax(scores: Any) -> tuple[Any, Any]:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights, weights.sum(axis=-1, keepdims=True)


class Attention:
    """Causal attention of 2 heads, S 512, D 64, with a library that rounds its probabilities to bf16."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.q, self.k, self.v = (draw(rng, (1, 2, 512, 64)) for _ in range(3))
        self.mask = np.tril(np.ones((512, 512), dtype=bool))
        weights, total = softmax(self.scores(wide(self.q), wide(self.k)))
        self.oracle = weights @ wide(self.v) / total
        self.library = self.with_types(BF16)

    def scores(self, q: Any, k: Any) -> Any:
        return np.where(self.mask, q @ k.swapaxes(-1, -2) / 8.0, -np.inf)

    def with_types(self, kind: Any) -> Any:
        q, k, v = (x.astype(kind).astype(np.float32) for x in (self.q, self.k, self.v))
        weights, total = softmax(self.scores(q, k))
        return bf16(weights.astype(kind).astype(np.float32) @ v / total)

    def blocked(self) -> Any:
        """Another honest design: blocks of 64 keys, a running maximum, probabilities rounded before they are scaled."""
        q, k, v = (x.astype(np.float32) for x in (self.q, self.k, self.v))
        scores = self.scores(q, k)
        largest = np.full((1, 2, 512, 1), -1e30, np.float32)
        total, out = np.zeros_like(largest), np.zeros(v.shape, np.float32)
        for start in range(0, 512, 64):
            part = scores[..., start : start + 64]
            new = np.maximum(largest, part.max(axis=-1, keepdims=True))
            weights, shrink = np.exp(part - new), np.exp(largest - new)
            total = total * shrink + weights.sum(axis=-1, keepdims=True)
            out = out * shrink + bf16(weights).astype(np.float32) @ v[:, :, start : start + 64]
            largest = new
        return bf16(out / total)

    def check(self, got: Any) -> Any:
        return check_output(NUMPY, "O", got, expectation(self.library, self.oracle))


@pytest.mark.parametrize("spiky", [False, True])
def test_the_library_itself_and_other_orders_of_summation_pass_both_rules(spiky: bool) -> None:
    gemm = Gemm(spiky=spiky)
    for got in (gemm.library, bf16(gemm.summed_in_steps(64)), bf16(gemm.summed_in_steps(16))):
        check = gemm.check(got)
        assert check.published
        assert check.contract
        assert check.worst is None


def test_the_attention_library_itself_and_a_blocked_softmax_pass_both_rules() -> None:
    attention = Attention()
    for got in (attention.library, attention.blocked()):
        check = attention.check(got)
        assert (check.published, check.contract) == (True, True)


def test_zeros_fail_both_rules_everywhere() -> None:
    check = Gemm().check(np.zeros((384, 256), BF16))
    assert (check.published, check.contract) == (False, False)
    assert check.pattern == "everywhere"
    assert check.block.rms_relative_error == pytest.approx(1.0)


def test_small_zeros_that_the_published_tolerance_lets_through_fail_the_contract() -> None:
    oracle = 1e-3 * np.random.default_rng(0).standard_normal((256, 64))
    check: Any = check_output(NUMPY, "dQ", np.zeros((256, 64), BF16), expectation(bf16(oracle), oracle))
    assert (check.published, check.contract) == (True, False)


def test_a_skipped_tile_fails_and_is_named() -> None:
    gemm = Gemm()
    got = gemm.library.copy()
    got[128:256, 128:256] = 0
    check = gemm.check(got)
    assert (check.published, check.contract) == (False, False)
    assert check.pattern == "tiles of 128x128 at [128, 128]"
    assert check.block.block == 1


def test_a_skipped_step_along_k_fails() -> None:
    gemm = Gemm()
    check = gemm.check(bf16(wide(gemm.a)[:, :-16] @ wide(gemm.b)[:, :-16].T))
    assert (check.published, check.contract) == (False, False)
    assert check.pattern == "everywhere"


def test_a_gemm_in_fp8_fails_the_contract() -> None:
    gemm = Gemm()
    a, b = (x.astype(FP8).astype(np.float32) for x in (gemm.a, gemm.b))
    check = gemm.check(bf16(a @ b.T))
    assert check.contract is False
    assert check.block.rms_relative_error > 5 * check.block.bound


def test_attention_in_fp8_fails_the_contract_although_the_published_tolerance_is_wide() -> None:
    attention = Attention()
    assert attention.check(attention.with_types(FP8)).contract is False


def test_attention_in_fp8_in_the_last_quarter_of_causal_rows_alone_fails_the_contract() -> None:
    attention = Attention()
    got = attention.library.copy()
    got[:, :, 384:] = attention.with_types(FP8)[:, :, 384:]
    check = attention.check(got)
    assert check.contract is False
    assert check.block.block % 4 == 3


def test_the_worst_element_is_named_with_its_index_in_the_original_shape() -> None:
    attention = Attention()
    got = attention.library.copy()
    got[0, 1, 300, 7] = 99.0
    check = attention.check(got)
    assert check.failing == 1
    assert check.worst.index == (0, 1, 300, 7)
    assert check.worst.got == 99.0
    assert check.worst.expected == pytest.approx(float(attention.library[0, 1, 300, 7]))
    assert check.pattern == "scattered"
    assert check.max_abs == pytest.approx(99.0, abs=5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_element_that_is_not_finite_fails_both_rules(value: float) -> None:
    gemm = Gemm()
    got = gemm.library.copy()
    got[5, 6] = value
    check = gemm.check(got)
    assert (check.published, check.contract, check.failing) == (False, False, 1)
    assert check.worst.index == (5, 6)
    assert check.pattern.startswith("NaN or infinity")
    assert np.isinf(check.block.rms_relative_error)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")  # infinity minus infinity is the point
def test_a_reference_that_is_not_finite_never_lets_anything_pass() -> None:
    expected = np.array([[np.nan, np.inf, 1.0]], np.float32)
    assert published_rule(NUMPY, np.array([[0, np.inf, 1]], np.float32), expected, 1e-2, 1e-2).failing == 2
    with pytest.raises(ValueError, match="oracle"):
        block_errors(NUMPY, np.ones((1, 3), np.float32), expected, 128)


def test_comparing_nothing_is_an_error() -> None:
    empty = np.zeros((0, 8), np.float32)
    with pytest.raises(ValueError, match="nothing to compare"):
        published_rule(NUMPY, empty, empty, 1e-2, 1e-2)
    with pytest.raises(ValueError, match="nothing to compare"):
        block_errors(NUMPY, empty, empty, 128)


def test_results_of_another_shape_are_an_error() -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        published_rule(NUMPY, np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32), 1e-2, 1e-2)


def test_the_published_rule_takes_the_larger_tolerance_and_not_their_sum() -> None:
    expected = np.array([[1.0, 100.0, 0.0]], np.float32)
    inside = expected + np.array([[0.0099, 0.99, 0.0099]], np.float32)
    between = expected + np.array([[0.015, 1.005, 0.0101]], np.float32)
    assert published_rule(NUMPY, inside, expected, 1e-2, 1e-2).failing == 0
    assert published_rule(NUMPY, between, expected, 1e-2, 1e-2).failing == 3


def test_wrong_rows_and_columns_and_heads_are_named() -> None:
    gemm = Gemm()
    rows, columns = gemm.library.copy(), gemm.library.copy()
    rows[300:350] = 0
    columns[:, 8:16] = 0
    assert gemm.check(rows).pattern == "rows 300-349"
    assert gemm.check(columns).pattern == "columns 8-15"
    attention = Attention()
    tail, head = attention.library.copy(), attention.library.copy()
    tail[:, :, 384:] += 1
    head[:, 1] += 1
    assert attention.check(tail).pattern == "rows 384-511 of every head"
    assert attention.check(head).pattern == "heads 1"


def test_a_result_in_which_only_the_contract_fails_names_the_blocks() -> None:
    attention = Attention()
    got = attention.library.copy()
    got[:, 0, 128:256] = bf16(got[:, 0, 128:256].astype(np.float32) * 1.009)
    check = attention.check(got)
    assert check.contract is False
    assert check.published
    assert check.pattern == "rows 128-255 of heads 0"


def test_without_the_librarys_error_the_contract_stays_open() -> None:
    gemm = Gemm()
    check: Any = check_output(
        NUMPY, "C", gemm.library, Expectation(reference=gemm.library, oracle=gemm.oracle, bounds=None)
    )
    assert (check.published, check.contract, check.block) == (True, None, None)


def test_one_number_per_row_is_blocked_along_the_rows_of_its_head() -> None:
    layout = Layout.of((2, 3, 200))
    assert layout.shape == (6, 200, 1)
    assert layout.blocks(128) == 12
    oracle = np.random.default_rng(1).standard_normal((2, 3, 200))
    got = oracle.astype(np.float32)
    got[1, 2, 150] += 1
    errors = block_errors(NUMPY, got, oracle, 128)
    assert errors.argmax() == 11
    assert (errors[:11] < 1e-7).all()


@settings(max_examples=60, deadline=None)
@given(
    heads=st.integers(1, 4),
    rows=st.integers(1, 300),
    columns=st.integers(1, 9),
    limit=st.integers(1, 2000),
    block=st.sampled_from([1, 16, 128]),
)
def test_pieces_cover_every_element_once_and_never_split_a_block(
    heads: int, rows: int, columns: int, limit: int, block: int
) -> None:
    seen = np.zeros((heads, rows, columns), int)
    for piece in pieces(Layout(heads, rows, columns), block, limit):
        piece.of(seen)[...] += 1
        assert piece.row % block == 0
        assert piece.row_stop == rows or piece.row_stop % block == 0
    assert (seen == 1).all()


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 300),
    columns=st.integers(1, 5),
    heads=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
    limit=st.integers(1, 700),
)
def test_both_rules_give_the_same_answer_in_pieces_as_in_one(
    rows: int, columns: int, heads: int, seed: int, limit: int
) -> None:
    rng = np.random.default_rng(seed)
    expected = rng.standard_normal((heads, rows, columns, 1))
    got = expected + rng.choice([0.0, 1.0, np.nan], p=[0.9, 0.08, 0.02], size=expected.shape)
    bad = ~(np.abs(got - expected) <= np.maximum(1e-2, 1e-2 * np.abs(expected)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ptxbench.evaluate.rules.PIECE_ELEMENTS", limit)
        check: Any = check_output(NUMPY, "O", got, Expectation(reference=expected, oracle=expected, bounds=None))
        errors = block_errors(NUMPY, got, expected, 128)
    assert check.failing == int(bad.sum())
    assert np.allclose(errors, block_errors(NUMPY, got, expected, 128), equal_nan=True)
    if bad.any():
        assert bad[check.worst.index]
        assert check.pattern


def test_a_single_wrong_element_among_a_million_breaks_the_contract() -> None:
    rng = np.random.default_rng(5)
    oracle = rng.standard_normal((256, 4096)).astype(np.float32)
    library = bf16(oracle)
    got = library.copy()
    got[37, 1234] = BF16(float(oracle[37, 1234]) + 0.5)
    rounding = rounding_errors(NUMPY, oracle, "bfloat16", 128)
    bounds = contract_bounds(rounding, block_errors(NUMPY, library, oracle, 128), 2.0)
    found = check_output(NUMPY, "C", got, Expectation(library, oracle, bounds))
    assert block_errors(NUMPY, got, oracle, 128).max() < bounds.max() * 2
    assert found.contract is False
    assert found.failing == 1


def test_an_honest_result_that_misses_the_published_rule_in_its_tail_keeps_the_contract() -> None:
    rng = np.random.default_rng(6)
    oracle = rng.standard_normal((256, 256))
    noise = 4e-3
    library = (oracle + noise * rng.standard_normal(oracle.shape)).astype(np.float32)
    got = (oracle + noise * rng.standard_normal(oracle.shape)).astype(np.float32)
    bounds = contract_bounds(
        rounding_errors(NUMPY, oracle, "bfloat16", 128), block_errors(NUMPY, library, oracle, 128), 2.0
    )
    found = check_output(NUMPY, "dK", got, Expectation(library, oracle, bounds))
    assert not found.published
    assert found.contract is True


def test_a_float32_output_may_miss_by_the_rounding_of_its_own_sum_and_no_more() -> None:
    rng = np.random.default_rng(7)
    scores = rng.standard_normal((64, 4096)).astype(np.float32)
    exact = np.log(np.exp(scores.astype(np.float64)).sum(axis=1))[None, :]
    one_by_one = np.zeros(64, np.float32)
    for column in np.exp(scores).T:
        one_by_one += column
    honest = np.log(one_by_one)[None, :]
    coarse = np.log(np.exp(bf16(scores).astype(np.float32)).sum(axis=1, dtype=np.float32))[None, :]
    bounds = accumulation_allowance(rounding_errors(NUMPY, exact, "float32", 128), 4096 + 128)
    assert (block_errors(NUMPY, honest, exact, 128) <= bounds).all()
    assert not (block_errors(NUMPY, coarse, exact, 128) <= bounds).all()
