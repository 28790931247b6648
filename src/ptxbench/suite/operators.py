"""The operators of the suite: arguments, required work and reference text; no sizes, no workloads, no arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Op = Literal["gemm", "attention_forward", "attention_backward"]

Tensors = dict[str, tuple[tuple[str, ...], str]]
"""Argument name -> (axis names, dtype), in call order."""

_HEAD = ("B", "H", "S", "D")
_ROWS = ("B", "H", "S")

GEMM_REFERENCE = """\
import torch


def run(A, B):
    return torch.matmul(A, B.T)
"""

FORWARD_REFERENCE = """\
import math

import torch


def run(Q, K, V):
    batch, heads, length, dim = Q.shape
    O = torch.empty_like(Q)
    LSE = torch.empty(batch, heads, length, dtype=torch.float32, device=Q.device)
    for b in range(batch):
        for h in range(heads):
            scores = Q[b, h].float() @ K[b, h].float().T / math.sqrt(dim)
{mask}            LSE[b, h] = torch.logsumexp(scores, dim=-1)
            O[b, h] = (torch.softmax(scores, dim=-1) @ V[b, h].float()).to(O.dtype)
    return O, LSE
"""

FORWARD_MASK = """\
            hidden = torch.ones_like(scores, dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hidden, float("-inf"))
"""

BACKWARD_REFERENCE = """\
import math

import torch


def run(Q, K, V, O, dO, LSE):
    batch, heads, length, dim = Q.shape
    scale = 1.0 / math.sqrt(dim)
    dQ, dK, dV = torch.empty_like(Q), torch.empty_like(K), torch.empty_like(V)
    for b in range(batch):
        for h in range(heads):
            q, k, v, o, do = (tensor[b, h].float() for tensor in (Q, K, V, O, dO))
            P = {probabilities}
            delta = (do * o).sum(dim=-1, keepdim=True)
            dS = P * (do @ v.T - delta) * scale
            dQ[b, h] = (dS @ k).to(dQ.dtype)
            dK[b, h] = (dS.T @ q).to(dK.dtype)
            dV[b, h] = (P.T @ do).to(dV.dtype)
    return dQ, dK, dV


def make_inputs(axes_and_scalars, device):
    shape = [axes_and_scalars[axis] for axis in ("B", "H", "S", "D")]
    Q, K, V, dO = (torch.randn(shape, dtype=torch.bfloat16, device=device) for _ in range(4))
    O = torch.empty_like(Q)
    LSE = torch.empty(shape[:3], dtype=torch.float32, device=device)
    for b in range(shape[0]):
        for h in range(shape[1]):
            scores = Q[b, h].float() @ K[b, h].float().T / math.sqrt(shape[3])
{mask}            LSE[b, h] = torch.logsumexp(scores, dim=-1)
            O[b, h] = (torch.softmax(scores, dim=-1) @ V[b, h].float()).to(O.dtype)
    return {{"Q": Q, "K": K, "V": V, "O": O, "dO": dO, "LSE": LSE}}
"""

PROBABILITIES = "torch.exp(q @ k.T * scale - LSE[b, h].unsqueeze(-1))"


@dataclass(frozen=True)
class Operator:
    """What is the same for all sizes of one operator.

    Attributes:
        op: Which operator.
        constant_axes: Axes that a problem fixes.
        variable_axes: Axes that each workload gives a value.
        inputs: Tensors read, in call order.
        outputs: Tensors written, in call order after the inputs.
        flops: Required floating-point operations over the axis names, two per multiply-add.
        bytes: Each input read once, each output written once.
        reference: PyTorch source with a top-level `run`.
        make_inputs: The function of the reference that makes dependent inputs; empty where all are drawn.
    """

    op: Op
    constant_axes: tuple[str, ...]
    variable_axes: tuple[str, ...]
    inputs: Tensors
    outputs: Tensors
    flops: str
    bytes: str
    reference: str
    make_inputs: str = ""


def operator(op: Op, causal: bool = False) -> Operator:
    """The operator of that name; `causal` hides the keys after each query and halves the required work."""
    if op == "gemm":
        return _gemm()
    return _attention_forward(causal) if op == "attention_forward" else _attention_backward(causal)


def _gemm() -> Operator:
    return Operator(
        op="gemm",
        constant_axes=("N", "K"),
        variable_axes=("M",),
        inputs={"A": (("M", "K"), "bfloat16"), "B": (("N", "K"), "bfloat16")},
        outputs={"C": (("M", "N"), "bfloat16")},
        flops="2 * M * N * K",
        bytes="2 * (M * K + N * K + M * N)",
        reference=GEMM_REFERENCE,
    )


def _attention_forward(causal: bool) -> Operator:
    return Operator(
        op="attention_forward",
        constant_axes=("D",),
        variable_axes=("B", "H", "S"),
        inputs={name: (_HEAD, "bfloat16") for name in ("Q", "K", "V")},
        outputs={"O": (_HEAD, "bfloat16"), "LSE": (_ROWS, "float32")},
        # Two products of 2 S S D each; the causal half counts S S / 2 pairs of query and key.
        flops=f"{2 if causal else 4} * B * H * S * S * D",
        bytes="2 * 4 * B * H * S * D + 4 * B * H * S",
        reference=FORWARD_REFERENCE.format(mask=FORWARD_MASK if causal else ""),
    )


def _attention_backward(causal: bool) -> Operator:
    probabilities = f"{PROBABILITIES}.tril()" if causal else PROBABILITIES
    mask = FORWARD_MASK if causal else ""
    return Operator(
        op="attention_backward",
        constant_axes=("D",),
        variable_axes=("B", "H", "S"),
        inputs={name: (_HEAD, "bfloat16") for name in ("Q", "K", "V", "O", "dO")} | {"LSE": (_ROWS, "float32")},
        outputs={name: (_HEAD, "bfloat16") for name in ("dQ", "dK", "dV")},
        # Five products of 2 S S D each: scores again, dP, dV, dQ, dK.
        flops=f"{5 if causal else 10} * B * H * S * S * D",
        bytes="2 * 8 * B * H * S * D + 4 * B * H * S",
        reference=BACKWARD_REFERENCE.format(probabilities=probabilities, mask=mask),
        make_inputs="make_inputs",
    )
