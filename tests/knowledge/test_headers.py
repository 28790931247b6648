"""The packs' headers: they compile, every function of them is called, and the emulator finds nothing wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest
from tests.knowledge.kernels import BF16, KERNELS, Array, built, called, headers

from ptxbench.knowledge.functions import functions_of
from ptxbench.schema.values import Target

SCHEDULES = ("late", "eager")


@pytest.fixture(params=SCHEDULES)
def schedule(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(params=list(Target))
def target(request: pytest.FixtureRequest) -> Target:
    chosen: Target = request.param
    return chosen


def f32(array: Array) -> Array:
    return array.astype(np.float32)


def test_all_headers_compile_together_without_spills(target: Target) -> None:
    made = built(target)
    assert made.library is not None, made.stage.log
    assert all(each.spill_store_bytes == each.spill_load_bytes == 0 for each in made.stage.kernels)


def test_every_function_is_called(target: Target) -> None:
    kernels = (KERNELS / "common.cuh").read_text() + (KERNELS / f"{target.value}.cu").read_text()
    texts = {path.name: path.read_text() for path in headers(target)}
    callers = {name: functions_of(text) for name, text in texts.items()}
    called_by_others = "".join(each.body for functions in callers.values() for each in functions)
    missing = {
        each.name
        for functions in callers.values()
        for each in functions
        if not re.search(rf"\b{each.name}(?:<[^;()]*>)?\(", kernels + called_by_others)
    }
    assert not missing


def test_nothing_is_found(target: Target, schedule: str) -> None:
    for each in called(target, schedule).ran:
        assert not each.result.error, each.result.findings
        assert not each.result.unsupported
        assert not each.result.findings, each.kernel


def test_warps_sums_conversions_and_matrices_are_right(target: Target, schedule: str) -> None:
    left = called(target, schedule)
    x, y = left.before["x"], left.after["y"]
    quads = x.reshape(64, 4)
    assert (y[0] == np.repeat(quads.max(1), 4)).all()
    sums = (quads[:, 0] + quads[:, 1]) + (quads[:, 2] + quads[:, 3])
    assert np.allclose(y[1], np.repeat(sums, 4), rtol=1e-6)
    assert np.allclose(y[2], np.exp2(x), rtol=1e-6)
    assert (y[3] == f32(x.astype(BF16))).all()
    assert (y[4] == f32((-x).astype(BF16))).all()
    leaders = np.where(np.arange(256) % 32 == 0, np.arange(256) // 32 + 1, 0)
    assert (y[5] == leaders).all()
    assert (y[6, :128] == x[128:]).all()
    lanes = np.arange(32)
    assert (y[7, :32] == lanes // 8 * 64 + 7 * 8 + lanes % 8).all()
    assert (y[7, 32:64] == lanes // 8 * 64 + 6 * 8 + lanes % 8).all()
    assert (y[7, 64:96] == 1).all()


def test_copies_bring_what_they_are_asked_for(target: Target, schedule: str) -> None:
    left = called(target, schedule)
    before, after = left.before, left.after
    assert (after["out"][:16] == before["matrix"]).all()
    assert (after["out"][16:] == before["heads"].reshape(32, 128)).all()
    assert (after["sums"] == before["sums"] + before["matrix"]).all()
    assert (after["sent"][:2] == before["runs"]).all()
    assert (after["sent"][2:] == before["runs"][::-1]).all()
    assert (after["added"] == before["runs"] + 1).all()
    words = after["words"].view(np.uint32)
    assert list(words[:12]) == [0, 1, 2, 3, 10, 11, 12, 13, 8, 7, 46, 6]


def test_a_ring_is_filled_and_emptied_in_turn(target: Target, schedule: str) -> None:
    left = called(target, schedule)
    matrix, lanes = f32(left.before["matrix"]), np.arange(32)
    row, column = lanes % 16, lanes // 16 * 8
    assert (left.after["ring"] == 3 * (matrix[row, column] + matrix[row, 64 + column])).all()


def test_products_of_a_warpgroup_are_right(schedule: str) -> None:
    left = called(Target.SM_90A, schedule)
    a, b, ta, tb = (f32(left.before[name]) for name in ("a", "b", "across_a", "across_b"))
    wanted = [a @ b[:64].T, ta.T @ tb[:, :64], a @ tb[:, :64], a @ b[:128].T, a @ b[:128].T, a @ tb, a @ b.T]
    assert (left.after["result"] == np.concatenate([each.ravel() for each in wanted])).all()


def test_products_in_tensor_memory_are_right_for_one_cta_and_for_a_pair(schedule: str) -> None:
    left = called(Target.SM_100A, schedule)
    a, b, ta, tb = (f32(left.before[name]) for name in ("a", "b", "across_a", "across_b"))
    first = a @ b.T
    assert abs(first).max() <= 256  # exact in bf16
    assert (left.after["result"][0] == first[:128]).all()
    assert (left.after["result"][1] == first[:128] @ tb).all()
    assert (left.after["result"][2] == ta.T @ tb[:64]).all()
    assert (left.after["result_pair"][0] == first).all()
    assert (left.after["result_pair"][1] == first @ tb).all()


def test_pairs_of_floats_are_computed_at_once(schedule: str) -> None:
    left = called(Target.SM_100A, schedule)
    x, y = left.before["x"], left.after["floats"]
    assert np.allclose(y[:3], [x * x + 1, x * x, x + 1], rtol=1e-6)
    assert np.allclose(y[3], np.exp2(x), rtol=2.0**-18)


def test_every_cluster_runs_once_whoever_takes_it(schedule: str) -> None:
    assert (called(Target.SM_100A, schedule).after["counts"] == 1).all()
