"""Sparse products run on the machine: operands from shared memory and registers, metadata from each lane."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.forms.harness import Kernel
from tests.emulator.tensor.test_sparse import Drawn, dense, values_of

from ptxbench.emulator.tensor.sparse import Sparsity

N, K = 16, 32
TILES = ".shared .align 1024 .b8 tiles[8192];"
FILL = """mov.u32 r100, tiles; mad.lo.u32 r101, lane, 16, r100;
ld.global.v4.b32 {r102, r103, r104, r105}, [d9]; st.shared.v4.b32 [r101], {r102, r103, r104, r105};
ld.global.v4.b32 {r102, r103, r104, r105}, [d9+2048]; st.shared.v4.b32 [r101+2048], {r102, r103, r104, r105};
fence.proxy.async; bar.sync 0;
shr.u32 r100, r100, 4; cvt.u64.u32 d10, r100; or.b64 d1, d10, 0x0000001000080000;
add.u64 d10, d10, 128; or.b64 d2, d10, 0x0000002000080000;
wgmma.fence.sync.aligned;
"""
LEAVE = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"


def _cores(matrix: NDArray[np.float16], row_step: int) -> bytes:
    """K-major without swizzle: 8 rows of 16 bytes each together, `row_step` bytes to the next 8 rows, 128 along K."""
    made = np.zeros(2048, np.uint8)
    for row, values in enumerate(matrix):
        for chunk in range(matrix.shape[1] // 8):
            at = row // 8 * row_step + row % 8 * 16 + chunk * 128
            made[at : at + 16] = values[8 * chunk : 8 * chunk + 8].view(np.uint8)
    return made.tobytes()


def _matrix(columns: tuple[NDArray[np.uint64], ...]) -> NDArray[np.float32]:
    """Accumulators [64, N] of float32 (PTX ISA, matrix fragments of wgmma, D)."""
    made = np.zeros((64, N), np.float32)
    for register, column in enumerate(columns):
        for lane, value in enumerate(column.astype(np.uint32).view(np.float32)):
            row = lane // 32 * 16 + lane % 32 // 4 + 8 * (register >> 1 & 1)
            made[row, 2 * (lane % 4) + (register & 1) + 8 * (register >> 2)] = value
    return made


@pytest.mark.parametrize("numerics", ["fast", "exact"])
@pytest.mark.parametrize("selector", [0, 1])
@pytest.mark.parametrize("in_registers", [False, True])
def test_a_sparse_wgmma_is_the_dense_product_with_zeros(selector: int, in_registers: bool, numerics: str) -> None:
    rng = np.random.default_rng(selector)
    drawn = Drawn(Sparsity(16, K, selector, False), 64, 3)
    left = rng.integers(-4, 5, (64, K // 2)).astype(np.float16)
    right = rng.integers(-4, 5, (N, K)).astype(np.float16)
    kernel = Kernel(threads=128, before=TILES, numerics=numerics)
    tiles = kernel.place(_cores(left, 256) + _cores(right, 512))
    sources = {"d9": tiles + 16 * np.arange(128), "r50": drawn.words, **_fragments(left), "p1": 1}
    accumulators = [f"r{i}" for i in range(1, 9)]
    old = dict.fromkeys(accumulators, int(np.float32(100).view(np.uint32)))
    a = "{r60, r61, r62, r63}" if in_registers else "d1"
    flags = "1, 1, 0" if in_registers else "1, 1, 0, 0"
    product = f"wgmma.mma_async.sp.sync.aligned.m64n16k32.f32.f16.f16 {{{', '.join(accumulators)}}}, {a}, d2, "
    ran = kernel.run(f"{FILL}{product}r50, {selector}, p1, {flags};{LEAVE}", {**sources, **old}, accumulators)
    assert ran.result.ok, ran.result
    whole = dense(values_of("f16", left.view(np.uint16)), drawn.positions, K)
    assert (_matrix(ran.columns) == whole @ right.T.astype(np.float64) + 100).all()


def _fragments(left: NDArray[np.float16]) -> dict[str, NDArray[np.uint64]]:
    """Four registers of A [64, 16] in 128 lanes (PTX ISA, matrix fragments of wgmma, A)."""
    made = {}
    for register in range(4):
        words = np.zeros(128, np.uint64)
        for lane in range(128):
            row = lane // 32 * 16 + lane % 32 // 4 + 8 * (register & 1)
            column = 2 * (lane % 4) + 8 * (register >> 1)
            words[lane] = int(left[row, column : column + 2].view(np.uint32)[0])
        made[f"r{60 + register}"] = words
    return made


ONES = 0x3C003C00
MMA = """mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32
{r1, r2, r3, r4}, {r5, r5}, {r5, r5}, {r6, r6, r6, r6}, r7, 0;"""


def test_a_sparse_mma_runs() -> None:
    ran = Kernel(threads=64).run(MMA, {"r5": ONES, "r6": 0, "r7": 0xE4E4E4E4}, ["r1"])
    assert (ran.columns[0] == 0x41000000).all()


def test_undefined_metadata_ends_the_kernel() -> None:
    ran = Kernel().run(MMA, {"r5": ONES, "r6": 0, "r7": 0x44440444}, ["r1"])
    assert ran.result.error.startswith("cudaErrorIllegalInstruction")
    assert "row 0, chunk 3 is undefined" in ran.result.error


def test_metadata_of_warps_that_do_not_take_part_does_not_matter() -> None:
    places = np.where(np.arange(64) < 32, 0x44444444, 0)
    body = f"mov.u32 r1, 0; setp.ge.u32 p1, lane, 32; @p1 bra OUT;\n{MMA}\nOUT:"
    ran = Kernel(threads=64).run(body, {"r5": ONES, "r6": 0, "r7": places}, ["r1"])
    assert ran.result.error == ""
    assert (ran.columns[0][:32] == 0x41000000).all()
