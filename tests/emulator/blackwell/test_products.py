"""tcgen05.mma against NumPy: kinds, types, layouts of operands and accumulators, and what may be said beside them."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.blackwell.products import COMMIT, Case, in_tensor, instruction, k_major, mma, mn_major
from tests.emulator.blackwell.tiny import SCHEDULES, refused_by_ptxas, text

Numbers = NDArray[np.float32]
TYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
}
CODES = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "u8": 0, "s8": 1}


def small(rows: int, columns: int, type_: str, seed: int = 0) -> Numbers:
    """Small whole numbers, exact in every type, and in every order of their sums."""
    low = 0 if type_ == "u8" else -3
    return np.random.default_rng(seed).integers(low, 4, (rows, columns)).astype(np.float32)


def raw(values: Numbers, type_: str) -> NDArray[np.uint8]:
    """The bytes of each row."""
    return np.ascontiguousarray(values.astype(TYPES[type_])).view(np.uint8).reshape(values.shape[0], -1)


def accumulator(words: NDArray[np.uint32], type_: str = "f32") -> Numbers:
    """Words as numbers."""
    if type_ == "f16":
        return words.astype(np.uint16).view(np.float16).astype(np.float32)
    return words.view(np.int32 if type_ == "s32" else np.float32).astype(np.float32)


KINDS = [
    ("f16", "f16", "f16", 1, 16),
    ("f16", "bf16", "bf16", 1, 16),
    ("f16", "f16", "f16", 0, 16),
    ("tf32", "tf32", "tf32", 1, 8),
    ("f8f6f4", "e4m3", "e5m2", 1, 32),
    ("f8f6f4", "e5m2", "e4m3", 0, 32),
    ("i8", "s8", "s8", 2, 32),
    ("i8", "u8", "s8", 2, 32),
]
RESULTS = {0: "f16", 1: "f32", 2: "s32"}


def made(
    kind: tuple[str, str, str, int, int], m: int, n: int, code: int, major: tuple[int, int]
) -> tuple[Case, Numbers]:
    """A kernel with one product, and what it must give."""
    name, left, right, result, k = kind
    a, b = small(m, k, left, 1), small(n, k, right, 2)
    case = Case(n)
    for register, values, type_, side in ((1, a, left, 0), (2, b, right, 1)):
        laid = mn_major(raw(values.T, type_), code) if major[side] else k_major(raw(values, type_), code)
        case.operand(register, laid, code)
    case.body = mma(name, instruction(m, n, (CODES[left], CODES[right]), result, major))
    return case, a @ b.T


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("code", [0, 2, 4, 6])
def test_k_major_operands_of_every_kind(kind: tuple[str, str, str, int, int], code: int) -> None:
    case, expected = made(kind, 128, 64, code, (0, 0))
    ran = case.run()
    assert not ran.result.error
    assert not ran.result.findings
    assert (accumulator(ran.words, RESULTS[kind[3]]).reshape(128, 64) == expected).all()


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize(
    ("code", "major"), [(0, (1, 1)), (1, (1, 1)), (2, (1, 0)), (2, (0, 1)), (4, (1, 1)), (6, (1, 1))]
)
def test_mn_major_operands(kind: tuple[str, str, str, int, int], code: int, major: tuple[int, int]) -> None:
    if (kind[0] == "tf32") != (code == 1):
        case, _ = made(kind, 128, 128, code, major)
        assert "an MN-major operand of" in case.run().messages
        return
    case, expected = made(kind, 128, 128, code, major)
    ran = case.run()
    assert not ran.result.error
    assert (accumulator(ran.words, RESULTS[kind[3]]).reshape(128, 128) == expected).all()


BF16 = ("f16", "bf16", "bf16", 1, 16)


@pytest.mark.parametrize("lane", [0, 16])
def test_64_rows_lie_in_every_second_group_of_16_lanes(lane: int) -> None:
    case, expected = made(BF16, 64, 32, 2, (0, 0))
    zero = "{" + ", ".join(["%r200"] * 32) + "}"
    case.setup += f"mov.u32 %r200, 0x7fc00000;\ntcgen05.st.sync.aligned.32x32b.x32.b32 [%r301], {zero};\n"
    case.setup += "tcgen05.wait::st.sync.aligned;\ntcgen05.fence::before_thread_sync;\nbar.sync 0;\n"
    case.setup += f"tcgen05.fence::after_thread_sync;\nadd.u32 %r201, %r300, {lane << 16};\n"
    case.body = mma("f16", instruction(64, 32), target="%r201")
    ran = case.run()
    assert not ran.result.findings
    got = accumulator(ran.words).reshape(128, 32)
    for row in range(64):
        assert (got[row // 16 * 32 + lane + row % 16] == expected[row]).all()
    assert np.isnan(got).sum() == 64 * 32


def test_the_lanes_that_64_rows_leave_out_may_be_loaded_with_them() -> None:
    """`.32x32b` reads all lanes of a warp: half of them never written is a lint, a column too many an error."""
    case, _ = made(BF16, 64, 32, 2, (0, 0))
    assert {(each.rule, each.severity) for each in case.run().result.findings} == {("never-written", "lint")}
    case.columns = 64
    found = {(each.rule, each.severity) for each in case.run(allocate=64).result.findings}
    assert found == {("never-written", "error")}


@pytest.mark.parametrize(("m", "parts"), [(128, 1), (64, 2), (32, 4)])
def test_weight_stationary_products_fold_n_into_lanes(m: int, parts: int) -> None:
    n = 64
    case, expected = made(BF16, m, n, 2, (0, 0))
    case.columns = n // parts
    case.body = case.body.replace("tcgen05.mma.", "tcgen05.mma.ws.")
    ran = case.run()
    assert not ran.result.findings
    got = accumulator(ran.words).reshape(parts, m, n // parts)
    for part in range(parts):
        assert (got[part] == expected[:, part * n // parts : (part + 1) * n // parts]).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("result", [0, 1])
def test_products_add_up_in_their_order(schedule: str, result: int) -> None:
    steps, n = 4, 32
    a, b = small(128, 16 * steps, "f16", 3), small(n, 16 * steps, "f16", 4)
    case = Case(n)
    case.operand(1, k_major(raw(a, "f16"), 2), 2)
    case.operand(2, k_major(raw(b, "f16"), 2), 2)
    for step in range(steps):
        case.body += mma("f16", instruction(128, n, (0, 0), result), enable=str(step))
        case.body += "add.s64 %d1, %d1, 2; add.s64 %d2, %d2, 2;\n"
    ran = case.run(schedule)
    assert not ran.result.findings
    assert (accumulator(ran.words, RESULTS[result]).reshape(128, n) == a @ b.T).all()


def test_a_product_scales_what_was_there() -> None:
    case, expected = made(BF16, 128, 32, 2, (0, 0))
    case.body += mma("f16", instruction(128, 32), enable="1", more=", 3")
    assert (accumulator(case.run().words).reshape(128, 32) == expected / 8 + expected).all()


def test_negated_operands_change_the_sign() -> None:
    case, expected = made(BF16, 128, 32, 2, (0, 0))
    case.body = mma("f16", instruction(128, 32, more=1 << 13))
    assert (accumulator(case.run().words).reshape(128, 32) == -expected).all()


def test_lanes_can_be_left_as_they_are() -> None:
    case, expected = made(BF16, 128, 32, 2, (0, 0))
    flags = f"{instruction(128, 32):#x}, "
    masks = "%r210, %r211, %r212, %r213"
    case.setup += "mov.u32 %r210, 1; mov.u32 %r211, 0; mov.u32 %r212, 0; mov.u32 %r213, 0x80000000;\n"
    case.body += mma("f16", instruction(128, 32), enable="1").replace(flags, flags + "{" + masks + "}, ")
    got = accumulator(case.run().words).reshape(128, 32)
    assert (got[1:127] == 2 * expected[1:127]).all()
    assert (got[[0, 127]] == expected[[0, 127]]).all()


def test_integers_wrap_or_saturate() -> None:
    n = 32
    case = Case(n)
    case.operand(1, k_major(raw(np.full((128, 32), 127, np.float32), "s8"), 0), 0)
    case.operand(2, k_major(raw(np.full((n, 32), 127, np.float32), "s8"), 0), 0)
    full = "{" + ", ".join(["%r200"] * n) + "}"
    case.setup += f"mov.u32 %r200, 0x7fffffff;\ntcgen05.st.sync.aligned.32x32b.x{n}.b32 [%r301], {full};\n"
    case.setup += "tcgen05.wait::st.sync.aligned;\ntcgen05.fence::before_thread_sync;\nbar.sync 0;\n"
    case.setup += "tcgen05.fence::after_thread_sync;\n"
    plain = instruction(128, n, (1, 1), 2)
    case.body = mma("i8", plain, enable="1")
    assert set(case.run().words.view(np.int32).tolist()) == {127 * 127 * 32 - (1 << 31) - 1}
    case.body = mma("i8", plain | 8, enable="1")
    assert set(case.run().words.tolist()) == {0x7FFFFFFF}


NARROW = {
    "e2m1": (ml_dtypes.float4_e2m1fn, 4),
    "e2m3": (ml_dtypes.float6_e2m3fn, 6),
    "e3m2": (ml_dtypes.float6_e3m2fn, 6),
}


def padded(values: Numbers, type_: str) -> NDArray[np.uint8]:
    """Rows of narrow elements, 16 of them in every 16 bytes."""
    dtype, bits = NARROW[type_]
    codes = values.astype(dtype).view(np.uint8)
    rows = np.zeros((values.shape[0], values.shape[1]), np.uint8)
    for row in range(values.shape[0]):
        for group in range(0, values.shape[1], 16):
            number = sum(int(code) << bits * place for place, code in enumerate(codes[row, group : group + 16]))
            rows[row, group : group + 16] = np.frombuffer(number.to_bytes(16, "little"), np.uint8)
    return rows


@pytest.mark.parametrize("left", NARROW)
@pytest.mark.parametrize("right", ["e4m3", "e2m1", "e3m2"])
def test_elements_of_4_and_6_bits_fill_a_part_of_16_bytes(left: str, right: str) -> None:
    a, b = small(128, 32, left, 5), small(32, 32, right, 6)
    case = Case(32)
    case.operand(1, k_major(padded(a, left), 0), 0)
    case.operand(2, k_major(raw(b, right) if right == "e4m3" else padded(b, right), 0), 0)
    case.body = mma("f8f6f4", instruction(128, 32, (CODES[left], CODES[right])))
    assert (accumulator(case.run().words).reshape(128, 32) == a @ b.T).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_may_lie_in_tensor_memory(schedule: str) -> None:
    a, b = small(128, 16, "bf16", 7), small(32, 16, "bf16", 8)
    case = Case(32)
    start = case.place(raw(a, "bf16").reshape(-1))
    case.operand(2, k_major(raw(b, "bf16"), 2), 2)
    words = ", ".join(f"%r{220 + place}" for place in range(8))
    case.setup += "mov.u32 %r201, tile; shl.b32 %r202, %r350, 5; add.u32 %r201, %r201, %r202;\n"
    for place in range(8):
        case.setup += f"ld.shared.u32 %r{220 + place}, [%r201+{start + 4 * place}];\n"
    case.setup += "add.u32 %r203, %r301, 32; add.u32 %r204, %r300, 32;\n"
    case.setup += f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r203], {{{words}}};\ntcgen05.wait::st.sync.aligned;\n"
    case.setup += "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n"
    case.body = mma("f16", instruction(128, 32), first="[%r204]")
    ran = case.run(schedule, allocate=64)
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(128, 32) == a @ b.T).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_rows_of_a_move_one_lane_down_behind_a_product_that_shifts_them(schedule: str) -> None:
    a, b = small(128, 16, "bf16", 7), small(32, 16, "bf16", 8)
    case = Case(32)
    in_tensor(case, raw(a, "bf16"), 32, 220)
    case.operand(2, k_major(raw(b, "bf16"), 2), 2)
    case.setup += "add.u32 %r204, %r300, 32;\ntcgen05.fence::before_thread_sync;\nbar.sync 0;\n"
    case.setup += "tcgen05.fence::after_thread_sync;\n"
    flags = instruction(128, 32)
    case.body = mma("f16", flags, first="[%r204]").replace("kind::f16", "kind::f16.ashift")
    case.body += mma("f16", flags, first="[%r204]", enable="1", more=", 4")
    ran = case.run(schedule, allocate=64)
    assert ran.rules <= {"tensor-shift"}
    moved = a.copy()
    for quarter in range(0, 128, 32):
        moved[quarter : quarter + 31] = a[quarter + 1 : quarter + 32]
    assert (accumulator(ran.words).reshape(128, 32) == a @ b.T / 16 + moved @ b.T).all()


def test_only_full_products_shift_their_a() -> None:
    case, _ = made(BF16, 64, 32, 2, (0, 0))
    case.setup += "add.u32 %r204, %r300, 0;\n"
    case.body = mma("f16", instruction(64, 32), first="[%r204]").replace("kind::f16", "kind::f16.ashift")
    assert "M is 128, of both CTAs together" in case.run().messages


def test_ptxas_takes_these_programs(tmp_path: Path) -> None:
    for kind in KINDS:
        case, _ = made(kind, 128, 64, 2, (0, 0))
        assert not refused_by_ptxas(text(case.text(), per_thread=64, shared=case.image.size), tmp_path)
    case, _ = made(BF16, 64, 64, 2, (0, 0))
    case.body = case.body.replace("tcgen05.mma.", "tcgen05.mma.ws.")
    case.body += mma("f16", instruction(128, 64), first="[%r204]") + COMMIT
    case.body += mma("f16", instruction(128, 64), first="[%r204]").replace("kind::f16", "kind::f16.ashift")
    assert not refused_by_ptxas(text(case.text(), per_thread=64, shared=case.image.size), tmp_path)
