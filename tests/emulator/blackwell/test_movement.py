"""tcgen05.ld and tcgen05.st: which cell goes to which register, which lanes a warp reaches, and when data is there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.emulator.blackwell.tiny import (
    SCHEDULES,
    Ran,
    allocated,
    line_of,
    numbered,
    refused_by_ptxas,
    registers,
    run,
    stored,
    text,
)

from ptxbench.emulator.ptx import isa

WIDEST = {"32x32b": 128, "16x64b": 128, "16x128b": 64, "16x256b": 32, "16x32bx2": 128}
PER_REPEAT = {"32x32b": (1, 1), "16x64b": (1, 2), "16x128b": (2, 4), "16x256b": (4, 8), "16x32bx2": (1, 1)}
"""Registers and columns for x1."""
LOADS = [each for each in isa.coverage() if each.name.startswith("tcgen05.ld")]
STORES = [each for each in isa.coverage() if each.name.startswith("tcgen05.st")]
LOAD = "tcgen05.ld.sync.aligned.{shape}.x{n}{pack}.b32 {regs}, [{address}]{half};\n"
STORE = "tcgen05.st.sync.aligned.{shape}.x{n}{pack}.b32 [{address}]{half}, {regs};\n"
WAITS = {"ld": "tcgen05.wait::ld.sync.aligned;\n", "st": "tcgen05.wait::st.sync.aligned;\n"}


def owner(shape: str, lane: int, column: int, half: int) -> tuple[int, int]:
    """Thread and register of a cell: the documented maps read backwards."""
    low, high = 4 * (lane % 8), lane // 8
    if shape == "32x32b":
        return lane, column
    if shape == "16x64b":
        return low + 2 * (column % 2) + high, column // 2
    if shape == "16x128b":
        return low + column % 4, 2 * (column // 4) + high
    if shape == "16x256b":
        return low + column % 8 // 2, 4 * (column // 8) + 2 * high + column % 2
    return (lane, column) if column < half else (lane + 16, column - half)


def filled(columns: int) -> str:
    """Every cell of warp 0's quarter becomes lane * 1000 + column."""
    body = ""
    for start in range(0, columns, 64):
        count = min(64, columns - start)
        body += "".join(f"mad.lo.u32 %r{1 + i}, %r350, 1000, {start + i};\n" for i in range(count))
        body += f"add.u32 %r299, %r301, {start};\n"
        body += STORE.format(shape="32x32b", n=count, pack="", regs=registers(1, count), address="%r299", half="")
    return body + WAITS["st"]


def columns_of(shape: str, repeat: int) -> int:
    """Columns that a form reaches, the halves of 16x32bx2 side by side."""
    return repeat * PER_REPEAT[shape][1] * (2 if shape == "16x32bx2" else 1)


def parts(form: isa.Form) -> tuple[str, int]:
    """Shape and repeat of a form."""
    words = form.name.split(".")
    return next(word for word in words if word in WIDEST), next(int(word[1:]) for word in words if word[0] == "x")


def loaded(shape: str, repeat: int, lane: int = 0, pack: str = "", half: int = 0) -> str:
    count = repeat * PER_REPEAT[shape][0]
    form = {"shape": shape, "n": repeat, "pack": pack, "regs": registers(130, count), "address": "%r298"}
    extra = f", {half}" if shape == "16x32bx2" else ""
    return f"add.u32 %r298, %r301, {lane << 16};\n" + LOAD.format(**form, half=extra) + WAITS["ld"]


@pytest.mark.parametrize("form", LOADS, ids=lambda form: form.name)
def test_a_load_brings_each_cell_to_its_thread_and_register(form: isa.Form) -> None:
    shape, repeat = parts(form)
    count, columns = repeat * PER_REPEAT[shape][0], columns_of(shape, repeat)
    lane = 0 if shape == "32x32b" else 16
    power = max(32, 1 << (columns - 1).bit_length())
    body = filled(power) + loaded(shape, repeat, lane, half=repeat) + stored(130, count)
    ran = run(allocated(body, power), 32, per_thread=count)
    assert not ran.result.error
    assert not ran.result.findings
    got = ran.words.reshape(32, count)
    for row in range(32 if shape == "32x32b" else 16):
        for column in range(columns):
            thread, register = owner(shape, row, column, repeat)
            assert got[thread, register] == (lane + row) * 1000 + column


@pytest.mark.parametrize("form", STORES, ids=lambda form: form.name)
def test_a_store_is_the_inverse_of_a_load(form: isa.Form) -> None:
    shape, repeat = parts(form)
    count, columns = repeat * PER_REPEAT[shape][0], columns_of(shape, repeat)
    power, extra = max(32, 1 << (columns - 1).bit_length()), f", {repeat}" if shape == "16x32bx2" else ""
    body = numbered(1, count) + STORE.format(
        shape=shape, n=repeat, pack="", regs=registers(1, count), address="%r301", half=extra
    )
    body += WAITS["st"] + loaded(shape, repeat, half=repeat) + stored(130, count)
    ran = run(allocated(body, power), 32, per_thread=count)
    assert not ran.result.findings
    expected = np.arange(32)[:, None] * 1000 + np.arange(count)
    assert (ran.words.reshape(32, count) == expected).all()


@pytest.mark.parametrize("shape", WIDEST)
def test_packing_takes_the_low_halves_of_two_columns(shape: str) -> None:
    repeat = 4
    count, columns = repeat * PER_REPEAT[shape][0], columns_of(shape, repeat)
    half = 2 * repeat
    body = filled(64) + loaded(shape, repeat, pack=".pack::16b", half=half) + stored(130, count)
    got = run(allocated(body, 64), 32, per_thread=count).words.reshape(32, count)
    for row in range(32 if shape == "32x32b" else 16):
        for column in range(columns):
            thread, register = owner(shape, row, column, repeat)
            low = row * 1000 + 2 * column
            assert got[thread, register] == low & 0xFFFF | (low + 1 & 0xFFFF) << 16


def test_unpacking_is_the_inverse_of_packing() -> None:
    body = numbered(1, 8) + STORE.format(
        shape="16x128b", n=4, pack=".unpack::16b", regs=registers(1, 8), address="%r301", half=""
    )
    body += WAITS["st"] + loaded("16x128b", 4, pack=".pack::16b") + stored(130, 8)
    ran = run(allocated(body, 32), 32, per_thread=8)
    assert (ran.words.reshape(32, 8) == np.arange(32)[:, None] * 1000 + np.arange(8)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_each_warp_reaches_its_own_quarter(schedule: str) -> None:
    body = numbered(1, 4) + STORE.format(shape="32x32b", n=4, pack="", regs=registers(1, 4), address="%r301", half="")
    body += WAITS["st"] + loaded("32x32b", 4) + stored(130, 4)
    ran = run(allocated(body), 128, per_thread=4, schedules=(schedule,))
    assert not ran.result.findings
    assert (ran.words.reshape(128, 4) == np.arange(128)[:, None] * 1000 + np.arange(4)).all()


def test_warps_of_one_quarter_that_nothing_orders_are_found() -> None:
    body = numbered(1, 1) + STORE.format(shape="32x32b", n=1, pack="", regs="{%r1}", address="%r301", half="")
    assert run(allocated(body + WAITS["st"]), 256).rules == {"overwrite-before-release"}


def _refused(body: str, threads: int = 128) -> Ran:
    ran = run(allocated(body), threads)
    assert ran.error == "cudaErrorIllegalInstruction"
    return ran


def test_a_lane_of_another_quarter_is_refused_by_name() -> None:
    body = "add.u32 %r2, %r300, 0x400000;\n"
    ran = _refused(body + LOAD.format(shape="32x32b", n=1, pack="", regs="{%r1}", address="%r2", half=""), 64)
    assert "warp 1 reaches lanes 32 to 63 (its number modulo 4), so the lane must be 32" in ran.messages


def test_a_lane_without_a_quarter_is_in_the_warps_own_and_a_warning() -> None:
    """Kernels that run on such GPUs give all warps of a warpgroup one address."""
    form = {"shape": "32x32b", "n": 1, "pack": "", "half": "", "regs": "{%r1}", "address": "%r300"}
    body = numbered(1, 1) + STORE.format(**form) + WAITS["st"] + "mov.u32 %r1, 0;\n" + LOAD.format(**form) + WAITS["ld"]
    ran = run(allocated(body + "st.global.u32 [%d51], %r1;\n"))
    assert not ran.error
    assert ran.rules == {"tensor-lane-quarter"}
    assert "names lane 0, taken as" in ran.messages
    assert (ran.words == np.arange(128) * 1000).all()


def test_sixteen_lanes_begin_at_lane_0_or_16_of_the_quarter() -> None:
    body = "add.u32 %r2, %r301, 0x80000;\n"
    ran = _refused(body + LOAD.format(shape="16x64b", n=1, pack="", regs="{%r1}", address="%r2", half=""), 32)
    assert "the lane must be 0 or 16" in ran.messages


def test_lanes_that_give_different_addresses_are_refused() -> None:
    body = "and.b32 %r2, %r350, 1; add.u32 %r2, %r301, %r2;\n"
    assert (
        "different addresses"
        in _refused(body + LOAD.format(shape="32x32b", n=1, pack="", regs="{%r1}", address="%r2", half="")).messages
    )


def test_lanes_beyond_the_last_are_a_warning() -> None:
    body = filled(1) + "add.u32 %r301, %r301, 0x800000;\n" + loaded("32x32b", 1) + stored(130, 1)
    ran = run(allocated(body), 32)
    assert [(each.rule, each.severity) for each in ran.result.findings] == [("tensor-lane-wrap", "warning")]
    assert ran.words.tolist() == [1000 * lane for lane in range(32)]


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_register_that_is_used_before_the_wait_is_found(schedule: str) -> None:
    body = filled(1) + LOAD.format(shape="32x32b", n=1, pack="", regs="{%r130}", address="%r301", half="")
    ran = run(allocated(body + stored(130, 1) + WAITS["ld"]), 32, schedules=(schedule,))
    assert ran.words.tolist() == [1000 * lane for lane in range(32)]
    if schedule == "late":
        assert [(each.rule, each.severity) for each in ran.result.findings] == [("register-before-wait", "warning")]
        assert ran.result.findings[0].line == line_of(allocated(body), "tcgen05.ld")


def test_late_registers_arrive_with_the_wait_and_not_before() -> None:
    first = filled(1) + LOAD.format(shape="32x32b", n=1, pack="", regs="{%r130}", address="%r301", half="")
    change = "mov.u32 %r5, 7;\n" + STORE.format(shape="32x32b", n=1, pack="", regs="{%r5}", address="%r301", half="")
    body = first + change + WAITS["st"] + WAITS["ld"] + stored(130, 1)
    ran = run(allocated(body), 32)
    assert ran.rules == {"overwrite-before-release"}
    assert set(ran.words.tolist()) == {7}
    assert run(allocated(body), 32, schedules=("eager",)).words.tolist() == [1000 * lane for lane in range(32)]


def test_a_load_of_cells_that_nobody_wrote_is_found() -> None:
    ran = run(allocated(loaded("32x32b", 2)), 32)
    assert ran.rules == {"never-written"}


def test_a_load_before_the_wait_for_the_store_is_found() -> None:
    body = filled(1).replace(WAITS["st"], "") + loaded("32x32b", 1) + stored(130, 1)
    assert "use-before-completion" in run(allocated(body), 32).rules


HAND_OVER = """
@!%p18 bra reader;
{store}{wait}{before}
reader: bar.sync 0;
{after}
setp.ge.u32 %p1, %r350, 128; mov.u32 %r130, 0;
@!%p1 bra skip;
{load}
skip: st.global.u32 [%d51], %r130;
"""
PARTS = {
    "store": "mad.lo.u32 %r1, %r350, 1000, 5;\ntcgen05.st.sync.aligned.32x32b.x1.b32 [%r301], {%r1};\n",
    "wait": WAITS["st"],
    "before": "tcgen05.fence::before_thread_sync;",
    "after": "tcgen05.fence::after_thread_sync;",
    "load": "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r130}, [%r301];\n" + WAITS["ld"],
}
MISSING = {
    "before": {"tcgen05-fence"},
    "after": {"tcgen05-fence"},
    "wait": {"use-before-completion", "overwrite-before-release"},  # the second one by dealloc
}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_warp_of_the_same_number_modulo_four_sees_what_was_handed_over(schedule: str) -> None:
    ran = run(allocated(HAND_OVER.format(**PARTS)), 160, schedules=(schedule,))
    assert not ran.result.findings
    assert ran.words[128:].tolist() == [1000 * lane + 5 for lane in range(32)]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("part", MISSING)
def test_a_hand_over_without_one_of_its_parts_is_found(part: str, schedule: str) -> None:
    ran = run(allocated(HAND_OVER.format(**{**PARTS, part: ""})), 160, schedules=(schedule,))
    assert ran.rules == MISSING[part]
    if part != "wait":
        assert f"without tcgen05.fence::{part}_thread_sync" in ran.messages


def test_ptxas_takes_these_programs(tmp_path: Path) -> None:
    texts = [text(allocated(HAND_OVER.format(**PARTS)))]
    for shape, most in WIDEST.items():
        count = most * PER_REPEAT[shape][0]
        body = filled(256) + loaded(shape, most, half=most) + stored(130, count)
        body += loaded(shape, 4, pack=".pack::16b", half=4)
        texts.append(text(allocated(body, 256), per_thread=count))
    for each in texts:
        assert not refused_by_ptxas(each, tmp_path)
