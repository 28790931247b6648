"""Tensor memory's allocations: who gets which columns, who waits, what is refused, and what is missed at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.emulator.blackwell.tiny import ALLOC, FREE, SCHEDULES, allocated, line_of, refused_by_ptxas, run

TAKE = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot+{place}], {columns};\n"
GIVE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 {address}, {columns};\n"
READ = "tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r1}}, [{address}];\ntcgen05.wait::ld.sync.aligned;\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_allocations_do_not_overlap_and_are_found_in_shared_memory(schedule: str) -> None:
    body = "@!%p18 bra n;\n" + "".join(TAKE.format(place=4 * i, columns=c) for i, c in enumerate((256, 128, 32)))
    body += "ld.shared.u32 %r1, [slot]; ld.shared.u32 %r2, [slot+4]; ld.shared.u32 %r3, [slot+8];\n"
    body += "".join(GIVE.format(address=f"%r{i + 1}", columns=c) for i, c in enumerate((256, 128, 32)))
    body += "st.global.u32 [%d51], %r1; st.global.u32 [%d51+4], %r2; st.global.u32 [%d51+8], %r3;\nn:"
    ran = run(body, 32, per_thread=3, schedules=(schedule,))
    assert not ran.result.error
    assert not ran.result.findings
    assert ran.words[:3].tolist() == [0, 256, 384]


def test_an_allocation_waits_until_another_warp_gives_columns_back() -> None:
    body = "setp.ne.u32 %p1, %r354, 0;\n@%p1 bra second;\n"
    body += TAKE.format(place=0, columns=512) + "bar.sync 1, 64;\nld.shared.u32 %r1, [slot];\n"
    body += GIVE.format(address="%r1", columns=512) + "bra end;\nsecond: bar.sync 1, 64;\n"
    body += (
        TAKE.format(place=4, columns=256) + "ld.shared.u32 %r1, [slot+4];\n" + GIVE.format(address="%r1", columns=256)
    )
    ran = run(body + "end:", 64)
    assert not ran.result.error
    assert not ran.result.findings


def test_a_second_allocation_that_never_fits_is_a_deadlock_that_names_what_is_taken() -> None:
    ran = run("@!%p18 bra n;\n" + TAKE.format(place=0, columns=512) + TAKE.format(place=4, columns=32) + "n:", 32)
    assert ran.error == "deadlock"
    assert "tcgen05.alloc of 32 columns waits for room; taken: 0 to 511" in ran.result.findings[0].state[0]


REFUSED = {
    "48 columns": (TAKE.format(place=0, columns="%r9"), "tcgen05.alloc of 48 columns"),
    "another size": (ALLOC.format(columns=64) + FREE.format(columns=32), "the allocation there has 64 columns"),
    "no allocation": (GIVE.format(address=0, columns=32), "which is not allocated (allocated columns: none)"),
    "twice freed": (
        ALLOC.format(columns=32) + "@!%p18 bra n;\n" + 2 * GIVE.format(address="%r300", columns=32) + "n:",
        "deallocated",
    ),
    "after relinquish": (
        ALLOC.format(columns=32) + "@!%p18 bra n;\n" + TAKE.format(place=4, columns=32) + "n:",
        "tcgen05.alloc after tcgen05.relinquish_alloc_permit of line",
    ),
    "use before": (READ.format(address=0), "which is not allocated"),
    "use beyond": (allocated("add.u32 %r2, %r301, 32;\n" + READ.format(address="%r2")), "uses column 32"),
    "use after": (allocated("") + "bar.sync 0;\n" + READ.format(address="%r301"), "deallocated"),
    "both groups": (
        allocated("").replace("dealloc.cta_group::1", "dealloc.cta_group::2"),
        "tcgen05 with .cta_group::2 after one with .cta_group::1",
    ),
    "no pair": (ALLOC.format(columns=32).replace("cta_group::1", "cta_group::2"), "a cluster of 1 CTAs: rank 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_misuse_stops_the_kernel_with_its_reason(name: str) -> None:
    body, reason = REFUSED[name]
    ran = run("mov.u32 %r9, 48;\n" + body)
    assert ran.error == "cudaErrorIllegalInstruction"
    assert reason in ran.messages


def test_a_fault_names_the_line_of_the_instruction() -> None:
    body = allocated("") + "bar.sync 0;\n" + READ.format(address="%r301")
    assert run(body).result.findings[-1].line == line_of(body, "tcgen05.ld")


def test_columns_that_nobody_gives_back_are_named_at_the_end_with_the_line_of_their_allocation() -> None:
    body = ALLOC.format(columns=64)
    ran = run(body)
    assert ran.rules == {"tensor-memory-leak"}
    assert ran.result.findings[0].line == line_of(body, "tcgen05.alloc")
    assert "columns 0 to 63" in ran.messages


def test_a_larger_allocation_after_a_smaller_one_is_a_warning() -> None:
    body = "@!%p18 bra n;\n" + TAKE.format(place=0, columns=32) + TAKE.format(place=4, columns=64)
    body += "ld.shared.u32 %r1, [slot]; ld.shared.u32 %r2, [slot+4];\n"
    body += GIVE.format(address="%r1", columns=32) + GIVE.format(address="%r2", columns=64) + "n:"
    ran = run(body, 32)
    assert [(each.rule, each.severity) for each in ran.result.findings] == [("tensor-allocation-order", "warning")]


PAIR = "tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [slot], {columns};\n"
PAIR += "tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;\nld.shared.u32 %r1, [slot];\n"
UNPAIR = "tcgen05.dealloc.cta_group::2.sync.aligned.b32 %r1, {columns};\nst.global.u32 [%d51], %r1;\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pair_of_ctas_allocates_together(schedule: str) -> None:
    ran = run((PAIR + UNPAIR).format(columns=128), 32, grid=4, cluster=4, schedules=(schedule,))
    assert not ran.result.error
    assert not ran.result.findings
    assert not ran.words.any()


def test_a_pair_whose_second_cta_does_not_come_is_a_deadlock() -> None:
    body = "mov.u32 %r5, %cluster_ctarank; setp.ne.u32 %p1, %r5, 0;\n@%p1 bra n;\n" + PAIR.format(columns=128) + "n:"
    ran = run(body, 32, grid=2, cluster=2)
    assert ran.error == "deadlock"
    assert "waits for the same instruction in CTA 1,0,0, which has exited" in ran.result.findings[0].state[0]


def test_a_pair_that_asks_for_different_sizes_is_refused() -> None:
    body = "mov.u32 %r5, %cluster_ctarank; shl.b32 %r6, 64, %r5;\n" + PAIR.format(columns="%r6")
    ran = run(body, 32, grid=2, cluster=2)
    assert ran.error == "cudaErrorIllegalInstruction"
    assert "the CTAs of a pair ask for" in ran.messages


def test_ptxas_takes_these_programs(tmp_path: Path) -> None:
    from tests.emulator.blackwell.tiny import text

    for body in (allocated(""), PAIR.format(columns=128) + UNPAIR.format(columns=128)):
        assert not refused_by_ptxas(text(body), tmp_path)
