"""ldmatrix, stmatrix and movmatrix against their definition, lane by lane."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor.matrix_moves import MatrixMove, movmatrix


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_lane_receives_two_neighbours_of_each_matrix(count: int, transposed: bool) -> None:
    move = MatrixMove(count, transposed)
    warps = 2
    elements = np.random.default_rng(0).integers(0, 2**16, (warps, count, 8, 8), np.uint16)
    registers = move.load(elements.view(np.uint8).reshape(warps, 8 * count, 16))
    for lane in range(32 * warps):
        warp, low = divmod(lane, 32)
        for m in range(count):
            for half in range(2):
                row, column = low // 4, 2 * (low % 4) + half
                expected = elements[warp, m, column, row] if transposed else elements[warp, m, row, column]
                assert registers[m, lane] >> 16 * half & 0xFFFF == expected


@pytest.mark.parametrize("transposed", [False, True])
def test_storing_is_the_inverse_of_loading(transposed: bool) -> None:
    move = MatrixMove(4, transposed)
    rows = np.random.default_rng(1).integers(0, 256, (3, 32, 16), np.uint8)
    assert (move.store(list(move.load(rows))) == rows).all()


def test_lanes_beyond_the_matrices_give_no_address() -> None:
    addresses = np.arange(64, dtype=np.uint32) * 16
    assert MatrixMove(2, False).row_addresses(addresses).tolist() == [
        [16 * lane for lane in range(16)],
        [16 * lane for lane in range(32, 48)],
    ]


def test_movmatrix_transposes_each_warps_matrix() -> None:
    elements = np.random.default_rng(2).integers(0, 2**16, (2, 8, 8), np.uint16)
    register = elements.view(np.uint32).reshape(-1)
    assert (movmatrix(register).view(np.uint16).reshape(2, 8, 8) == elements.swapaxes(1, 2)).all()


def test_forms_are_read_from_the_instruction(instruction: Callable[..., Instruction]) -> None:
    assert MatrixMove.parse(
        instruction("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1,%r2,%r3,%r4}, [%r5];")
    ) == MatrixMove(4, True)
    assert MatrixMove.parse(instruction("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r5], {%r1};")) == MatrixMove(
        1, False
    )
    eight = "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1,%r2}, [%r5];"
    assert MatrixMove.parse(instruction(eight, "sm_100a")) == MatrixMove(1, True, 16, True)
    packed = "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64 {%r1}, [%r5];"
    assert MatrixMove.parse(instruction(packed, "sm_100a")) == MatrixMove(1, False, 8, True, 4)
