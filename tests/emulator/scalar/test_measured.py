"""Runs with the device's bits: `lg2.approx` as an H200 printed it, products and sums fused as its assembler does."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from tests.emulator.core.small import Ran, run

from ptxbench.emulator.codegen.scalar.logarithm import logarithm

MEASURED = """
00000001 c3150000  007fffff c2fc0000  00800000 c2fbffff  7f7fffff 42ffffff  40000000 3f800000  40200000 3fa934f1
3e800000 bfffffff  40400000 3fcae00d  43008000 40e02e13  43800000 41000000  47600000 417ceaed  3b000000 c10fffff
3ac00000 c116a3fe  37800000 c17fffff  33400000 c1c351ff  477fe000 417ffd1d  4effffff 41f7ffff  5f800000 42800000
00010000 c3050000  3dcccccd c0549a77  40490fdb 3fd3643a  501502f9 4204e08b  2edbe6ff c204e08b  42b00000 40ceb3aa
3db0eef7 c0621ba3  323255bf c1d42c24  3d9833e2 c0700275  63766237 428fe3b7  41f06a77 409d19b5  56b810a1 423a18a6
0c07757f c2cdd629  4bca1600 41c54546  3eeca344 bf8e85f8  06732ab3 c2e425fd  7843ad37 42e33983  142c4293 c2ad24a2
"""
"""Operands and what an H200 answered, as float32 bits."""
PAIRS = np.array([int(each, 16) for each in MEASURED.split()], np.uint32).reshape(-1, 2)


def test_logarithms_from_two_up_and_below_a_half_are_the_devices_bits() -> None:
    assert (logarithm(PAIRS[:, 0], ftz=False) == PAIRS[:, 1]).all()
    normal = PAIRS[PAIRS[:, 0] >= 0x00800000]
    assert (logarithm(normal[:, 0], ftz=True) == normal[:, 1]).all()


def test_logarithms_of_what_is_no_ordinary_number() -> None:
    inputs = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0xBF800000, 0x7FC00000, 0x3F800000], np.uint32)
    assert [hex(each) for each in logarithm(inputs, ftz=False)] == [
        *("0xff800000", "0xff800000", "0x7f800000", "0x7fffffff", "0x7fffffff", "0x7fffffff", "0x0"),
    ]
    assert logarithm(np.array([1], np.uint32), ftz=True)[0] == 0xFF800000


A, B, C = 1.0 + 2.0**-12, 1.0 + 2.0**-13, -1.0
FUSED = float(np.float32(A * B + C))
APART = float(np.float32(np.float32(A * B) + np.float32(C)))
HEAD = "ld.param.u64 %d1, [given]; ld.global.f32 %f1, [%d1]; ld.global.f32 %f2, [%d1+4]; ld.global.f32 %f3, [%d1+8];\n"
OUT = "st.global.f32 [%d51], %f5;\n"


def result(body: str, numerics: str = "exact") -> tuple[float, Ran]:
    """What is stored, and the launch."""
    ran = run(HEAD + body + OUT, threads=1, given=struct.pack("<3f", A, B, C), numerics=numerics)
    assert ran.result.ok, ran.result
    return float(ran.words.view(np.float32)[0]), ran


def test_the_two_ways_to_round_differ() -> None:
    assert FUSED != APART


@pytest.mark.parametrize(
    ("body", "sign"),
    [
        ("mul.f32 %f4, %f1, %f2; add.f32 %f5, %f4, %f3;", 1),
        ("mul.f32 %f4, %f1, %f2; add.f32 %f5, %f3, %f4;", 1),
        ("mul.f32 %f4, %f1, %f2; neg.f32 %f6, %f3; sub.f32 %f5, %f4, %f6;", 1),
        ("mul.f32 %f4, %f1, %f2; neg.f32 %f6, %f3; sub.f32 %f5, %f6, %f4;", -1),
    ],
)
def test_a_product_with_one_use_is_fused_into_its_sum(body: str, sign: int) -> None:
    fused, ran = result(body)
    assert fused == sign * FUSED
    assert result(body, "fast")[0] == sign * APART
    executed = [each.name for each in ran.result.counts]
    assert "mul.f32" in executed, "what is counted stays the text's"


@pytest.mark.parametrize(
    "body",
    [
        "mul.rn.f32 %f4, %f1, %f2; add.f32 %f5, %f4, %f3;",
        "mul.f32 %f4, %f1, %f2; add.rn.f32 %f5, %f4, %f3;",
        "mul.f32 %f4, %f1, %f2; add.f32 %f5, %f4, %f3; st.global.f32 [%d51], %f4;",
        "mul.f32 %f4, %f1, %f2; add.f32 %f1, %f1, %f1; add.f32 %f5, %f4, %f3;",
        "mul.f32 %f4, %f1, %f2; bar.sync 0; add.f32 %f5, %f4, %f3;",
    ],
)
def test_a_product_stays_one_where_the_assembler_must_or_may_keep_it(body: str) -> None:
    """Rounding modifiers, a second use, operands that are gone, another block."""
    assert result(body)[0] == APART
