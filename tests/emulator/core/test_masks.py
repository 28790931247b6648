"""Membermasks of exchanges within a warp: a thread that its own mask leaves out is undefined (PTX ISA 9.0, 9.7.13)."""

from __future__ import annotations

import pytest
from tests.emulator.core.small import run, store

LOW = "setp.lt.u32 %p1, %r50, 8;\n"
EXCHANGES = {
    "redux": "redux.sync.add.u32 %r1, %r50, {mask};",
    "shfl": "shfl.sync.bfly.b32 %r1, %r50, 1, 31, {mask};",
    "vote": "vote.sync.ballot.b32 %r1, %p1, {mask};",
    "match": "match.any.sync.b32 %r1, %r50, {mask};",
    "bar": "bar.warp.sync {mask}; mov.u32 %r1, 1;",
}


@pytest.mark.parametrize("opcode", EXCHANGES)
@pytest.mark.parametrize("mask", ["0xff", "%r2"])
def test_a_lane_outside_of_its_own_mask_is_an_error(opcode: str, mask: str) -> None:
    ran = run("mov.u32 %r2, 0xff;\n" + LOW + EXCHANGES[opcode].format(mask=mask) + store())
    assert ran.rules == {"outside-membermask"}
    assert "lanes 8 to 31 of a warp of CTA 0,0,0" in ran.result.findings[0].message


@pytest.mark.parametrize("opcode", EXCHANGES)
@pytest.mark.parametrize("mask", ["0xffffffff", "-1", "%r2"])
def test_lanes_that_their_mask_names_are_none(opcode: str, mask: str) -> None:
    ran = run("mov.u32 %r2, -1;\n" + LOW + EXCHANGES[opcode].format(mask=mask) + store())
    assert ran.result.ok


def test_lanes_that_do_not_execute_need_not_be_named() -> None:
    ran = run(LOW + "mov.u32 %r1, 0; @%p1 redux.sync.add.u32 %r1, %r50, 0xff;" + store(), threads=64)
    assert ran.result.ok
    assert ran.words.tolist() == [28] * 8 + [0] * 56
