"""The reference texts compute what the oracles compute, run on NumPy by a stand-in for the torch calls they make."""

import ast
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ptxbench.schema import Problem, Role, Workload
from ptxbench.suite import draw_inputs, load_problem, make_attention, make_gemm, oracle, problem_names, write_problem
from ptxbench.suite.make import ProblemParts

AXES = {"gemm": {"M": 9}}


class Tensor(np.ndarray[Any, Any]):
    """An fp64 array with the tensor methods that the references use; dtypes are ignored, so results are exact."""

    def float(self) -> "Tensor":
        return self

    def to(self, _dtype: object) -> "Tensor":
        return self

    def triu(self, diagonal: int) -> "Tensor":
        return np.triu(self, diagonal).view(Tensor)

    def tril(self) -> "Tensor":
        return np.tril(self).view(Tensor)

    def unsqueeze(self, axis: int) -> "Tensor":
        return np.expand_dims(self, axis).view(Tensor)

    def masked_fill(self, mask: Any, value: Any) -> "Tensor":
        return np.where(mask, value, self).view(Tensor)

    def sum(self, dim: int, keepdim: bool = False) -> Any:  # type: ignore[override]
        return np.asarray(self).sum(axis=dim, keepdims=keepdim).view(Tensor)


def softmax(scores: Tensor, dim: int) -> Tensor:
    weights = np.exp(np.asarray(scores))
    return (weights / weights.sum(axis=dim, keepdims=True)).view(Tensor)


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("torch")
    generator = np.random.default_rng(0)
    functions = {
        "matmul": np.matmul,
        "exp": np.exp,
        "softmax": softmax,
        "logsumexp": lambda scores, dim: np.log(np.exp(np.asarray(scores)).sum(axis=dim)),
        "empty_like": lambda like: np.full(like.shape, np.nan).view(Tensor),
        "ones_like": lambda like, **_: np.ones(like.shape, dtype=bool).view(Tensor),
        "empty": lambda *shape, **_: np.full(np.ravel(shape).tolist(), np.nan).view(Tensor),
        "randn": lambda shape, **_: np.asarray(generator.standard_normal(shape)).view(Tensor),
        **dict.fromkeys(("bool", "float32", "bfloat16")),
    }
    for name, function in functions.items():
        setattr(module, name, function)
    monkeypatch.setitem(sys.modules, "torch", module)


def functions_of(problem: Problem) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(problem.reference, problem.name, "exec"), names)
    return names


@pytest.mark.usefixtures("torch")
@pytest.mark.parametrize(
    "parts",
    [
        make_gemm(24, 16),
        *(make_attention(8, causal, backward) for causal in (False, True) for backward in (False, True)),
    ],
    ids=lambda parts: parts.definition.name,
)
def test_a_reference_computes_what_the_oracle_computes(parts: ProblemParts, tmp_path: Any) -> None:
    problem = load_problem(write_problem(parts, tmp_path / "problem"))
    workload = Workload(uuid="any", axes=AXES.get(problem.op, {"B": 2, "H": 2, "S": 7}), role=Role.SMALL)
    functions = functions_of(problem)
    if problem.input_maker:
        inputs = functions[problem.input_maker](problem.axis_values(workload), "cpu")
    else:
        drawn = draw_inputs(problem, workload, seed=1)
        inputs = {name: array.astype(np.float64).view(Tensor) for name, array in drawn.items()}
    assert list(inputs) == [tensor.name for tensor in problem.inputs]
    found = functions["run"](*inputs.values())
    expected = oracle(problem, workload, {key: np.asarray(array) for key, array in inputs.items()})
    for array, (name, right) in zip(found if isinstance(found, tuple) else (found,), expected.items(), strict=True):
        np.testing.assert_allclose(np.asarray(array), right, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("name", problem_names())
def test_a_reference_takes_the_inputs_in_their_order(name: str) -> None:
    problem = load_problem(name)
    (run,) = (
        node for node in ast.parse(problem.reference).body if isinstance(node, ast.FunctionDef) and node.name == "run"
    )
    assert [argument.arg for argument in run.args.args] == [tensor.name for tensor in problem.inputs]
