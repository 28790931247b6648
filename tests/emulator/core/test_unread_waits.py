"""A wait for an mbarrier whose answer nobody looks at is no wait."""

from __future__ import annotations

import pytest
from tests.emulator.core.small import run

BEFORE = ".shared .align 128 .b32 cell[64];\n.shared .align 8 .b64 bar;\n"
# Warp 0 writes a word per lane and arrives, warp 1 waits and reads them.
HANDED = """
mov.u32 %r40, cell; and.b32 %r41, %r50, 31; shl.b32 %r41, %r41, 2; add.u32 %r42, %r40, %r41;
setp.eq.u32 %p1, %r50, 0; setp.lt.u32 %p2, %r50, 32;
@%p1 mbarrier.init.shared::cta.b64 [bar], 32;
bar.sync 0;
@!%p2 bra READ;
st.shared.u32 [%r42], %r50;
mbarrier.arrive.shared::cta.b64 _, [bar];
bra DONE;
READ:
mbarrier.try_wait.parity.shared::cta.b64 %p3, [bar], 0;
BACK
ld.shared.u32 %r43, [%r42];
st.global.u32 [%d51], %r43;
DONE:
"""


@pytest.mark.parametrize(("back", "found"), [("@!%p3 bra READ;", False), ("", True)])
def test_a_try_wait_orders_nothing_unless_its_answer_is_read(back: str, found: bool) -> None:
    assert bool(run(HANDED.replace("BACK", back), 64, before=BEFORE, races=True).rules) == found


def test_a_try_wait_whose_answer_is_read_elsewhere_still_waits() -> None:
    back = "selp.u32 %r44, 1, 0, %p3;\nsetp.eq.u32 %p4, %r44, 0;\n@%p4 bra READ;"
    assert run(HANDED.replace("BACK", back), 64, before=BEFORE, races=True).rules == set()
