"""The zero-column mask of tcgen05.mma.ws: the examples of the PTX ISA, and products with it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.blackwell.products import Case, instruction, k_major, mma, mn_major
from tests.emulator.blackwell.test_products import accumulator, raw, small

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.tensor.zero_columns import decode

N = 64


def mask(starts: tuple[int, ...], firsts: tuple[int, ...], spans: tuple[int, int] = (2, 3), shift: int = 0) -> int:
    """A descriptor that makes a mask; spans are those of skip and use."""
    value = 1 << 39 | spans[0] << 40 | spans[1] << 48 | shift << 56
    for part, (start, first) in enumerate(zip(starts, firsts, strict=True)):
        value |= start << 8 * part | first << (32 + part)
    return value


EXAMPLES = [
    (128, (0,), (0,), ["0000111" * 10]),
    (64, (0, 0), (1, 0), ["1110000" * 5, "0000111" * 5]),
    (
        32,
        (0, 1, 2, 1),
        (1, 1, 0, 0),
        ["1110000" * 3, "110000" + "1110000" * 3, "00111" + "0000111" * 3, "000111" + "0000111" * 3],
    ),
]
"""M, start counts, first spans, and the masks of the parts, lowest column first: Examples 2 to 4 of the ISA."""


def bits(m: int, parts: list[str]) -> list[bool]:
    """The whole mask of N columns."""
    return [bit == "1" for part in parts for bit in part[: N * m // 128]]


@pytest.mark.parametrize(("m", "starts", "firsts", "parts"), EXAMPLES)
def test_the_examples_of_the_isa(m: int, starts: tuple[int, ...], firsts: tuple[int, ...], parts: list[str]) -> None:
    assert decode(mask(starts, firsts), m, N).zero.tolist() == bits(m, parts)


def test_a_mask_that_is_not_to_be_made_has_no_zeros() -> None:
    assert not decode(mask((0,), (0,)) & ~(1 << 39), 128, N).zero.any()


@pytest.mark.parametrize(("m", "starts", "firsts", "parts"), EXAMPLES)
@pytest.mark.parametrize(("shift", "major"), [(0, 0), (8, 0), (2, 1)])
def test_columns_are_zero_or_come_from_further_on(
    m: int, starts: tuple[int, ...], firsts: tuple[int, ...], parts: list[str], shift: int, major: int
) -> None:
    a, b = small(m, 16, "bf16", 1), small(N + 64, 16, "bf16", 2)
    case = Case(N * m // 128)
    case.operand(1, k_major(raw(a, "bf16"), 2), 2)
    case.operand(2, mn_major(raw(b.T, "bf16"), 2) if major else k_major(raw(b, "bf16"), 2), 2)
    case.setup += f"mov.u64 %d5, {mask(starts, firsts, shift=shift):#x};\n"
    flags = instruction(m, N, major=(0, major), more=2 << 30)
    case.body = mma("f16", flags, more=", %d5").replace("tcgen05.mma.", "tcgen05.mma.ws.")
    ran = case.run()
    assert not ran.result.error
    assert not ran.result.findings
    used = b[shift : shift + N].copy()
    used[bits(m, parts)] = 0
    got = accumulator(ran.words).reshape(128 // m, m, -1)
    assert (np.concatenate(list(got), axis=1) == a @ used.T).all()


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1 << 37, "bits 36-38: reserved, they must be 0"),
        (1 << 62, "bits 62-63: reserved, they must be 0"),
        (33 << 56, "bits 56-61: the column shift is 32 at most for M = 128"),
    ],
)
def test_what_a_mask_must_not_hold_is_named(value: int, said: str) -> None:
    with pytest.raises(Fault, match=said):
        decode(value, 128, N)


def test_a_start_beyond_its_span_is_a_doubt() -> None:
    assert "skips 9 columns of a span of 4" in decode(mask((9,), (0,)), 128, N).doubtful
