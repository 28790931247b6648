"""Operations of tensor-core instructions follow from their mnemonics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.sass.work import flops_of, shape_of


@pytest.mark.parametrize(
    ("opcode", "shape"),
    [
        ("HGMMA.64x256x16.F32.BF16", (64, 256, 16)),
        ("HGMMA.SP.64x8x32.F32.BF16", (64, 8, 32)),
        ("QGMMA.64x8x32.F32.E4M3.E4M3", (64, 8, 32)),
        ("IGMMA.64x8x32.S8.S8", (64, 8, 32)),
        ("BGMMA.64x8x256.AND.POPC", (64, 8, 256)),
        ("HMMA.16816.F32.BF16", (16, 8, 16)),
        ("HMMA.1688.F32.TF32", (16, 8, 8)),
        ("HMMA.SP.16832.F32.BF16", (16, 8, 32)),
        ("IMMA.16832.S8.S8", (16, 8, 32)),
        ("IMMA.8816.S8.S8", (8, 8, 16)),
        ("BMMA.168256.AND.POPC", (16, 8, 256)),
        ("DMMA.8x8x4", (8, 8, 4)),
        ("DMMA.16x8x16", (16, 8, 16)),
        ("HMMA.884.F32", (8, 8, 4)),
        ("UTCHMMA.2CTA", None),
        ("UTMALDG.2D", None),
        ("LDSM.16.M88.4", None),
    ],
)
def test_the_mnemonic_of_a_real_instruction_tells_its_shape(opcode: str, shape: tuple[int, int, int] | None) -> None:
    assert shape_of(opcode) == shape


def test_a_warpgroup_instruction_is_counted_once_for_its_four_warps() -> None:
    # wgmma m64n16k16, 400 executions by 4 warps of 32 threads each; the hardware's counter says 13107200.
    assert flops_of("HGMMA.64x16x16.F32.BF16", 400 * 128) == 400 * 2 * 64 * 16 * 16 == 13107200


def test_a_warp_instruction_is_counted_once_per_warp() -> None:
    assert flops_of("HMMA.16816.F32.BF16", 10 * 32) == 10 * 2 * 16 * 8 * 16


def test_a_sparse_instruction_multiplies_half_of_its_k() -> None:
    assert flops_of("HGMMA.SP.64x8x32.F32.BF16", 128) == flops_of("HGMMA.64x8x16.F32.BF16", 128)


def test_an_instruction_without_a_shape_has_no_known_work() -> None:
    assert flops_of("UTCHMMA", 32) is None


@given(
    n=st.integers(1, 32).map(lambda i: 8 * i),
    k=st.sampled_from([8, 16, 32, 256]),
    types=st.sampled_from(["F32.BF16", "F16", "F32.TF32", "F32.E4M3.E5M2", "S8.U8"]),
    groups=st.integers(0, 10**9),
)
def test_every_warpgroup_shape_gives_two_operations_per_multiply_add(n: int, k: int, types: str, groups: int) -> None:
    assert flops_of(f"HGMMA.64x{n}x{k}.{types}", 128 * groups) == 2.0 * 64 * n * k * groups
