"""Block-scaled tcgen05.mma: scale factors from shared memory to tensor memory, and the product they make."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.blackwell.products import COMMIT, WAIT, Case, descriptor, instruction, k_major
from tests.emulator.blackwell.test_products import CODES, NARROW, accumulator, padded, raw, small
from tests.emulator.blackwell.tiny import SCHEDULES, refused_by_ptxas, text

N = 64
AFTER = COMMIT + WAIT.format(phase=0) + "tcgen05.fence::after_thread_sync;\n"
SCALES = {"ue8m0": ml_dtypes.float8_e8m0fnu, "ue4m3": ml_dtypes.float8_e4m3fn}


def block(factors: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Factor bytes [rows, 4] as tcgen05.cp.32x128b wants them: 512 bytes for every 128 rows."""
    rows = -(-factors.shape[0] // 128) * 128
    whole = np.zeros((rows, 4), np.uint8)
    whole[: factors.shape[0]] = factors
    image = np.zeros(rows * 4, np.uint8)
    for row in range(rows):
        start = row // 128 * 512 + row % 32 * 16 + row % 128 // 32 * 4
        image[start : start + 4] = whole[row]
    return image


def dense(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Rows of e2m1, two to a byte."""
    codes = values.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    return (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)


def kernel(
    kind: str, words: str, types: tuple[str, str], scale: tuple[str, int, tuple[int, int]]
) -> tuple[Case, NDArray[np.float32]]:
    """One product: kind, modifiers, element types; type, block and first bytes of the scale factors."""
    name, size, first = scale
    k = 32 if kind == "mxf8f6f4" else 64
    count = k // size
    random = np.random.default_rng(11)
    a, b = small(128, k, types[0], 1), small(N, k, types[1], 2)
    case = Case(N)
    for register, values, type_ in ((1, a, types[0]), (2, b, types[1])):
        rows = padded(values, type_) if type_ in NARROW else raw(values, type_)
        rows = rows if kind == "mxf8f6f4" else dense(values)
        case.operand(register, k_major(rows, 0), 0)
    factors = []
    for side, (count_of, start) in enumerate(((128, first[0]), (N, first[1]))):
        numbers = 2.0 ** random.integers(-2, 3, (count_of, count))
        stored = np.full((count_of, 4), 0x7F if name == "ue8m0" else 0x7E, np.uint8)
        stored[:, start : start + count] = numbers.astype(SCALES[name]).view(np.uint8)
        case.setup += descriptor(3 + side, case.place(block(stored)), 16, 128, 0)
        case.setup += f"add.u32 %r{205 + side}, %r300, {N + 8 * side};\n"
        case.body += f"@%p19 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r{205 + side}], %d{3 + side};\n"
        factors.append(np.repeat(numbers.astype(np.float32), size, axis=1))
    more = (0 if name == "ue4m3" else 1) << 23 | first[0] << 29 | first[1] << 4
    codes = (CODES[types[0]], CODES[types[1]]) if kind == "mxf8f6f4" else (1, 1)
    flags = instruction(128, N, codes, 0, more=more)
    case.body += "setp.ne.u32 %p12, 0, 0;\n"
    case.body += f"@%p19 tcgen05.mma.cta_group::1.kind::{kind}.block_scale{words} [%r300], %d1, %d2, {flags:#x}, "
    case.body += "[%r205], [%r206], %p12;\n"
    return case, (a * factors[0]) @ (b * factors[1]).T


FORMS = [
    ("mxf8f6f4", ".scale_vec::1X", ("e4m3", "e4m3"), ("ue8m0", 32, (0, 0))),
    ("mxf8f6f4", "", ("e5m2", "e2m1"), ("ue8m0", 32, (3, 1))),
    ("mxf8f6f4", ".block32", ("e3m2", "e2m3"), ("ue8m0", 32, (2, 2))),
    ("mxf4", ".scale_vec::2X", ("e2m1", "e2m1"), ("ue8m0", 32, (0, 2))),
    ("mxf4nvf4", ".scale_vec::2X", ("e2m1", "e2m1"), ("ue8m0", 32, (2, 0))),
    ("mxf4nvf4", ".scale_vec::4X", ("e2m1", "e2m1"), ("ue4m3", 16, (0, 0))),
    ("mxf4nvf4", ".block16", ("e2m1", "e2m1"), ("ue8m0", 16, (0, 0))),
]


@pytest.mark.parametrize("given", FORMS, ids=str)
def test_every_block_has_its_factor(
    given: tuple[str, str, tuple[str, str], tuple[str, int, tuple[int, int]]],
) -> None:
    case, expected = kernel(*given)
    ran = case.run(wait=AFTER, allocate=128)
    assert not ran.result.error
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(128, N) == expected).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_copy_and_the_product_behind_it_are_in_order(schedule: str) -> None:
    case, expected = kernel(*FORMS[0])
    ran = case.run(schedule, wait=AFTER, allocate=128)
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(128, N) == expected).all()


def test_a_copy_over_factors_in_use_is_in_an_order_that_no_document_promises() -> None:
    case, _ = kernel(*FORMS[0])
    case.body += "@%p19 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r205], %d3;\n"
    ran = case.run(wait=AFTER, allocate=128)
    assert [(each.rule, each.severity) for each in ran.result.findings] == [("tcgen05-order", "warning")]


def test_factors_in_one_quarter_alone_are_found() -> None:
    case, _ = kernel(*FORMS[0])
    zeros = "{" + ", ".join(["%r200"] * 4) + "}"
    case.setup += f"mov.u32 %r200, 0;\nadd.u32 %r207, %r301, {N};\n"
    case.setup += f"tcgen05.st.sync.aligned.32x32b.x4.b32 [%r207], {zeros};\ntcgen05.wait::st.sync.aligned;\n"
    case.setup += "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n"
    first = case.body.splitlines()[0]
    case.body = case.body.replace(first, "")
    case.setup += "mov.u32 %r200, 0x7f7f7f7f;\n@!%p18 bra quarter;\n"
    case.setup += f"tcgen05.st.sync.aligned.32x32b.x4.b32 [%r207], {zeros};\ntcgen05.wait::st.sync.aligned;\nquarter:\n"
    ran = case.run(wait=AFTER, allocate=128)
    assert "tensor-scale-copies" in ran.rules


def test_ptxas_takes_these_programs(tmp_path: Path) -> None:
    for form in FORMS:
        case, _ = kernel(*form)
        whole = text(case.text(wait=AFTER, allocate=128), per_thread=N, shared=case.image.size)
        assert not refused_by_ptxas(whole, tmp_path)
