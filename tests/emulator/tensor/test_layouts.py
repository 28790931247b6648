"""Swizzles, descriptors and fragments against formulas written per element (PTX ISA tables, H200 address maps)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.emulator.errors import Trap
from ptxbench.emulator.tensor.descriptor import Descriptor, chunk_addresses
from ptxbench.emulator.tensor.fragments import Fragment, mma_a, mma_b, mma_c, wgmma_a, wgmma_d
from ptxbench.emulator.tensor.swizzle import SPANS, swizzle


@given(st.lists(st.integers(0, 2**18 - 1), min_size=1), st.sampled_from(SPANS))
def test_a_swizzle_is_its_own_inverse_and_stays_in_its_period(addresses: list[int], span: int) -> None:
    given_ = np.array(addresses, np.int64)
    moved = swizzle(given_, span)
    assert (swizzle(moved, span) == given_).all()
    assert (moved // 128 == given_ // 128).all()
    assert (moved % 16 == given_ % 16).all()


@pytest.mark.parametrize(("span", "period"), [(32, 256), (64, 512), (128, 1024)])
def test_chunks_are_exchanged_by_the_row_number(span: int, period: int) -> None:
    for row in range(period // 128):
        lines = np.arange(8) * 16 + row * 128
        expected = [row * 128 + 16 * (chunk ^ row % (span // 16)) for chunk in range(8)]
        assert swizzle(lines.astype(np.int64), span).tolist() == expected


def _expected_address(descriptor: Descriptor, mn: int, k: int, size: int, mn_major: bool) -> int:
    """Byte address of one element, by the sheet of canonical layouts, one division at a time."""
    t, span = 16 // size, descriptor.span
    if not mn_major:
        step = descriptor.leading * (k // t) if span == 0 else 16 * (k // t)
        offset = mn % 8 * (span or 16) + mn // 8 * descriptor.stride + k % t * size + step
    elif span == 0:
        offset = mn % t * size + mn // t * descriptor.stride + k % 8 * 16 + k // 8 * descriptor.leading
    else:
        wide = span // size
        offset = mn % wide * size + mn // wide * descriptor.leading + k % 8 * span + k // 8 * descriptor.stride
    linear = descriptor.start + offset
    line = ((linear >> 7) - descriptor.base_offset) & {0: 0, 32: 1, 64: 3, 128: 7}[span]
    return linear ^ line << 4


fields = st.integers(0, 127).map(lambda each: each * 16)


@settings(deadline=None)
@given(fields, fields, fields, st.integers(0, 7), st.sampled_from(SPANS), st.sampled_from([1, 2, 4]), st.booleans())
def test_a_descriptor_names_the_bytes_of_every_element(  # noqa: PLR0917
    start: int, leading: int, stride: int, base_offset: int, span: int, size: int, mn_major: bool
) -> None:
    mn_major = mn_major and size == 2
    descriptor = Descriptor(1024 + start, leading, stride, base_offset, span)
    rows, depth = 64, 32 // size
    chunks = chunk_addresses(descriptor, rows, 32, size, mn_major)
    per = 16 // size
    for mn in range(0, rows, 7):
        for k in range(depth):
            chunk, inside = (chunks[k, mn // per], mn % per) if mn_major else (chunks[mn, k // per], k % per)
            assert chunk + inside * size == _expected_address(descriptor, mn, k, size, mn_major)


def test_descriptor_fields_lie_where_the_isa_puts_them() -> None:
    value = 0x0400 >> 4 | 0x10 >> 4 << 16 | 0x400 >> 4 << 32 | 5 << 49 | 1 << 62
    descriptor = Descriptor.decode(value)
    assert descriptor == Descriptor(0x400, 16, 0x400, 5, 128)
    assert descriptor.encode() == value
    assert [Descriptor.decode(code << 62).span for code in range(4)] == [0, 128, 64, 32]


@pytest.mark.parametrize("bit", [14, 15, 30, 31, 46, 47, 48, 52, 61])
def test_a_reserved_bit_is_an_illegal_address(bit: int) -> None:
    with pytest.raises(Trap, match="cudaErrorIllegalAddress at PTX line 9"):
        Descriptor.decode(1 << bit, 9)


@settings(deadline=None)
@given(st.integers(0, 63), st.integers(0, 127), st.sampled_from([8, 16, 64, 256]))
def test_accumulators_lie_as_the_isa_draws_them(register: int, lane: int, n: int) -> None:
    register %= n // 2
    wide, half = wgmma_d(n, 32), wgmma_d(n, 16)
    warp, low = divmod(lane, 32)
    row = 16 * warp + low // 4 + 8 * (register >> 1 & 1)
    column = 2 * (low % 4) + (register & 1) + 8 * (register >> 2)
    assert (wide.rows[register, lane, 0], wide.columns[register, lane, 0]) == (row, column)
    assert (half.rows[register // 2, lane, register % 2], half.columns[register // 2, lane, register % 2]) == (
        row,
        column,
    )


@pytest.mark.parametrize(("width", "step"), [(32, 1), (16, 2), (8, 4), (1, 32)])
def test_a_fragments_of_wgmma_lie_as_the_isa_draws_them(width: int, step: int) -> None:
    fragment = wgmma_a(width)
    for q in range(4):
        for lane in (0, 1, 5, 31, 32, 127):
            warp, low = divmod(lane, 32)
            for place in range(step):
                assert fragment.rows[q, lane, place] == 16 * warp + low // 4 + 8 * (q & 1)
                assert fragment.columns[q, lane, place] == step * (low % 4) + place + 4 * step * (q >> 1)


MMA_A = {
    # (rows, k, width): register -> (row above g, first column), with t = lane % 4 and p elements to a register
    (16, 8, 16): lambda t: [(0, 2 * t), (8, 2 * t)],
    (16, 16, 16): lambda t: [(0, 2 * t), (8, 2 * t), (0, 2 * t + 8), (8, 2 * t + 8)],
    (16, 4, 32): lambda t: [(0, t), (8, t)],
    (16, 8, 32): lambda t: [(0, t), (8, t), (0, t + 4), (8, t + 4)],
    (16, 16, 8): lambda t: [(0, 4 * t), (8, 4 * t)],
    (16, 32, 8): lambda t: [(0, 4 * t), (8, 4 * t), (0, 16 + 4 * t), (8, 16 + 4 * t)],
    (16, 64, 4): lambda t: [(0, 8 * t), (8, 8 * t), (0, 32 + 8 * t), (8, 32 + 8 * t)],
    (16, 256, 1): lambda t: [(0, 32 * t), (8, 32 * t), (0, 128 + 32 * t), (8, 128 + 32 * t)],
    (8, 16, 8): lambda t: [(0, 4 * t)],
    (8, 4, 64): lambda t: [(0, t)],
    (16, 8, 64): lambda t: [(0, t), (8, t), (0, t + 4), (8, t + 4)],
}


@pytest.mark.parametrize("key", MMA_A, ids=str)
def test_operands_of_mma_lie_as_the_isa_draws_them(key: tuple[int, int, int]) -> None:
    rows, depth, width = key
    a, b = mma_a(rows, depth, width), mma_b(depth, width)
    for lane in range(32):
        g, t = divmod(lane, 4)
        above = MMA_A[key](t)
        assert [(a.rows[r, lane, 0] - g, a.columns[r, lane, 0]) for r in range(a.registers)] == above
        firsts = [column for row, column in above if row == 0]
        assert [(b.rows[r, lane, 0], b.columns[r, lane, 0]) for r in range(b.registers)] == [(g, k) for k in firsts]


def test_accumulators_of_mma_lie_as_the_isa_draws_them() -> None:
    c, half = mma_c(16, 32), mma_c(16, 16)
    for lane in range(32):
        g, t = divmod(lane, 4)
        places = [(g, 2 * t), (g, 2 * t + 1), (g + 8, 2 * t), (g + 8, 2 * t + 1)]
        assert [(c.rows[r, lane, 0], c.columns[r, lane, 0]) for r in range(4)] == places
        assert [(half.rows[r, lane, i], half.columns[r, lane, i]) for r in range(2) for i in range(2)] == places


@pytest.mark.parametrize("fragment", [wgmma_d(24, 32), wgmma_d(8, 16), wgmma_a(8), mma_a(16, 16, 16), mma_c(16, 64)])
def test_spreading_a_matrix_is_the_inverse_of_gathering_it(fragment: Fragment) -> None:
    rng = np.random.default_rng(1)
    groups = 3
    registers = rng.integers(0, 2**fragment.container, (fragment.registers, groups * fragment.lanes), np.uint64)
    registers = registers.astype(f"uint{fragment.container}")
    matrices = fragment.matrix(registers)
    assert matrices.shape == (groups, *fragment.shape)
    assert (fragment.spread(matrices) == registers).all()
