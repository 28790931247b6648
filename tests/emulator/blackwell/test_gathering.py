"""tcgen05 instructions for whole warps: lanes that come early wait for those that are elsewhere (`.sync`)."""

from __future__ import annotations

import pytest
from tests.emulator.blackwell.products import AFTER, COMMIT, WAIT
from tests.emulator.blackwell.test_products import BF16, accumulator, made
from tests.emulator.blackwell.tiny import ALLOC, SCHEDULES, run


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_lane_that_comes_from_issuing_waits_for_those_that_wait_for_its_commit(schedule: str) -> None:
    case, expected = made(BF16, 128, 32, 2, (0, 0))
    signal = "mbarrier.arrive.shared::cta.b64 _, [bar+8];\n"
    own = WAIT.format(phase=0).replace("wait0", "own")
    issue = own.replace("[bar]", "[bar+8]").replace("own", "asked") + (case.body + COMMIT).replace("@%p19 ", "") + own
    case.setup += "@%p19 mbarrier.init.shared::cta.b64 [bar+8], 1;\nbar.sync 0;\n"
    case.setup += "setp.eq.u32 %p13, %r350, 32;\n@%p13 " + signal
    case.body = "@!%p19 bra joined;\n" + issue + "bra ready;\njoined:\n"
    ran = case.run(schedule, wait=WAIT.format(phase=0) + "ready:\n" + AFTER)
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(128, 32) == expected).all()


def test_a_load_of_a_part_of_a_warp_is_still_refused() -> None:
    body = ALLOC.format(columns=32) + "setp.lt.u32 %p1, %r350, 16; @!%p1 bra other;\n"
    body += "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r300];\nother: bar.sync 2, 64;\n"
    ran = run(body, 32)
    assert ran.error == "cudaErrorIllegalInstruction"
    assert "is for whole warps" in ran.messages
