"""Kernels put together from the code of the patterns compute what they are for, and the emulator finds nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tests.knowledge.blocks import built
from tests.knowledge.kernels import BF16, Array, Left, run, whole

from ptxbench.schema.values import Target

ROOT = 1 / np.sqrt(128)


def f32(array: Array) -> Array:
    return array.astype(np.float32)


def zeros(*shape: int) -> Array:
    return np.zeros(shape, np.float32)


def normal(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(BF16)


def clean(left: Left) -> bool:
    return all(not each.result.error and not each.result.findings for each in left.ran)


def softmax(scores: Array) -> tuple[Array, Array]:
    """Probabilities and the logarithm of their sums."""
    weights: Any = np.exp(scores - scores.max(1, keepdims=True))
    sums = weights.sum(1, keepdims=True)
    return weights / sums, (np.log(sums) + scores.max(1, keepdims=True))[:, 0]


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_the_hopper_gemms_are_right(schedule: str) -> None:
    a, b = whole(1, 200, 384), whole(2, 256, 384)
    tensors = {"a": a, "b": b, "c": np.full((100, 256), 7, BF16), "wide": zeros(256, 256)}
    left = run(built(Target.SM_90A), "run_products", tensors, schedule)
    assert clean(left), left.ran
    product = f32(a) @ f32(b).T
    assert (left.after["c"] == product[:100].astype(BF16)).all()
    assert (left.after["wide"][:200] == product).all()
    assert (left.after["wide"][200:] == 0).all()


def test_every_tile_is_drawn_once_and_shared_tiles_are_summed() -> None:
    left = run(built(Target.SM_90A), "run_schedules", {"counts": zeros(30), "sums": zeros(3, 32)})
    assert clean(left), left.ran
    assert (left.after["counts"] == 2).all()  # by three CTAs, then by two
    wanted = np.arange(12).reshape(3, 4).sum(1)[:, None] + 4 * np.arange(32)
    assert (left.after["sums"] == wanted).all()


def test_hopper_attention_is_right_forward_and_backward() -> None:
    q, k, v, grad = normal(1, 128, 128), normal(2, 200, 128), normal(3, 200, 128), normal(4, 64, 128)
    p, lse = softmax(f32(q[:64]) @ f32(k[:64]).T * ROOT)
    delta = (f32(grad) * (p @ f32(v[:64]))).sum(1)
    tensors = {
        **{"q": q, "k": k, "v": v, "grad": grad},
        "numbers": np.stack([-lse * np.log2(np.e), -delta * ROOT]).astype(np.float32),
        **{"out": zeros(64, 128), "lse": zeros(192), "diagonal": zeros(128, 128)},
        **{"dk": zeros(64, 128), "dv": zeros(64, 128), "dq": zeros(64, 128)},
    }
    left = run(built(Target.SM_90A), "run_attention", tensors)
    assert clean(left), left.ran
    full, full_lse = softmax(f32(q[:64]) @ f32(k).T * ROOT)
    assert np.allclose(left.after["out"], full @ f32(v), atol=2e-2)
    assert np.allclose(left.after["lse"][:64], full_lse, atol=1e-3)
    scores = np.where(np.tri(128, dtype=bool), f32(q) @ f32(k[:128]).T * ROOT, -np.inf)
    causal, causal_lse = softmax(scores)
    assert np.allclose(left.after["diagonal"], causal @ f32(v[:128]), atol=2e-2)
    assert np.allclose(left.after["lse"][64:], causal_lse, atol=1e-3)
    ds = p * (f32(grad) @ f32(v[:64]).T - delta[:, None]) * ROOT
    assert np.allclose(left.after["dv"], p.T @ f32(grad), atol=2e-2)
    assert np.allclose(left.after["dk"], ds.T @ f32(q[:64]), atol=2e-2)
    assert np.allclose(left.after["dq"], ds @ f32(k[:64]), atol=2e-2)


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_the_blackwell_gemms_are_right_and_a_pair_exchanges_halves(schedule: str) -> None:
    a, b = whole(1, 200, 384), whole(2, 512, 384)
    tensors = {"a": a, "b": b, "c": np.full((100, 512), 7, BF16), "wide": zeros(256, 256), "halves": zeros(2, 32)}
    left = run(built(Target.SM_100A), "run_products", tensors, schedule)
    assert clean(left), left.ran
    product = f32(a) @ f32(b).T
    assert (left.after["c"] == product[:100].astype(BF16)).all()
    assert (left.after["wide"][:200] == product[:, :256]).all()
    assert (left.after["wide"][200:] == 0).all()
    assert (left.after["halves"] == [32 * np.arange(32) + 1000, 32 * np.arange(32)]).all()


def test_blackwell_attention_is_right_forward_and_backward() -> None:
    q, k, v, grad = normal(1, 128, 128), normal(2, 256, 128), normal(3, 256, 128), normal(4, 128, 128)
    p, lse = softmax(f32(q) @ f32(k[:128]).T * ROOT)
    delta = (f32(grad) * (p @ f32(v[:128]))).sum(1)
    tensors = {
        **{"q": q, "k": k, "v": v, "grad": grad},
        "numbers": np.stack([-lse * np.log2(np.e), -delta * ROOT]).astype(np.float32),
        **{"out": zeros(128, 128), "lse": zeros(128), "first": zeros(128, 128), "sums": zeros(128)},
        **{"dk": zeros(128, 128), "dv": zeros(128, 128), "dq": zeros(128, 128)},
    }
    left = run(built(Target.SM_100A), "run_attention", tensors)
    assert clean(left), left.ran
    full, full_lse = softmax(f32(q) @ f32(k).T * ROOT)
    assert np.allclose(left.after["out"], full @ f32(v), atol=2e-2)
    assert np.allclose(left.after["lse"], full_lse, atol=1e-3)
    weights = np.exp2(f32(q) @ f32(k[:128]).T * ROOT * np.log2(np.e) - 4)
    assert np.allclose(left.after["sums"], weights.sum(1), rtol=1e-3)
    assert np.allclose(left.after["first"], weights @ f32(v[:128]), rtol=1e-2, atol=2e-2 * weights.sum(1).max())
    ds = p * (f32(grad) @ f32(v[:128]).T - delta[:, None]) * ROOT
    assert np.allclose(left.after["dv"], p.T @ f32(grad), atol=2e-2)
    assert np.allclose(left.after["dk"], ds.T @ f32(q), atol=2e-2)
    assert np.allclose(left.after["dq"], ds @ f32(k[:128]), atol=2e-2)
