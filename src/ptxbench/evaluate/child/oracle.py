"""Results of at least float32 accumulation, and what the contract allows a candidate to miss; judges nothing.

Attention is computed in float64, a few heads and rows at a time, so that temporaries stay within `BUDGET_BYTES`. The
formulas are those of the suite's NumPy oracles.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from ptxbench.evaluate.child.draws import Recipe
from ptxbench.evaluate.child.tensors import TORCH, Tensors
from ptxbench.evaluate.expectations import expectations as held_against
from ptxbench.evaluate.outputs import Expectation
from ptxbench.schema.problem import DType, Problem, Workload

BUDGET_BYTES = 3 * 2**30
"""Of temporaries in float64; one full score matrix of the paper's workload would need 26 GB."""


def exact_arithmetic() -> None:
    """Keep float32 products in float32: no TF32, whatever the environment says."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False


def oracle(problem: Problem, inputs: Tensors) -> Tensors:
    """The exact results by output name: float32 for 16-bit outputs, float64 for float32 outputs.

    gemm: C = A B^T in float32. Attention, in float64: S = Q K^T / sqrt(D), P = softmax(S), O = P V,
    LSE = ln(sum(exp(S))). Backward, with O and LSE as given: P = exp(S - LSE), delta = rowsum(dO * O),
    dS = P * (dO V^T - delta) / sqrt(D), dQ = dS K, dK = dS^T Q, dV = P^T dO.
    """
    if problem.op == "gemm":
        return {"C": _gemm(inputs["A"], inputs["B"])}
    results = forward(inputs, problem.causal) if problem.op == "attention_forward" else _backward(problem, inputs)
    kept = {spec.name: torch.float64 if spec.dtype is DType.FLOAT32 else torch.float32 for spec in problem.outputs}
    return {name: results[name].to(dtype) for name, dtype in kept.items()}


def _gemm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    result = torch.empty(a.shape[0], b.shape[0], dtype=torch.float32, device=a.device)
    transposed = b.float().t()
    rows = max(128, BUDGET_BYTES // (4 * a.shape[1]))
    for start in range(0, a.shape[0], rows):
        torch.matmul(a[start : start + rows].float(), transposed, out=result[start : start + rows])
    return result


def forward(inputs: Tensors, causal: bool) -> Tensors:
    """O (float32) and LSE (float64) of attention from Q, K, V [B, H, S, D]."""
    q, k, v = (inputs[name].flatten(0, 1) for name in "QKV")
    out = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    lse = torch.empty(q.shape[:2], dtype=torch.float64, device=q.device)
    for heads, rows, keys in _tiles(q.shape[0], q.shape[1], causal, buffers=2):
        weights = _scores(q[heads, rows], k[heads, keys], rows if causal else None)
        largest = weights.amax(dim=2, keepdim=True)
        weights.sub_(largest).exp_()
        total = weights.sum(dim=2, keepdim=True)
        out[heads, rows] = torch.bmm(weights, v[heads, keys].double()).div_(total).float()
        lse[heads, rows] = (largest + total.log())[:, :, 0]
    shape = inputs["Q"].shape
    return {"O": out.view(shape), "LSE": lse.view(shape[:3])}


def _backward(problem: Problem, inputs: Tensors) -> Tensors:
    given = {name: tensor.flatten(0, 1) for name, tensor in inputs.items()}
    q, k, v, do = (given[name] for name in ("Q", "K", "V", "dO"))
    lse = given["LSE"].double().unsqueeze(2)
    grads = {name: torch.zeros(q.shape, dtype=torch.float32, device=q.device) for name in ("dQ", "dK", "dV")}
    scale = 1 / math.sqrt(q.shape[2])
    for heads, group in _grouped(_tiles(q.shape[0], q.shape[1], problem.causal, buffers=3)):
        dk, dv = (torch.zeros_like(k[heads], dtype=torch.float64) for _ in range(2))
        for rows, keys in group:
            weights = _scores(q[heads, rows], k[heads, keys], rows if problem.causal else None)
            weights.sub_(lse[heads, rows]).exp_()
            slope = do[heads, rows].double()
            dv[:, keys].baddbmm_(weights.transpose(1, 2), slope)
            delta = (slope * given["O"][heads, rows].double()).sum(dim=2, keepdim=True)
            weights.mul_(torch.bmm(slope, v[heads, keys].double().transpose(1, 2)).sub_(delta)).mul_(scale)
            grads["dQ"][heads, rows] = torch.bmm(weights, k[heads, keys].double()).float()
            dk[:, keys].baddbmm_(weights.transpose(1, 2), q[heads, rows].double())
        grads["dK"][heads], grads["dV"][heads] = dk.float(), dv.float()
    return {name: grad.view(inputs["Q"].shape) for name, grad in grads.items()}


def _scores(q: torch.Tensor, k: torch.Tensor, causal_rows: slice | None) -> torch.Tensor:
    """Scaled scores in float64 [heads, rows, keys]; with `causal_rows`, keys after each query are at -infinity."""
    scores = torch.bmm(q.double(), k.double().transpose(1, 2)).mul_(1 / math.sqrt(q.shape[2]))
    if causal_rows is not None:
        queries = torch.arange(causal_rows.start, causal_rows.stop, device=q.device).unsqueeze(1)
        scores.masked_fill_(torch.arange(k.shape[1], device=q.device) > queries, -math.inf)
    return scores


def _tiles(heads: int, length: int, causal: bool, buffers: int) -> Iterator[tuple[slice, slice, slice]]:
    """Heads, query rows and the keys they see, such that `buffers` float64 score tiles fit the budget."""
    rows = min(length, max(1, BUDGET_BYTES // (8 * buffers * length)))
    if causal:
        rows = min(rows, max(256, -(-length // 4)))  # what no row of a tile sees is not computed
    together = max(1, BUDGET_BYTES // (8 * buffers * length * rows))
    for head in range(0, heads, together):
        for row in range(0, length, rows):
            stop = min(row + rows, length)
            yield slice(head, min(head + together, heads)), slice(row, stop), slice(0, stop if causal else length)


def _grouped(
    tiles: Iterator[tuple[slice, slice, slice]],
) -> Iterator[tuple[slice, list[tuple[slice, slice]]]]:
    """The tiles of each group of heads together."""
    heads: slice | None = None
    group: list[tuple[slice, slice]] = []
    for head, rows, keys in tiles:
        if heads is not None and head != heads:
            yield heads, group
            group = []
        heads = head
        group.append((rows, keys))
    if heads is not None:
        yield heads, group


def expectations(
    problem: Problem, workload: Workload, recipe: Recipe, exact: Tensors, library: Tensors | None
) -> dict[str, Expectation]:
    """What each output of one draw is held against, by both rules; see `evaluate.expectations`."""
    return held_against(TORCH, problem, workload, recipe, exact, library)
