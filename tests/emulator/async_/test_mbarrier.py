"""The mbarrier against what an H200 answered: sequences of operations, the tests of both parities after each."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.emulator.async_ import mbarrier as mb
from ptxbench.emulator.errors import Fault

Step = tuple[str, int] | tuple[str]
RUN: dict[str, Callable[..., mb.Barrier]] = {
    "init": lambda _, count: mb.init(count),
    "arrive": lambda barrier, count=1: mb.arrive(barrier, count),
    "drop": lambda barrier, count=1: mb.arrive(barrier, count, drop=True),
    "expect": mb.expect_tx,
    "complete": mb.complete_tx,
    "arrive_expect": mb.arrive_expect_tx,
    "memory": lambda _, bits: mb.from_bits(bits),
    "later": mb.copies_arrive_later,
}
MAX = (1 << 20) - 1


def run(steps: list[Step]) -> str:
    """One letter per step: parity of the phase (0: test(0) false, test(1) true), `!` for a trap that ends all."""
    barrier = mb.Barrier(0, 0, 0)
    seen = ""
    for name, *operand in steps:
        try:
            barrier = RUN[name](barrier, *operand)
        except Fault as fault:
            return seen + ("!" if fault.error == "cudaErrorLaunchFailure" else fault.error)
        assert mb.test_parity(barrier, 0) != mb.test_parity(barrier, 1)
        seen += str(int(mb.test_parity(barrier, 0)))
    return seen


# (steps, answers of the H200)
MEASURED: list[tuple[list[Step], str]] = [
    ([("init", 1), ("arrive_expect", 16), ("complete", 16), ("arrive",), ("arrive",)], "00101"),
    ([("init", 1), ("complete", 16), ("arrive",), ("expect", 16), ("expect", 0), ("complete", 0)], "000111"),
    ([("init", 1), ("complete", 16), ("arrive",), ("expect", 16), ("complete", 16), ("arrive",)], "000111"),
    ([("init", 1), ("complete", 16), ("arrive",), ("expect", 32), ("complete", 16)], "00001"),
    ([("init", 1), ("complete", 16), ("arrive_expect", 16)], "001"),
    ([("init", 1), ("expect", 0), ("complete", 0), ("arrive_expect", 0)], "0001"),
    ([("init", 2), ("complete", 0), ("arrive",), ("arrive",)], "0001"),
    ([("init", 2), ("arrive", 3)], "0!"),
    ([("init", 2), ("arrive",), ("arrive", 2)], "00!"),
    ([("init", 1), ("arrive_expect", 16), ("arrive",)], "00!"),
    ([("init", 1), ("arrive_expect", 16), ("arrive_expect", 16)], "00!"),
    ([("init", 1), ("complete", 16), ("arrive",), ("arrive",)], "000!"),
    ([("init", 1), ("arrive", 0), ("arrive", 1 << 20)], "00!"),
    ([("init", 1), ("expect", MAX), ("expect", 1), ("arrive",), ("complete", MAX), ("complete", 1)], "000001"),
    ([("init", 2), ("expect", MAX), ("expect", 1), ("complete", 1), ("complete", MAX), ("arrive",)], "000000"),
    ([("init", 1), ("expect", MAX), ("expect", 2)], "00!"),
    ([("init", 1), ("expect", MAX), ("arrive_expect", 17)], "00!"),
    ([("init", 1), ("expect", MAX), ("expect", MAX)], "00!"),
    ([("init", 1), ("expect", 1 << 20)], "0!"),
    ([("init", 1), ("expect", (1 << 20) + 16)], "0!"),
    ([("init", 1), ("expect", 0xFFFF_FFF0)], "0!"),
    ([("init", 1), ("arrive_expect", 1 << 20)], "0!"),
    ([("init", 2), ("complete", MAX - 1), ("complete", 1), ("complete", 1)], "000!"),
    ([("init", 1), ("arrive_expect", 64), ("init", 2), ("complete", 64), ("arrive",), ("arrive",)], "000000"),
    ([("init", 2), ("complete", 64), ("arrive",), ("arrive",), ("expect", 64), ("complete", 64)], "000011"),
    ([("init", 0), ("arrive",)], "0!"),
    ([("init", 0), ("expect", 16), ("complete", 16), ("complete", 0)], "0010"),
    ([("init", MAX), ("arrive", MAX - 1), ("arrive",)], "001"),
    ([("init", 1 << 20), ("arrive",)], "0!"),
    ([("init", (1 << 20) + 3), ("arrive",), ("arrive",), ("arrive",)], "1111"),
    ([("init", 2), ("drop",), ("arrive",), ("arrive",), ("drop",), ("arrive",)], "00101!"),
    ([("init", 1), ("arrive_expect", 16), ("complete", 32), ("expect", 16), ("arrive",), ("complete", 0)], "000100"),
    ([("memory", 0), ("expect", 16), ("complete", 16)], "001"),
    ([("memory", 0), ("arrive",)], "0!"),
    ([("memory", (1 << 64) - 1), ("arrive",)], "1!"),
    ([("memory", 0x3F80_0000_3F80_0000), ("arrive",), ("arrive",)], "000"),
    ([("init", 1), ("later",), ("complete", 1), ("arrive",)], "0001"),
    ([("init", 2), ("arrive",), ("arrive",)], "001"),
]


@pytest.mark.parametrize(("steps", "answers"), MEASURED)
def test_a_barrier_answers_as_the_hardware_did(steps: list[Step], answers: str) -> None:
    assert run(steps) == answers


@pytest.mark.parametrize(
    ("steps", "bits"),
    [
        ([("init", 5)], 0x7FFF_D800_001F_FFF6),
        ([("init", 5), ("arrive",)], 0x7FFF_E000_001F_FFF6),
        ([("init", 5), ("expect", 16)], 0x7FFF_DBFF_FE1F_FFF6),
        ([("init", 5), ("complete", 16)], 0x7FFF_D800_021F_FFF6),
        ([("init", 5), ("expect", MAX)], 0x7FFF_DA00_003F_FFF6),
        ([("init", 5), ("drop",)], 0x7FFF_E000_001F_FFF8),
        ([("init", 1), ("arrive",)], 0xFFFF_F800_001F_FFFE),
        ([("init", 1), ("arrive_expect", 64)], 0x0000_03FF_F81F_FFFE),
        ([("init", 2), ("arrive",), ("arrive",)], 0xFFFF_F000_001F_FFFC),
    ],
)
def test_inval_leaves_the_bits_that_the_hardware_left(steps: list[Step], bits: int) -> None:
    barrier = mb.Barrier(0, 0, 0)
    for name, *operand in steps:
        barrier = RUN[name](barrier, *operand)
    assert mb.to_bits(barrier) == bits
    assert mb.from_bits(bits) == barrier


def test_a_token_tells_the_arrivals_that_were_pending_before_its_arrive() -> None:
    barrier = mb.init(4)
    first = mb.token(barrier)
    barrier = mb.arrive(barrier)
    second = mb.token(barrier)
    barrier = mb.arrive(barrier, 2)
    assert (mb.pending_count(first), mb.pending_count(second)) == (4, 3)
    assert not mb.test_token(barrier, first)
    assert mb.test_token(mb.arrive(barrier), first)


def test_an_operation_changes_no_barrier_but_makes_a_new_one() -> None:
    barrier = mb.init(2)
    mb.arrive_expect_tx(barrier, 128)
    assert barrier == mb.init(2)


def test_a_description_names_what_the_phase_waits_for() -> None:
    assert mb.describe(mb.expect_tx(mb.init(2), 128)) == (
        "phase 0 in progress, 2 of 2 arrivals still missing, 128 tx-bytes outstanding"
    )


@given(st.integers(1, MAX), st.integers(0, MAX), st.integers(-MAX, 1 << 20), st.integers(0, 1))
def test_bits_and_fields_are_the_same_thing(expected: int, pending: int, tx: int, phase: int) -> None:
    barrier = mb.Barrier(phase, pending, expected, tx)
    assert mb.from_bits(mb.to_bits(barrier)) == barrier


@given(st.integers(1, 50), st.lists(st.integers(0, 3000), max_size=20), st.randoms(use_true_random=False))
def test_a_phase_completes_once_when_all_arrivals_and_bytes_have_come_in_any_order(
    count: int, copies: list[int], random: Random
) -> None:
    barrier = mb.init(count + 1)
    steps: list[Step] = [("arrive",)] * count
    for size in copies:
        steps += [("expect", size)]
    random.shuffle(steps)
    for name, *operand in steps:
        barrier = RUN[name](barrier, *operand)
    for size in random.sample(copies, len(copies)):
        barrier = mb.complete_tx(barrier, size)
        assert barrier.phase == 0  # one arrival is still missing
    assert mb.arrive(barrier) == mb.Barrier(1, count + 1, count + 1)
