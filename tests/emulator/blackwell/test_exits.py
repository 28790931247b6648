"""Threads that have exited: barriers of all threads wait for nobody of them, and so come behind all that they did."""

from __future__ import annotations

import pytest
from tests.emulator.blackwell.tiny import ALLOC, SCHEDULES, run

TOUCH = """
tcgen05.st.sync.aligned.32x32b.x1.b32 [%r301], {%r350}; tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r301]; tcgen05.wait::ld.sync.aligned;
st.global.u32 [%d51], %r1;
"""
LEAVE = "setp.ne.u32 %p1, %r354, 0; @%p1 exit;\n"
FREE = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r300, 32;\n"
BARRIERS = ("bar.sync 0;\n", "barrier.cluster.arrive; barrier.cluster.wait;\n")


@pytest.mark.parametrize("barrier", BARRIERS)
@pytest.mark.parametrize("races", [False, True])
@pytest.mark.parametrize("schedule", SCHEDULES[:3])
def test_a_barrier_of_all_threads_comes_behind_those_that_exited(barrier: str, schedule: str, races: bool) -> None:
    ran = run(ALLOC.format(columns=32) + TOUCH + LEAVE + barrier + FREE, schedules=(schedule,), races=races)
    assert not ran.result.findings
    assert ran.words.tolist() == list(range(128))


def test_without_a_barrier_nothing_says_that_they_have_exited() -> None:
    ran = run(ALLOC.format(columns=32) + TOUCH + LEAVE + FREE)
    assert "overwrite-before-release" in ran.rules


def test_a_barrier_that_names_a_count_does_not_wait_for_their_exit() -> None:
    ran = run(ALLOC.format(columns=32) + TOUCH + LEAVE + "bar.sync 0, 32;\n" + FREE)
    assert "overwrite-before-release" in ran.rules
