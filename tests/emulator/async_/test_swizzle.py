"""The atom variants of the 128-byte swizzle (sm_100a), line by line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxbench.emulator.async_.boxes import tile_box
from ptxbench.emulator.async_.copies import load_box
from ptxbench.emulator.async_.tensormap import Swizzle, TensorMap, Type

MATRIX = np.random.default_rng(0).integers(0, 256, 512 * 64, dtype=np.uint8)
LINES = TensorMap(Type.U16, 0, (256, 64), (512,), (64, 8), (1, 1))


@pytest.mark.parametrize(
    ("swizzle", "line", "expected"),
    [
        # chunks of 16 bytes of line `line`, in the order in which they lie: pairs, pairs with halves, halves move
        (Swizzle.B128_ATOM32, 0, [0, 1, 2, 3, 4, 5, 6, 7]),
        (Swizzle.B128_ATOM32, 1, [2, 3, 0, 1, 6, 7, 4, 5]),
        (Swizzle.B128_ATOM32, 3, [6, 7, 4, 5, 2, 3, 0, 1]),
        (Swizzle.B128_ATOM32, 5, [2, 3, 0, 1, 6, 7, 4, 5]),
        (Swizzle.B128_ATOM64, 1, [4, 5, 6, 7, 0, 1, 2, 3]),
        (Swizzle.B128_ATOM64, 2, [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_atoms_of_the_128_byte_swizzle_move_whole(swizzle: Swizzle, line: int, expected: list[int]) -> None:
    shared = np.zeros(8192, dtype=np.uint8)
    memory = MATRIX.copy()
    memory.reshape(64, 32, 16)[:, :8] = np.arange(8)[None, :, None]
    load_box(tile_box(replace(LINES, swizzle=swizzle), (0, 0)), lambda at, size: memory[at : at + size], shared, 1024)
    assert shared[1024 + 128 * line :][:128:16].tolist() == expected


def test_the_flipped_atom_exchanges_halves_of_16_bytes_on_odd_lines() -> None:
    plain, flipped = np.zeros(8192, dtype=np.uint8), np.zeros(8192, dtype=np.uint8)
    for swizzle, shared in ((Swizzle.B128_ATOM32, plain), (Swizzle.B128_ATOM32_FLIP8, flipped)):
        load_box(
            tile_box(replace(LINES, swizzle=swizzle), (0, 0)), lambda at, size: MATRIX[at : at + size], shared, 1024
        )
    lines, halves = plain[1024:2048].reshape(8, 8, 2, 8), flipped[1024:2048].reshape(8, 8, 2, 8)
    np.testing.assert_array_equal(halves[::2], lines[::2])
    np.testing.assert_array_equal(halves[1::2], lines[1::2, :, ::-1])
