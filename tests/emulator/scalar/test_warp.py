"""Exchange between lanes against loops over the lanes; what an H200's shuffles answered is in `test_hardware`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

Execute = Callable[..., Any]
FULL = 0xFFFFFFFF
few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
masks = st.integers(1, FULL)
values = st.lists(st.integers(0, 3), min_size=32, max_size=32)


def _active(mask: int) -> list[bool]:
    return [bool(mask >> lane & 1) for lane in range(32)]


def _lanes(mask: int) -> list[int]:
    return [lane for lane in range(32) if mask >> lane & 1]


def _mask(lanes: list[int]) -> int:
    return sum(1 << lane for lane in lanes)


@few
@given(masks, values)
def test_votes_and_matches_are_over_the_executing_lanes(execute: Execute, mask: int, numbers: list[int]) -> None:
    active, lanes = _active(mask), _lanes(mask)
    true = [each > 1 for each in numbers]
    named = [mask] * 32
    first = lanes[0]

    def vote(mode: str) -> bool:
        return bool(execute(f"vote.sync.{mode}.pred %p1, %p2, %r1;", true, named, active=active)[first])

    assert vote("all") == all(true[lane] for lane in lanes)
    assert vote("any") == any(true[lane] for lane in lanes)
    assert vote("uni") == (len({true[lane] for lane in lanes}) == 1)
    ballot = execute("vote.sync.ballot.b32 %r2, %p2, %r1;", true, named, active=active)
    assert ballot[first] == _mask([lane for lane in lanes if true[lane]])
    same = execute("match.any.sync.b32 %r2, %r3, %r1;", numbers, named, active=active)
    for lane in lanes:
        assert same[lane] == _mask([other for other in lanes if numbers[other] == numbers[lane]])
    agreed, answer = execute("match.all.sync.b32 %r2|%p1, %r3, %r1;", numbers, named, active=active)
    unanimous = len({numbers[lane] for lane in lanes}) == 1
    assert (agreed[first], answer[first]) == (mask if unanimous else 0, unanimous)


@few
@given(masks, st.lists(st.integers(0, FULL), min_size=32, max_size=32))
def test_redux_reduces_the_executing_lanes(execute: Execute, mask: int, numbers: list[int]) -> None:
    lanes = _lanes(mask)
    chosen = [numbers[lane] for lane in lanes]
    signed = [each - 2**32 if each >> 31 else each for each in chosen]
    ands, ors, xors = FULL, 0, 0
    for each in chosen:
        ands, ors, xors = ands & each, ors | each, xors ^ each
    expected = {
        "add.u32": sum(chosen) & FULL,
        "add.s32": sum(chosen) & FULL,
        "min.u32": min(chosen),
        "max.u32": max(chosen),
        "min.s32": min(signed) & FULL,
        "max.s32": max(signed) & FULL,
        "and.b32": ands,
        "or.b32": ors,
        "xor.b32": xors,
    }
    for name, result in expected.items():
        made = execute(f"redux.sync.{name} %r1, %r2, %r3;", numbers, [mask] * 32, active=_active(mask))
        assert {made[lane] for lane in lanes} == {result}


@pytest.mark.parametrize(
    ("mask", "executing", "leader"),
    [
        (0xFFFFFFFF, 0xFFFFFFFF, 0),
        (0xFFFFFFF0, 0xFFFFFFF0, 4),
        (0x80000000, 0x80000000, 31),
        (0x00010100, 0x00010100, 8),
        (0xAAAAAAAA, 0xAAAAAAAA, 1),
        (0xFFFFFFF0, 0xFFFFFFFF, 0),
        (0x000000F0, 0x000000FF, 0),
        (0xFFFFFFFF, 0xFFFF0000, 16),
    ],
)
def test_elect_takes_the_lowest_executing_lane(mask: int, executing: int, leader: int, execute: Execute) -> None:
    """The cases that an H200 was asked."""
    number, chosen = execute("elect.sync %r1|%p1, %r2;", [mask] * 32, active=_active(executing))
    assert set(number) == {leader}
    assert chosen == _active(1 << leader)


def test_lanes_that_do_not_execute_are_no_source(execute: Execute) -> None:
    """Lanes 16 to 31 have left: an H200's ballot has zeros for them and a shuffle from them reads 0."""
    active = _active(0xFFFF)
    ballot = execute("vote.sync.ballot.b32 %r1, %p1, %r2;", [True] * 32, [FULL] * 32, active=active)
    assert ballot[0] == 0xFFFF
    numbers = list(range(100, 132))
    moved = execute(
        "shfl.sync.idx.b32 %r1, %r2, %r3, %r4, %r5;",
        numbers,
        [(lane + 16) & 31 for lane in range(32)],
        [0x1F] * 32,
        [FULL] * 32,
        active=active,
    )
    assert moved[3] == 0
    assert execute("activemask.b32 %r1;", active=active)[0] == 0xFFFF


def test_each_warp_of_a_unit_is_on_its_own(execute: Execute) -> None:
    numbers = list(range(64))
    moved = execute(
        "shfl.sync.bfly.b32 %r1, %r2, %r3, %r4, %r5;",
        numbers,
        [1] * 64,
        [0x1F] * 64,
        [FULL] * 64,
        active=[True] * 64,
    )
    assert moved == [lane ^ 1 for lane in numbers]
    sums = execute("redux.sync.add.u32 %r1, %r2, %r3;", numbers, [FULL] * 64, active=[True] * 64)
    assert sums == [sum(range(32))] * 32 + [sum(range(32, 64))] * 32


def test_floating_redux_follows_min_and_max(execute: Execute) -> None:
    bits = [0x3F800000] * 30 + [0x7FC00000, 0xC0000000]
    active = [True] * 32
    assert execute("redux.sync.min.f32 %r1, %r2, %r3;", bits, [FULL] * 32, active=active)[0] == 0xC0000000
    assert execute("redux.sync.max.abs.f32 %r1, %r2, %r3;", bits, [FULL] * 32, active=active)[0] == 0x40000000
    assert execute("redux.sync.max.NaN.f32 %r1, %r2, %r3;", bits, [FULL] * 32, active=active)[0] == 0x7FFFFFFF
