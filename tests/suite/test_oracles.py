"""The oracles against independent formulas: direct products and softmax, and finite differences for gradients."""

import math
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from ptxbench.errors import ProblemError
from ptxbench.schema import Problem, Role, Workload
from ptxbench.suite import draw_inputs, load_problem, make_attention, make_gemm, oracle, pick_workload, write_problem
from ptxbench.suite import oracles as oracles_module
from ptxbench.suite.make import ProblemParts
from ptxbench.suite.oracles import Array

Make = Callable[[ProblemParts], Problem]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def build(parts: ProblemParts) -> Problem:
        return load_problem(write_problem(parts, tmp_path / parts.definition.name))

    return build


def sized(**axes: int) -> Workload:
    return Workload(uuid="00000000-test", axes=axes, role=Role.SMALL)


def direct_attention(q: Array, k: Array, v: Array, causal: bool) -> tuple[Array, Array]:
    """Softmax by its definition, whole arrays at once."""
    scores = np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], dtype=bool)), scores, -np.inf)
    weights = np.exp(scores)
    total = weights.sum(axis=-1, keepdims=True)
    return np.einsum("bhij,bhjd->bhid", weights / total, v), np.log(total[..., 0])


def test_gemm_is_the_product_with_the_transposed_second_matrix(make: Make) -> None:
    problem = make(make_gemm(24, 16))
    inputs = draw_inputs(problem, sized(M=1030), seed=1)
    expected = np.einsum("mk,nk->mn", *(inputs[name].astype(np.float64) for name in "AB"))
    np.testing.assert_allclose(oracle(problem, sized(M=1030), inputs)["C"], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [7, 513])
def test_attention_is_softmax_by_its_definition(make: Make, causal: bool, length: int) -> None:
    problem = make(make_attention(16, causal))
    workload = sized(B=2, H=3, S=length)
    inputs = draw_inputs(problem, workload, seed=2)
    result = oracle(problem, workload, inputs)
    q, k, v = (inputs[name].astype(np.float64) for name in "QKV")
    output, lse = direct_attention(q, k, v, causal)
    np.testing.assert_allclose(result["O"], output, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(result["LSE"], lse, rtol=1e-12, atol=1e-12)


def test_attention_with_large_scores_stays_finite(make: Make) -> None:
    problem = make(make_attention(8))
    workload = sized(B=1, H=1, S=16)
    inputs = {name: array * 100 for name, array in draw_inputs(problem, workload, seed=3).items()}
    assert all(np.isfinite(array).all() for array in oracle(problem, workload, inputs).values())


@pytest.mark.parametrize("causal", [False, True])
def test_attention_gradients_agree_with_finite_differences(
    make: Make, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracles_module, "_ROWS", 4)  # several blocks of rows, the last one short
    problem = make(make_attention(8, causal, backward=True))
    workload = sized(B=1, H=2, S=11)
    generator = np.random.default_rng(4)
    tensors = {name: generator.standard_normal((1, 2, 11, 8)) for name in ("Q", "K", "V", "dO")}
    output, lse = direct_attention(tensors["Q"], tensors["K"], tensors["V"], causal)
    result = oracle(problem, workload, {**tensors, "O": output, "LSE": lse})

    def loss(name: str, at: tuple[int, ...], step: float) -> float:
        moved = {key: array.copy() for key, array in tensors.items()}
        moved[name][at] += step
        return float((direct_attention(moved["Q"], moved["K"], moved["V"], causal)[0] * tensors["dO"]).sum())

    step = 1e-5
    for name in "QKV":
        for at in np.ndindex(tensors[name].shape):
            slope = (loss(name, at, step) - loss(name, at, -step)) / (2 * step)
            assert result[f"d{name}"][at] == pytest.approx(slope, rel=1e-6, abs=1e-8)


def test_a_block_of_rows_smaller_than_the_problem_changes_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make(make_attention(8, causal=True))
    workload = sized(B=1, H=1, S=50)
    inputs = draw_inputs(problem, workload, seed=5)
    whole = oracle(problem, workload, inputs)
    monkeypatch.setattr(oracles_module, "_ROWS", 16)
    blocked = oracle(problem, workload, inputs)
    for name, array in whole.items():
        np.testing.assert_allclose(blocked[name], array, rtol=1e-13, atol=1e-14)


def test_equal_seeds_draw_equal_inputs_and_other_seeds_others(make: Make) -> None:
    problem = make(make_gemm(32, 32))
    workload = sized(M=8)
    one, same, other = (draw_inputs(problem, workload, seed) for seed in (1, 1, 2))
    assert all((one[name] == same[name]).all() for name in one)
    assert not (one["A"] == other["A"]).all()
    assert not (one["A"] == one["B"][:8]).all()


def test_the_spiky_recipe_adds_rare_outliers_of_variance_100(make: Make) -> None:
    problem = make(make_gemm(1024, 1024))
    normal, spiky = (
        draw_inputs(problem, sized(M=8), 6, recipe)["B"].astype(np.float64) for recipe in ("normal", "spiky")
    )
    assert normal.var() == pytest.approx(1.0, rel=0.01)
    changed = spiky != normal
    assert changed.mean() == pytest.approx(0.001, rel=0.15)
    assert spiky[changed].var() == pytest.approx(101.0, rel=0.15)


def test_inputs_of_the_gradients_hold_the_forward_results_in_their_dtypes(make: Make) -> None:
    backward, forward = make(make_attention(16, True, backward=True)), make(make_attention(16, True))
    workload = sized(B=1, H=2, S=40)
    inputs = draw_inputs(backward, workload, seed=7)
    assert list(inputs) == ["Q", "K", "V", "O", "dO", "LSE"]
    assert inputs["O"].dtype == ml_dtypes.bfloat16
    assert inputs["LSE"].dtype == np.float32
    exact = oracle(forward, workload, {name: inputs[name] for name in "QKV"})
    assert (inputs["O"] == exact["O"].astype(ml_dtypes.bfloat16)).all()
    assert (inputs["LSE"] == exact["LSE"].astype(np.float32)).all()


@pytest.mark.parametrize("name", ["gemm_n7168_k5120", "mha_with_lse_d128_causal", "mha_bwd_d128"])
def test_the_small_workloads_of_the_suite_have_oracles_of_the_right_shapes(name: str) -> None:
    problem = load_problem(name)
    workload = pick_workload(problem, "small")
    result = oracle(problem, workload, draw_inputs(problem, workload, seed=8))
    assert {n: a.shape for n, a in result.items()} == {t.name: problem.shape(t, workload) for t in problem.outputs}
    assert {array.dtype for array in result.values()} == {np.dtype(np.float64)}


def test_inputs_of_the_wrong_shape_are_refused(make: Make) -> None:
    problem = make(make_gemm(32, 32))
    inputs = draw_inputs(problem, sized(M=8), 1)
    with pytest.raises(ProblemError, match=r"Input A has shape \(8, 32\). The workload needs \(9, 32\)"):
        oracle(problem, sized(M=9), inputs)
    with pytest.raises(ProblemError, match="Input B has shape None"):
        oracle(problem, sized(M=8), {"A": inputs["A"]})


def test_unknown_recipes_and_negative_seeds_are_refused(make: Make) -> None:
    problem = make(make_gemm(32, 32))
    with pytest.raises(ProblemError, match="no input recipe 'flat'"):
        draw_inputs(problem, sized(M=8), 1, "flat")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match="The seed is -1"):
        draw_inputs(problem, sized(M=8), -1)
