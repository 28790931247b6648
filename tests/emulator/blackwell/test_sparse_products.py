"""Sparse tcgen05.mma: layouts of A and of its metadata, the selector, and what is refused; kinds are in `forms`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.blackwell.forms import SYNC, metadata, sparse_rows
from tests.emulator.blackwell.products import (
    AFTER,
    COMMIT,
    WAIT,
    Case,
    filled,
    in_tensor,
    instruction,
    k_major,
    mn_major,
    read_out,
)
from tests.emulator.blackwell.test_products import accumulator, raw, small
from tests.emulator.blackwell.tiny import SCHEDULES, Ran, allocated, refused_by_ptxas, run, text

N, META, A_COLUMN = 64, 96, 64
SPARSE = 1 << 2
HANDED = "tcgen05.fence::before_thread_sync;\nbar.sync 0;\ntcgen05.fence::after_thread_sync;\n"
Numbers = NDArray[np.float32]


def spread(rows: int, lane: int = 0) -> NDArray[np.int64]:
    """Lanes of 64 rows that use every second group of 16."""
    m = np.arange(rows)
    return m // 16 * 32 + m % 16 + lane


def issued(flags: int, *, ws: str = "", a: str = "%d1", target: str = "%r300", meta: str = "%r209") -> str:
    """One product."""
    return (
        f"add.u32 %r209, %r300, {META}; setp.ne.u32 %p12, 0, 0;\n"
        f"@%p19 tcgen05.mma{ws}.sp.cta_group::1.kind::f16 [{target}], {a}, %d2, [{meta}], {flags:#x}, %p12;\n"
    )


def made(m: int, lanes: NDArray[np.int64], selector: int = 0, majors: tuple[int, int] = (0, 0)) -> tuple[Case, Numbers]:
    """A and B in shared memory, the metadata of A in the column that the selector names; and the product."""
    kept, b = small(m, 16, "bf16", 1), small(N, 32, "bf16", 2)
    a, codes = sparse_rows(kept, "f16", 3)
    case = Case(N)
    for register, values, major in ((1, kept, majors[0]), (2, b, majors[1])):
        laid = mn_major(raw(values.T, "bf16"), 2) if major else k_major(raw(values, "bf16"), 2)
        case.operand(register, laid, 2)
    cells = metadata(codes, "f16", lanes)
    in_tensor(case, np.roll(cells, selector, axis=1).copy().view(np.uint8), META, 230)
    case.setup += HANDED
    return case, a @ b.T


def started(case: Case, schedule: str = "late") -> Ran:
    """Run it with room for metadata."""
    return case.run(schedule, allocate=128)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("selector", [0, 1])
def test_the_selector_names_one_of_two_columns(schedule: str, selector: int) -> None:
    case, expected = made(128, np.arange(128), selector)
    case.body = issued(instruction(128, N, more=SPARSE | selector))
    ran = started(case, schedule)
    assert not ran.result.error
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(128, N) == expected).all()


@pytest.mark.parametrize("majors", [(1, 1), (1, 0), (0, 1)])
def test_mn_major_operands_of_a_sparse_product(majors: tuple[int, int]) -> None:
    case, expected = made(128, np.arange(128), 0, majors)
    case.body = issued(instruction(128, N, major=majors, more=SPARSE))
    ran = started(case)
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(128, N) == expected).all()


@pytest.mark.parametrize("lane", [0, 16])
def test_64_rows_have_their_metadata_in_their_half_of_the_lanes(lane: int) -> None:
    case, expected = made(64, spread(64, lane))
    case.setup += f"add.u32 %r206, %r300, {lane << 16}; add.u32 %r207, %r300, {(lane << 16) + META};\n"
    zero = "{" + ", ".join(["%r208"] * N) + "}"
    case.setup += f"mov.u32 %r208, 0;\ntcgen05.st.sync.aligned.32x32b.x{N}.b32 [%r301], {zero};\n"
    case.setup += "tcgen05.wait::st.sync.aligned;\n" + HANDED
    case.body = issued(instruction(64, N, more=SPARSE), target="%r206", meta="%r207")
    ran = started(case)
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(128, N)[spread(64, lane)] == expected).all()


@pytest.mark.parametrize(("m", "parts"), [(128, 1), (64, 2), (32, 4)])
def test_each_part_of_a_weight_stationary_product_has_metadata_of_its_own(m: int, parts: int) -> None:
    kept, b = small(m, 16, "bf16", 1), small(N, 32, "bf16", 2)
    case = Case(N // parts)
    case.operand(1, k_major(raw(kept, "bf16"), 2), 2)
    case.operand(2, k_major(raw(b, "bf16"), 2), 2)
    cells, expected = np.zeros((128, 2), np.uint32), []
    for part in range(parts):
        a, codes = sparse_rows(kept, "f16", 7 + part)
        cells |= metadata(codes, "f16", part * m + np.arange(m))
        expected.append(a @ b[part * N // parts : (part + 1) * N // parts].T)
    in_tensor(case, cells.view(np.uint8), META, 230)
    case.setup += HANDED
    case.body = issued(instruction(m, N, more=SPARSE), ws=".ws")
    ran = started(case)
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(parts, m, N // parts) == np.stack(expected)).all()


def test_each_part_of_a_weight_stationary_product_reads_the_a_in_its_own_lanes() -> None:
    m, parts = 64, 2
    kept, b = [small(m, 16, "bf16", 1 + part) for part in range(parts)], small(N, 32, "bf16", 9)
    both = [sparse_rows(each, "f16", part) for part, each in enumerate(kept)]
    case = Case(N // parts)
    case.operand(2, k_major(raw(b, "bf16"), 2), 2)
    in_tensor(case, raw(np.concatenate(kept), "bf16"), A_COLUMN, 220)
    in_tensor(
        case, metadata(np.concatenate([codes for _, codes in both]), "f16", np.arange(128)).view(np.uint8), META, 230
    )
    case.setup += f"add.u32 %r204, %r300, {A_COLUMN};\n" + HANDED
    case.body = issued(instruction(m, N, more=SPARSE), ws=".ws", a="[%r204]")
    ran = started(case)
    assert not ran.result.findings
    expected = [a @ b[part * 32 : part * 32 + 32].T for part, (a, _) in enumerate(both)]
    assert (accumulator(ran.words).reshape(parts, m, 32) == np.stack(expected)).all()


def _pair() -> tuple[str, list[Case], Numbers]:
    """A pair with M = 128: 64 rows of each CTA in every second group of 16 lanes."""
    kept, b = small(128, 16, "bf16", 1), small(N, 32, "bf16", 2)
    a, codes = sparse_rows(kept, "f16", 3)
    cases = []
    for rank in range(2):
        case, rows = Case(N), slice(64 * rank, 64 * rank + 64)
        case.operand(1, k_major(raw(kept[rows], "bf16"), 2), 2)
        case.operand(2, k_major(raw(b[32 * rank : 32 * rank + 32], "bf16"), 2), 2)
        in_tensor(case, metadata(codes[rows], "f16", spread(64)).view(np.uint8), META, 230)
        zero = "{" + ", ".join(["%r208"] * N) + "}"
        case.setup += f"mov.u32 %r208, 0;\ntcgen05.st.sync.aligned.32x32b.x{N}.b32 [%r301], {zero};\n"
        case.setup += "tcgen05.wait::st.sync.aligned;\n"
        cases.append(case)
    size = cases[0].image.size
    head = "mov.u32 %r355, %cluster_ctarank; setp.eq.and.u32 %p17, %r355, 0, %p19; mov.u16 %h1, 3;\n"
    head += f"mul.wide.u32 %d41, %r355, {size}; add.s64 %d52, %d52, %d41;\n"
    handed = HANDED.replace("bar.sync 0;\n", SYNC)
    product = issued(instruction(128, N, more=SPARSE)).replace("%p19", "%p17")
    commit = (
        "@%p17 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bar], %h1;\n"
    )
    whole = (
        head + filled(size) + cases[0].setup + handed + product + commit + WAIT.format(phase=0) + AFTER + read_out(N)
    )
    return allocated(whole, 128).replace("cta_group::1", "cta_group::2"), cases, a @ b.T


def test_a_pair_of_64_rows_each_uses_half_of_the_lanes() -> None:
    body, cases, expected = _pair()
    given = b"".join(each.image.tobytes() for each in cases)
    ran = run(body, per_thread=N, grid=2, cluster=2, given=given, shared=cases[0].image.size)
    assert not ran.result.error
    assert not ran.result.findings
    got = accumulator(ran.words).reshape(2, 128, N)[:, spread(64)]
    assert (got.reshape(128, N) == expected).all()


def test_metadata_without_a_meaning_is_an_error() -> None:
    case, _ = made(128, np.arange(128))
    case.setup += f"mov.u32 %r230, 0x44444440; add.u32 %r203, %r301, {META};\n"
    case.setup += "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r203], {%r230};\ntcgen05.wait::st.sync.aligned;\n" + HANDED
    case.body = issued(instruction(128, N, more=SPARSE))
    ran = started(case)
    assert ran.error == "cudaErrorIllegalInstruction"
    assert "sparse metadata 0b0000 of the row in lane 0 of tensor memory, chunk 0, is undefined" in ran.messages


def test_metadata_that_nobody_wrote_is_found() -> None:
    case, _ = made(128, np.arange(128))
    case.setup = case.setup.replace("tcgen05.st.sync.aligned.32x32b.x2", "@!%p18 tcgen05.st.sync.aligned.32x32b.x2")
    case.body = issued(instruction(128, N, more=SPARSE))
    assert "never-written" in started(case).rules


@pytest.mark.parametrize(
    ("flags", "meta", "said"),
    [
        (instruction(128, N), "%r209", "bit 2 (sparsity) hold 0x0; the instruction is sparse"),
        (
            instruction(64, N, more=SPARSE),
            "%r207",
            "the metadata begins at lane 16 of tensor memory, the accumulator at 0",
        ),
        (
            instruction(128, N, more=SPARSE),
            "%r207",
            "the metadata begins at lane 16 of tensor memory; M = 128 needs lane 0",
        ),
        (instruction(128, N, more=SPARSE | 2), "%r209", "sparsity selector 2"),
    ],
)
def test_what_a_sparse_product_must_not_say(flags: int, meta: str, said: str) -> None:
    m = (flags >> 24 & 31) << 4
    case, _ = made(m, np.arange(128) if m == 128 else spread(64))
    case.setup += f"add.u32 %r207, %r300, {(16 << 16) + META};\n"
    case.body = issued(flags, meta=meta)
    assert said in started(case).messages


def test_bytes_have_no_selector() -> None:
    case, _ = made(128, np.arange(128))
    case.body = issued(instruction(128, N, (0, 0), more=SPARSE | 1)).replace("kind::f16", "kind::f8f6f4")
    assert "bits 0-1 (sparsity selector, of which kind::f8f6f4 has no choice) hold 0x1" in started(case).messages


def test_a_b_that_its_swizzle_does_not_hold_is_refused() -> None:
    case, _ = made(128, np.arange(128))
    case.operand(2, k_major(raw(small(N, 32, "bf16", 2), "bf16")[:, :32], 6), 6)
    case.body = issued(instruction(128, N, more=SPARSE))
    assert "64 bytes along K of a K-major B in a swizzle of 32 bytes" in started(case).result.unsupported


def test_ptxas_takes_these_programs(tmp_path: Path) -> None:
    case, _ = made(128, np.arange(128))
    case.body = issued(instruction(128, N, more=SPARSE))
    case.body += issued(instruction(64, N, more=SPARSE), ws=".ws")
    whole = text(case.text(wait=COMMIT + WAIT.format(phase=0), allocate=128), per_thread=N, shared=case.image.size)
    assert not refused_by_ptxas(whole, tmp_path)
    body, cases, _ = _pair()
    assert not refused_by_ptxas(text(body, per_thread=N, shared=cases[0].image.size), tmp_path)
