"""Inputs and exact results in NumPy, for the emulator, for small sizes and for machines without torch; not for speed.

Everything is computed in fp64 from the inputs as they are rounded, one batch and head after the other, so memory stays
bounded by a block of rows of the score matrix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ptxbench.errors import ProblemError
from ptxbench.schema.problem import DType, Problem, TensorSpec, Workload

Array = npt.NDArray[Any]
Arrays = dict[str, Array]
Recipe = Literal["normal", "spiky"]

RECIPES: tuple[Recipe, ...] = ("normal", "spiky")

DTYPES: dict[DType, np.dtype[Any]] = {
    DType.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
    DType.FLOAT16: np.dtype(np.float16),
    DType.FLOAT32: np.dtype(np.float32),
}
"""NumPy's types for the element types of problems."""

SPIKE_RATE = 0.001
SPIKE_VARIANCE = 100.0

_ROWS = 512
"""Rows of a product or of the score matrix that are held at once."""


def draw_inputs(problem: Problem, workload: Workload, seed: int, recipe: Recipe = "normal") -> Arrays:
    """Input arrays by name, in their problem's shapes and dtypes (bf16 through ml_dtypes).

    `normal` draws N(0, 1); `spiky` draws N(0, 1) + N(0, 100) * Bernoulli(0.001), where 100 is the variance (the
    outlier recipe of the FlashAttention-3 paper). Equal arguments give equal arrays. The backward operators get O and
    LSE from the forward oracle on the drawn Q, K, V.

    Args:
        problem: The problem.
        workload: Its sizes.
        seed: Not negative; every tensor has its own stream of it.
        recipe: `normal` or `spiky`.

    Raises:
        ProblemError: Unknown recipe or a negative seed.
    """
    if recipe not in RECIPES:
        raise ProblemError(f"There is no input recipe {recipe!r}.", f"Use one of: {', '.join(RECIPES)}.")
    if seed < 0:
        raise ProblemError(f"The seed is {seed}.", "Choose a seed of at least 0.")
    drawn: Arrays = {}
    for index, tensor in enumerate(problem.inputs):
        if problem.op == "attention_backward" and tensor.name in ("O", "LSE"):
            continue
        generator = np.random.default_rng([seed, index])
        drawn[tensor.name] = _draw(generator, problem.shape(tensor, workload), recipe, DTYPES[tensor.dtype])
    if problem.op == "attention_backward":
        exact = _attention_forward(drawn, problem.causal)
        drawn |= {t.name: exact[t.name].astype(DTYPES[t.dtype]) for t in problem.inputs if t.name in exact}
    return {tensor.name: drawn[tensor.name] for tensor in problem.inputs}


def oracle(problem: Problem, workload: Workload, inputs: Mapping[str, Array]) -> Arrays:
    """The exact results of a problem as fp64 arrays by output name, in their problem's shapes.

    gemm: C = A B^T. Attention: S = Q K^T / sqrt(D), P = softmax(S), O = P V, LSE = ln(sum(exp(S))). Backward: see
    `_backward_rows`; it uses O and LSE as given, as kernels do.

    Raises:
        ProblemError: An input is missing or has another shape than the workload says.
    """
    for tensor in problem.inputs:
        _check_shape(tensor, problem.shape(tensor, workload), inputs)
    if problem.op == "gemm":
        return _gemm(inputs)
    compute = _attention_forward if problem.op == "attention_forward" else _attention_backward
    return compute(inputs, problem.causal)


def _check_shape(tensor: TensorSpec, shape: tuple[int, ...], inputs: Mapping[str, Array]) -> None:
    held = inputs[tensor.name].shape if tensor.name in inputs else None
    if held != shape:
        raise ProblemError(f"Input {tensor.name} has shape {held}.", f"The workload needs {shape}.")


def _draw(generator: np.random.Generator, shape: tuple[int, ...], recipe: Recipe, dtype: np.dtype[Any]) -> Array:
    values = generator.standard_normal(shape, dtype=np.float32)
    if recipe == "spiky":
        where = generator.random(shape, dtype=np.float32) < SPIKE_RATE
        spikes = generator.standard_normal(int(where.sum()), dtype=np.float32)
        values[where] += math.sqrt(SPIKE_VARIANCE) * spikes
    return values.astype(dtype)


def _gemm(inputs: Mapping[str, Array]) -> Arrays:
    a, b = inputs["A"], inputs["B"].astype(np.float64)
    result = np.empty((a.shape[0], b.shape[0]))
    for rows in _blocks(a.shape[0]):
        np.matmul(a[rows].astype(np.float64), b.T, out=result[rows])
    return {"C": result}


def _blocks(length: int) -> Iterator[slice]:
    for start in range(0, length, _ROWS):
        yield slice(start, min(start + _ROWS, length))


def _scores(q: Array, k: Array, rows: slice, causal: bool) -> Array:
    """Scaled scores of a block of queries with the keys that it can see, hidden ones at -inf: [rows, keys]."""
    scores: Array = q[rows] @ k.T / math.sqrt(q.shape[1])
    if causal:
        hidden = np.arange(len(k))[None, :] > np.arange(rows.start, rows.stop)[:, None]
        scores[hidden] = -np.inf
    return scores


def _by_head(
    inputs: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]], compute: Callable[[Arrays, Arrays], None]
) -> Arrays:
    """Run `compute(inputs of one head in fp64, its outputs to be filled)` for every batch and head."""
    results = {name: np.zeros(shape) for name, shape in shapes.items()}
    batch, heads = inputs["Q"].shape[:2]
    for at in np.ndindex(batch, heads):
        one = {name: array[at].astype(np.float64) for name, array in inputs.items()}
        compute(one, {name: array[at] for name, array in results.items()})
    return results


def _attention_forward(inputs: Mapping[str, Array], causal: bool) -> Arrays:
    def one_head(given: Arrays, result: Arrays) -> None:
        for rows in _blocks(len(given["Q"])):
            keys = slice(0, rows.stop if causal else len(given["K"]))
            scores = _scores(given["Q"], given["K"][keys], rows, causal)
            largest = scores.max(axis=1, keepdims=True)
            weights = np.exp(scores - largest)
            total = weights.sum(axis=1, keepdims=True)
            result["O"][rows] = weights @ given["V"][keys] / total
            result["LSE"][rows] = (largest + np.log(total))[:, 0]

    shape = inputs["Q"].shape
    return _by_head({name: inputs[name] for name in "QKV"}, {"O": shape, "LSE": shape[:3]}, one_head)


def _attention_backward(inputs: Mapping[str, Array], causal: bool) -> Arrays:
    def one_head(given: Arrays, result: Arrays) -> None:
        for rows in _blocks(len(given["Q"])):
            _backward_rows(given, result, rows, causal)

    return _by_head(inputs, {f"d{name}": inputs[name].shape for name in "QKV"}, one_head)


def _backward_rows(given: Arrays, result: Arrays, rows: slice, causal: bool) -> None:
    """Add one block of queries to the gradients of one head.

    P = exp(S - LSE); delta = rowsum(dO * O); dP = dO V^T; dS = P * (dP - delta) / sqrt(D); dQ = dS K; dK = dS^T Q;
    dV = P^T dO. (The derivative of softmax along a row is P * (dP - sum(P * dP)), and sum(P * dP) = rowsum(dO * O).)
    """
    keys = slice(0, rows.stop if causal else len(given["K"]))
    q, k, v = given["Q"][rows], given["K"][keys], given["V"][keys]
    do = given["dO"][rows]
    weights = np.exp(_scores(given["Q"], k, rows, causal) - given["LSE"][rows, None])
    delta = (do * given["O"][rows]).sum(axis=1, keepdims=True)
    slopes = weights * (do @ v.T - delta) / math.sqrt(q.shape[1])
    result["dQ"][rows] = slopes @ k
    result["dK"][keys] += slopes.T @ q
    result["dV"][keys] += weights.T @ do
