"""mbarriers in a kernel, as an H200 answered: when phases complete, what stops the kernel, what hangs."""

from __future__ import annotations

import pytest
from tests.emulator.core.small import run, store

SHARED = ".shared .align 8 .b64 bar;"
INIT = (
    "setp.ne.u32 %p9, %r50, 0;\nmov.u32 %r40, bar;\n@!%p9 mbarrier.init.shared::cta.b64 [bar], {count};\nbar.sync 0;\n"
)
TEST = """
mbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], 0;
mbarrier.test_wait.parity.shared::cta.b64 %p2, [bar], 1;
selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2; or.b32 %r1, %r1, %r2;
"""


def arrive(count: int = 1) -> str:
    return f"mbarrier.arrive.shared::cta.b64 _, [bar], {count};\n"


def arrive_expect(count: int) -> str:
    return f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {count};\n"


def expect(count: int) -> str:
    return f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], {count};\n"


def complete(count: int) -> str:
    return f"mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], {count};\n"


# One thread; the answer is 1 if parity 0 is over, plus 2 if parity 1 is.
FRESH, FLIPPED = 2, 1
SCENARIOS = [
    ("", 2, FRESH),
    (expect(0) + complete(0), 1, FRESH),
    (arrive_expect(0), 1, FLIPPED),
    (complete(16) + arrive_expect(16), 1, FLIPPED),
    (complete(16) + arrive() + expect(16), 1, FLIPPED),
    (complete(16) + arrive() + expect(32), 1, FRESH),
    (complete(16) + arrive() + expect(32) + complete(16), 1, FLIPPED),
    (arrive_expect(16) + complete(32), 1, FRESH),
    (arrive_expect(16) + complete(32) + expect(16), 1, FLIPPED),
    (arrive(0), 1, FRESH),
    (arrive() + arrive(), 1, FRESH),
    (arrive(2), 2, FLIPPED),
]


@pytest.mark.parametrize(("statements", "count", "answer"), SCENARIOS)
def test_phases_complete_as_the_hardware_completes_them(statements: str, count: int, answer: int) -> None:
    ran = run(INIT.format(count=count) + statements + TEST + store(), threads=1, before=SHARED)
    assert not ran.result.error
    assert ran.words[0] == answer


TRAPS = [
    (arrive(3), 2),
    (arrive() + arrive(2), 2),
    (arrive_expect(16) + arrive(), 1),
    (arrive_expect(16) + arrive_expect(16), 1),
    (expect(1 << 20), 1),
    (expect((1 << 20) - 1) + expect(2), 1),
    (complete((1 << 20) - 1) + complete(1), 1),
]


@pytest.mark.parametrize(("statements", "count"), TRAPS)
def test_an_operation_beyond_the_ranges_stops_the_kernel_with_its_line(statements: str, count: int) -> None:
    ran = run(INIT.format(count=count) + statements + store(), threads=1, before=SHARED)
    assert ran.error == "cudaErrorLaunchFailure"
    assert ran.rules == {"barrier-protocol"}
    assert ran.result.findings[0].line > 1


def test_a_wait_that_nobody_satisfies_is_a_deadlock_with_the_barriers_state() -> None:
    body = (
        INIT.format(count=2) + arrive() + "w: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;\n@!%p1 bra w;\n"
    )
    ran = run(body + store(), threads=1, before=SHARED)
    assert ran.error == "deadlock"
    (finding,) = ran.result.findings
    assert "phase 0 in progress, 1 of 2 arrivals still missing, 0 tx-bytes outstanding" in finding.state[0]
    assert "parity 0" in finding.state[0]


def test_outstanding_bytes_are_named_in_a_deadlock() -> None:
    wait = "w: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;\n@!%p1 bra w;\n"
    ran = run(INIT.format(count=1) + arrive_expect(128) + wait, threads=1, before=SHARED)
    assert "0 of 1 arrivals still missing, 128 tx-bytes outstanding" in ran.result.findings[0].state[0]


@pytest.mark.parametrize("tries", [1, 5, 300])
def test_a_loop_that_gives_up_waiting_goes_on(tries: int) -> None:
    wait = "mov.u32 %r3, 0;\nw: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;\n@%p1 bra o;\n"
    wait += f"add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, {tries};\n@%p2 bra w;\no: mov.u32 %r1, %r3;\n"
    ran = run(INIT.format(count=1) + wait + store(), threads=1, before=SHARED)
    assert not ran.error
    assert ran.words[0] == tries


def test_a_loop_that_counts_its_tries_for_ever_is_a_deadlock() -> None:
    wait = "mov.u32 %r1, 0;\nw: add.u32 %r1, %r1, 1;\n"
    wait += "mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;\n@!%p1 bra w;\n"
    ran = run(INIT.format(count=1) + wait + store(), threads=1, before=SHARED)
    assert ran.error == "deadlock"


def test_a_spin_on_test_wait_is_found_too() -> None:
    wait = "w: mbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], 0;\n@!%p1 bra w;\n"
    assert run(INIT.format(count=1) + wait, threads=1, before=SHARED).error == "deadlock"


def test_a_failing_try_wait_gives_up_so_that_a_bounded_loop_ends() -> None:
    body = (
        INIT.format(count=1)
        + """mov.u32 %r1, 0;
        w: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
        add.u32 %r1, %r1, 1; setp.lt.u32 %p2, %r1, 2; and.pred %p2, %p2, %p1; not.pred %p3, %p1; @%p3 bra out;
        out: """
        + store()
    )
    ran = run(body, threads=1, before=SHARED)
    assert not ran.result.error
    assert ran.words[0] == 1


def test_lanes_that_wait_do_not_starve_the_lane_that_arrives() -> None:
    body = (
        INIT.format(count=1)
        + """setp.eq.u32 %p2, %r50, 7; @%p2 bra give;
        w: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;
        @!%p1 bra w; bra done;
        give: mbarrier.arrive.shared::cta.b64 _, [bar];
        done: mov.u32 %r1, 5;
        """
        + store()
    )
    ran = run(body, threads=64, before=SHARED)
    assert not ran.result.error
    assert set(ran.words.tolist()) == {5}


def test_a_token_waits_for_the_phase_of_its_arrive() -> None:
    body = (
        INIT.format(count=32)
        + """mbarrier.arrive.shared::cta.b64 %d1, [bar];
        w: mbarrier.try_wait.shared::cta.b64 %p1, [bar], %d1;
        @!%p1 bra w;
        mbarrier.pending_count.b64 %r1, %d1;
        """
        + store()
    )
    ran = run(body, before=SHARED)
    assert not ran.result.error
    assert sorted(ran.words.tolist()) == list(range(1, 33))


def test_use_before_initialisation_is_found() -> None:
    ran = run(expect(16) + complete(16), threads=1, before=SHARED)
    assert "uninitialised-barrier" in ran.rules


def test_initialisation_that_nothing_orders_before_the_use_is_found() -> None:
    warps = "mbarrier.try_wait.parity.shared::cta.b64 %p8, [bar], 1;\n"
    body = "setp.ne.u32 %p9, %r50, 0;\n@!%p9 mbarrier.init.shared::cta.b64 [bar], 64;\n{sync}" + warps + arrive()
    assert "uninitialised-barrier" in run(body.format(sync=""), threads=64, before=SHARED).rules
    assert not run(body.format(sync="bar.sync 0;\n"), threads=64, before=SHARED).rules
