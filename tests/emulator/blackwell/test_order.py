"""The order of tcgen05: what must stand between products and who uses their results or their operands."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.blackwell.products import AFTER, COMMIT, WAIT, Case, filled, instruction, k_major, mma, read_out
from tests.emulator.blackwell.test_products import BF16, accumulator, made
from tests.emulator.blackwell.tiny import SCHEDULES, allocated, line_of, run

DONE = WAIT.format(phase=0)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_result_that_is_read_without_waiting_for_the_commit_is_found(schedule: str) -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    ran = case.run(schedule, wait=COMMIT + AFTER)
    assert "use-before-completion" in ran.rules
    assert "while the tcgen05.mma of line" in ran.messages


def test_a_result_that_no_commit_covers_says_so() -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    ran = case.run(wait=AFTER)
    assert "while no tcgen05.commit covers the tcgen05.mma of line" in ran.messages


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_wait_without_the_fence_behind_it_is_found_and_named(schedule: str) -> None:
    case, expected = made(BF16, 128, 32, 2, (0, 0))
    ran = case.run(schedule, wait=COMMIT + DONE)
    assert ran.rules == {"tcgen05-fence"}
    assert "without tcgen05.fence::after_thread_sync" in ran.messages
    assert (accumulator(ran.words).reshape(128, 32) == expected).all()


def test_a_commit_by_another_thread_covers_nothing() -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    other = "setp.eq.u32 %p13, %r350, 32;\n" + COMMIT.replace("%p19", "%p13")
    assert "use-before-completion" in case.run(wait=other + DONE + AFTER).rules


def test_an_accumulator_that_was_never_written_is_found() -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    case.body = mma("f16", instruction(128, 32), enable="1")
    ran = case.run()
    assert ran.rules == {"never-written"}
    assert ran.result.findings[0].line == line_of(
        case.text(), "tcgen05.mma", per_thread=case.columns, shared=case.image.size
    )


def test_operands_that_nobody_showed_to_the_async_proxy_are_found() -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    body = case.text().replace("fence.proxy.async.shared::cta;", "")
    ran = run(body, per_thread=32, given=case.image.tobytes(), shared=case.image.size)
    assert ran.rules == {"proxy-fence"}


OVERWRITE = "@%p19 st.shared.u32 [tile], %r350;\n"


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_operand_that_is_overwritten_before_the_commit_is_found(schedule: str) -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    case.body += OVERWRITE
    ran = case.run(schedule)
    assert ran.rules == {"overwrite-before-release"}
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    assert not case.run(schedule, wait=COMMIT + DONE + AFTER + OVERWRITE).result.findings


def test_late_products_read_what_lies_there_when_they_are_done() -> None:
    case, expected = made(BF16, 128, 32, 2, (0, 0))
    case.body += "mov.u32 %r205, 0x41004100;\n@%p19 st.shared.u32 [tile], %r205;\n"
    got = accumulator(case.run("late").words).reshape(128, 32)
    assert (got[0] != expected[0]).any()
    assert (accumulator(case.run("eager").words).reshape(128, 32) == expected).all()


def test_products_of_two_shapes_into_one_place_are_not_in_order() -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    case.body += mma("f16", instruction(128, 16), enable="1")
    ran = case.run()
    assert "overwrite-before-release" in ran.rules or "use-before-completion" in ran.rules


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_products_into_two_places_are_independent(schedule: str) -> None:
    case, expected = made(BF16, 128, 32, 2, (0, 0))
    case.setup += "add.u32 %r206, %r300, 32;\n"
    case.body += mma("f16", instruction(128, 32), target="%r206")
    ran = case.run(schedule, allocate=64)
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(128, 32) == expected).all()


def test_a_product_of_every_lane_is_a_warning() -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    case.body = case.body.replace("@%p19 tcgen05.mma", "@%p18 tcgen05.mma")
    ran = case.run()
    assert "tensor-many-issuers" in ran.rules
    assert "32 threads of warps [0] execute tcgen05.mma" in ran.messages


def test_a_commit_of_every_lane_arrives_too_often() -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    ran = case.run(wait=COMMIT.replace("%p19", "%p18") + DONE + AFTER)
    assert "tensor-many-issuers" in ran.rules


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_accumulator_is_handed_back_by_wait_fence_and_barrier(schedule: str) -> None:
    case, expected = made(BF16, 128, 32, 2, (0, 0))
    first = COMMIT + DONE + AFTER + read_out(32)
    give = "tcgen05.fence::before_thread_sync;\nbar.sync 0;\n" + AFTER
    second = mma("f16", instruction(128, 32), enable="1") + COMMIT + WAIT.format(phase=1) + AFTER
    ran = case.run(schedule, wait=first + give + second)
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(128, 32) == 2 * expected).all()
    ran = case.run(schedule, wait=first + "bar.sync 0;\n" + AFTER + second)
    assert ran.rules == {"tcgen05-fence"}
    assert "without tcgen05.fence::before_thread_sync" in ran.messages


def test_a_deallocation_while_a_product_runs_is_found() -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    body = filled(case.image.size) + case.setup + case.body
    ran = run(allocated(body), given=case.image.tobytes(), shared=case.image.size)
    assert ran.rules == {"overwrite-before-release"}
    assert "tcgen05.dealloc" in ran.messages


def test_a_wait_for_a_commit_that_never_comes_is_a_deadlock() -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    ran = case.run(wait=DONE + AFTER)
    assert ran.error == "deadlock"
    assert "1 of 1 arrivals still missing" in ran.result.findings[-1].state[0]


def test_the_order_of_work_that_nobody_waits_for_does_not_change_the_result_of_what_is() -> None:
    case = Case(32)
    a = np.ones((128, 32), np.uint8)
    case.operand(1, k_major(a, 2), 2)
    case.operand(2, k_major(a[:32], 2), 2)
    case.body = "".join(mma("f16", instruction(128, 32), enable=str(step)) for step in range(3))
    answers = {case.run(schedule).words.tobytes() for schedule in SCHEDULES}
    assert len(answers) == 1


def test_rows_that_lie_over_each_other_are_a_warning() -> None:
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    case.body = "xor.b64 %d1, %d1, 0x6000000000;\n" + case.body  # a stride of 512 bytes, not 1024
    ran = case.run()
    assert [(each.rule, each.severity) for each in ran.result.findings] == [("operand-overlap", "warning")]
    assert "the stride byte offset is 512, the pattern 128 bytes wide" in ran.messages


def test_one_thread_of_each_of_two_warps_is_no_accident() -> None:
    """Two warps issue products of their own, as kernels with two accumulators do."""
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    case.setup += "setmaxnreg.dec.sync.aligned.u32 64;\n"  # so that both warps run as one unit
    case.setup += "and.b32 %r206, %r350, 95; setp.eq.u32 %p13, %r206, 0; setp.eq.or.u32 %p13, %r206, 32, %p13;\n"
    case.setup += "setp.lt.and.u32 %p13, %r350, 64, %p13; and.b32 %r206, %r350, 32; add.u32 %r206, %r300, %r206;\n"
    case.body = case.body.replace("@%p19", "@%p13").replace("%r300", "%r206")
    ran = case.run(allocate=64)
    assert not ran.error
    assert "tensor-many-issuers" not in ran.rules


READER = """
setp.eq.u32 %p14, %r354, 3; @!%p14 bra others;
ld.shared.u32 %r206, [tile]; st.global.u32 [%d51], %r206; bar.arrive 1, 64;
others: {wait}
"""


@pytest.mark.parametrize("races", [False, True])
def test_a_commit_hands_on_what_its_thread_knows(races: bool) -> None:
    """Warp 3 reads, warp 0 learns that and issues; who sees the commit may overwrite what warp 3 read."""
    write = COMMIT + DONE + AFTER + "setp.eq.u32 %p13, %r350, 64; @%p13 st.shared.u32 [tile], %r350;\n"
    for wait, rules in (("@%p18 bar.sync 1, 64;", set()), ("", {"overwrite-before-release"})):
        case, _ = made(BF16, 128, 32, 2, (0, 0))
        case.body = READER.format(wait=wait) + case.body
        text = case.text(write).replace("bar.arrive 1, 64;", "bar.arrive 1, 64;" if wait else "")
        ran = run(text, per_thread=32, given=case.image.tobytes(), shared=case.image.size, races=races)
        assert ran.rules == rules, ran.messages
