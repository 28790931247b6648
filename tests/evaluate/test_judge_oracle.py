# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""Torch's draws, oracles and bounds against the suite's NumPy ones, on the CPU."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxbench.schema.problem import Problem, Role, Workload
from ptxbench.suite import library_errors, load_problem, problem_names
from ptxbench.suite import oracle as numpy_oracle

torch = pytest.importorskip("torch", reason="the judge needs torch, which is an extra")

from ptxbench.evaluate.child import oracle
from ptxbench.evaluate.child.draws import CHECKED, Draw, draw_all
from ptxbench.evaluate.child.library_table import measure_library_errors
from ptxbench.evaluate.child.preparing import Baselines
from ptxbench.evaluate.child.tensors import TORCH
from ptxbench.evaluate.outputs import check_output


def workload(problem: Problem) -> Workload:
    axes = {"M": 20} if problem.op == "gemm" else {"B": 2, "H": 3, "S": 300}
    return Workload(uuid="small", axes=axes, role=Role.SMALL)


def draws(problem: Problem, seed: int = 5) -> list[Draw]:
    source = torch.Generator().manual_seed(seed)
    return draw_all(problem, workload(problem), CHECKED, source, lambda given: oracle.forward(given, problem.causal))


def to_numpy(tensor: Any) -> Any:
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def rounded(problem: Problem, exact: dict[str, Any]) -> dict[str, Any]:
    return {spec.name: exact[spec.name].to(getattr(torch, spec.dtype.value)) for spec in problem.outputs}


@pytest.mark.parametrize("budget", [oracle.BUDGET_BYTES, 8 * 3 * 300 * 128])
@pytest.mark.parametrize("name", problem_names())
def test_the_oracle_agrees_with_numpy_in_one_tile_and_in_many(
    name: str, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(oracle, "BUDGET_BYTES", budget)
    problem = load_problem(name)
    draw = draws(problem)[0]
    exact = oracle.oracle(problem, draw.inputs)
    expected = numpy_oracle(problem, draw.workload, {key: to_numpy(value) for key, value in draw.inputs.items()})
    for key, value in exact.items():
        error = np.abs(value.numpy() - expected[key]).max() / np.abs(expected[key]).max()
        assert error < 1e-6, key
    assert "LSE" not in exact or exact["LSE"].dtype is torch.float64


@pytest.mark.parametrize("name", ["mha_with_lse_d128_causal", "mha_bwd_d128"])
def test_a_correctly_rounded_result_passes_and_one_with_a_wrong_head_does_not(name: str) -> None:
    problem = load_problem(name)
    draw = draws(problem)[0]
    exact = oracle.oracle(problem, draw.inputs)
    library = rounded(problem, exact)
    for key, held in oracle.expectations(problem, draw.workload, draw.recipe, exact, library).items():
        assert check_output(TORCH, key, library[key], held).contract
        wrong = library[key].clone()
        wrong[1, 2] += 1
        check = check_output(TORCH, key, wrong, held)
        assert (check.published, check.contract, check.pattern) == (False, False, "heads 5")
        assert check.worst is not None
        assert check.worst.index[:2] == (1, 2)


def test_draws_follow_from_the_seed_and_hold_three_normal_and_a_spiky_one_in_secret_order() -> None:
    problem = load_problem("mha_bwd_d128")
    first, again, other = draws(problem), draws(problem), draws(problem, 6)
    assert sorted(draw.recipe for draw in first) == ["normal", "normal", "normal", "spiky"]
    assert all(torch.equal(a.inputs[key], b.inputs[key]) for a, b in zip(first, again, strict=True) for key in a.inputs)
    assert not torch.equal(first[0].inputs["Q"], other[0].inputs["Q"])
    assert not torch.equal(first[0].inputs["Q"], first[1].inputs["Q"])
    spiky = next(draw for draw in first if draw.recipe == "spiky")
    assert spiky.inputs["Q"].abs().max() > 15
    assert len({tuple(draw.recipe for draw in draws(problem, seed)) for seed in range(8)}) > 1
    assert list(first[0].inputs) == [spec.name for spec in problem.inputs]


def test_stored_errors_give_the_bounds_where_the_library_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = load_problem("mha_with_lse_d128")
    draw = draws(problem)[0]
    exact = oracle.oracle(problem, draw.inputs)
    monkeypatch.setattr(oracle, "library_error", lambda *place: 0.01 * (1 + place[-1]))
    held = oracle.expectations(problem, draw.workload, draw.recipe, exact, None)["O"]
    assert held.bounds is not None
    assert held.bounds.tolist() == pytest.approx([0.02, 0.04, 0.06] * 6)
    assert check_output(TORCH, "O", 1.005 * exact["O"], held).contract


class Machine:
    facts = type("Facts", (), {"name": "GPU"})

    def generator(self, seed: int) -> Any:
        return torch.Generator().manual_seed(seed)


class Rounding:
    name, version, how, is_reference = "cudnn", "9.20.0", "nothing", True

    def bind(self, problem: Problem, inputs: dict[str, Any]) -> Any:
        return lambda: rounded(problem, oracle.oracle(problem, inputs))


def test_the_table_of_library_errors_has_one_error_per_block_and_output(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = load_problem("mha_with_lse_d128")
    monkeypatch.setattr(Baselines, "find", lambda problem: Baselines(problem, (Rounding(),), ()))
    machine: Any = Machine()
    normal, spiky = measure_library_errors(machine, problem, workload(problem))
    assert (normal.recipe, spiky.recipe, normal.gpu, normal.draws) == ("normal", "spiky", "GPU", 4)
    assert {key: len(errors) for key, errors in normal.errors.items()} == {"O": 3, "LSE": 3}
    assert all(1e-3 < error < 3e-3 for error in normal.errors["O"])
    assert all(error < 1e-7 for error in normal.errors["LSE"])
    table = library_errors.Table(entries=(normal, spiky))
    assert library_errors.lookup(table, problem, workload(problem), "spiky", ("O", 2)) == spiky.errors["O"][2]
