"""tcgen05.cp and tcgen05.shift: which rows of shared memory reach which lanes, and how rows move."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.blackwell.products import COMMIT, WAIT, Case, k_major
from tests.emulator.blackwell.tiny import SCHEDULES, refused_by_ptxas, run, text

from ptxbench.emulator.ptx import isa

SHAPES = {
    "128x256b": (128, 32, lambda row: [row]),
    "128x128b": (128, 16, lambda row: [row]),
    "4x256b": (4, 32, lambda row: [32 * row]),
    "64x128b.warpx2::02_13": (64, 16, lambda row: [row, row + 64]),
    "64x128b.warpx2::01_23": (64, 16, lambda row: [row, row + 32] if row < 32 else [row + 32, row + 64]),
    "32x128b.warpx4": (32, 16, lambda row: [row, row + 32, row + 64, row + 96]),
}
"""Rows, bytes of each, and the lanes that a row reaches."""
ALIGN = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\ntcgen05.fence::after"
PAIRED = (
    "@%p17 tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bar], %h1;\n"
    + WAIT.format(phase=0)
    + "tcgen05.fence::after_thread_sync;\n"
)
AFTER = COMMIT + WAIT.format(phase=0) + "tcgen05.fence::after_thread_sync;\n"


def rows_of(count: int, depth: int) -> NDArray[np.uint8]:
    return np.random.default_rng(9).integers(0, 256, (count, depth)).astype(np.uint8)


def kernel(shape: str, rows: NDArray[np.uint8], more: str = "", code: int = 0) -> Case:
    """Zeros, then one copy."""
    columns = rows.shape[1] // 4
    case = Case(columns)
    case.operand(1, k_major(rows, code), code)
    zeros = "{" + ", ".join(["%r200"] * columns) + "}"
    case.setup += f"mov.u32 %r200, 0;\ntcgen05.st.sync.aligned.32x32b.x{columns}.b32 [%r301], {zeros};\n"
    case.setup += "tcgen05.wait::st.sync.aligned;\ntcgen05.fence::before_thread_sync;\nbar.sync 0;\n"
    case.setup += "tcgen05.fence::after_thread_sync;\n"
    case.body = f"@%p19 tcgen05.cp.cta_group::1.{shape}{more} [%r300], %d1;\n"
    return case


def padded(rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Whole groups of eight rows."""
    made = np.zeros((-(-rows.shape[0] // 8) * 8, rows.shape[1]), np.uint8)
    made[: rows.shape[0]] = rows
    return made


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("shape", SHAPES)
def test_each_row_reaches_its_lanes(shape: str, schedule: str) -> None:
    count, depth, lanes = SHAPES[shape]
    rows = rows_of(count, depth)
    case = kernel(shape, padded(rows))
    ran = case.run(schedule, wait=AFTER)
    assert not ran.result.error
    assert not ran.result.findings
    expected = np.zeros((128, depth // 4), np.uint32)
    for row in range(count):
        for lane in lanes(row):
            expected[lane] = rows[row].view(np.uint32)
    assert (ran.words.reshape(128, -1) == expected).all()


FORMS = [each for each in isa.coverage() if each.name.startswith("tcgen05.cp")]


def packed(codes: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Rows of narrow elements, 16 of them in every 16 bytes."""
    made = np.zeros_like(codes)
    for row in range(codes.shape[0]):
        for first in range(0, codes.shape[1], 16):
            number = sum(int(code) << bits * place for place, code in enumerate(codes[row, first : first + 16]))
            made[row, first : first + 16] = np.frombuffer(number.to_bytes(16, "little"), np.uint8)
    return made


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_form_fills_its_lanes_in_one_cta_or_in_both(form: isa.Form) -> None:
    shape = next(each for each in SHAPES if f".{each}" in form.name)
    count, depth, lanes = SHAPES[shape]
    bits = 4 if "b4x16" in form.name else 6 if "b6x16" in form.name else 0
    wanted = rows_of(count, depth) & np.uint8((1 << bits) - 1 if bits else 255)
    group = 2 if "cta_group::2" in form.name else 1
    case = kernel(shape, padded(packed(wanted, bits) if bits else wanted))
    name = isa.mnemonics(form)[0]
    case.body = f"@%p17 {name} [%r300], %d1;\n"
    body = case.text(wait=PAIRED if group == 2 else AFTER).replace("@%p19 tcgen05", "@%p17 tcgen05")
    if group == 2:
        body = body.replace("cta_group::1", "cta_group::2").replace("bar.sync 0;\ntcgen05.fence::after", ALIGN, 1)
    ran = run(
        "mov.u32 %r355, %cluster_ctarank; setp.eq.and.u32 %p17, %r355, 0, %p19; mov.u16 %h1, 3;\n" + body,
        per_thread=case.columns,
        grid=group,
        cluster=group,
        given=case.image.tobytes(),
        shared=case.image.size,
    )
    assert not ran.result.error
    assert not ran.result.findings
    assert name in {each.name for each in ran.result.counts}
    expected = np.zeros((128, depth // 4), np.uint32)
    for row in range(count):
        for lane in lanes(row):
            expected[lane] = wanted[row].view(np.uint32)
    assert (ran.words.reshape(group, 128, -1) == expected).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_shift_moves_31_rows_of_each_quarter_one_lane_down(schedule: str) -> None:
    rows = rows_of(128, 32)
    case = kernel("128x256b", rows)
    case.body += COMMIT + WAIT.format(phase=0) + "bar.sync 0;\ntcgen05.fence::after_thread_sync;\n"
    case.body += "@%p19 tcgen05.shift.cta_group::1.down [%r300];\n"
    ran = case.run(schedule, wait=COMMIT + WAIT.format(phase=1) + "tcgen05.fence::after_thread_sync;\n")
    assert not ran.result.findings
    got = ran.words.view(np.uint8).reshape(128, 32)
    for lane in range(128):
        assert (got[lane] == rows[lane if lane % 32 == 31 else lane + 1]).all()


def test_a_copy_of_bytes_that_nobody_showed_to_the_async_proxy_is_found() -> None:
    case = kernel("128x256b", rows_of(128, 32))
    body = case.text(wait=AFTER).replace("fence.proxy.async.shared::cta;", "")
    ran = run(body, per_thread=8, given=case.image.tobytes(), shared=case.image.size)
    assert ran.rules == {"proxy-fence"}


def test_ptxas_takes_these_programs(tmp_path: Path) -> None:
    for shape, (count, depth, _) in SHAPES.items():
        case = kernel(shape, padded(rows_of(count, depth)))
        case.body += "@%p19 tcgen05.shift.cta_group::1.down [%r300];\n"
        whole = text(case.text(wait=AFTER), per_thread=case.columns, shared=case.image.size)
        assert not refused_by_ptxas(whole, tmp_path)
