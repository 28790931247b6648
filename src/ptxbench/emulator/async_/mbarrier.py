"""The mbarrier object as a value: phase, pending arrivals, expected arrivals, byte count; who waits is not known here.

Semantics: PTX ISA, section Parallel Synchronization and Communication Instructions: mbarrier; where that leaves a case
open, the answer of an H200 (sm_90a). The 64 bits are the ones a H200 leaves in memory after `mbarrier.inval`:

    bit 63 phase parity | bits 62:43 2^20 - P | bits 41:21 -T | bits 20:1 2^20 - E          (each modulo its width)
"""

from __future__ import annotations

from typing import NamedTuple

from ptxbench.emulator.errors import Fault

_COUNT = 1 << 20
_COUNT_MASK = _COUNT - 1
_TX_MASK = (1 << 21) - 1
_RESERVED = (1 << 42) | 1
_WORD = 0xFFFF_FFFF
BYTES = 8
"""Size and alignment of the object."""


class Barrier(NamedTuple):
    """One mbarrier at one moment.

    Attributes:
        phase: How many phases have completed; only its parity can be seen by a kernel.
        pending: Arrivals that the current phase still waits for, 0..2^20-1.
        expected: Arrivals that each later phase will wait for, 0..2^20-1.
        tx: Bytes expected and not yet written, -(2^20-1)..2^20.
        reserved: Bits that no barrier has; from memory that never was one.
    """

    phase: int
    pending: int
    expected: int
    tx: int = 0
    reserved: int = 0


def init(count: int) -> Barrier:
    """`mbarrier.init`: any 32-bit `count` is taken, as the hardware does; only 1..2^20-1 give a usable object."""
    if count <= _COUNT:
        return Barrier(0, count & _COUNT_MASK, count & _COUNT_MASK)
    low = (_COUNT - count) << 1 & _WORD
    high = (_COUNT - count) << 11 & _WORD
    return from_bits(high << 32 | low)


def arrive(barrier: Barrier, count: int = 1, *, drop: bool = False) -> Barrier:
    """`mbarrier.arrive` and `.noComplete` (which completes all the same); with `drop` also `arrive_drop`.

    Raises:
        Fault: More arrivals than the phase waits for, or a count that does not fit.
    """
    if barrier.reserved:
        raise _fault("an arrive on memory that holds no mbarrier")
    if not 0 <= count < _COUNT:
        raise _fault(f"an arrive with count {count}, the greatest is {_COUNT - 1}")
    if count > barrier.pending:
        raise _fault(
            f"{count} arrivals where phase {barrier.phase} waits for {barrier.pending} (tx {barrier.tx} bytes)"
        )
    expected = (barrier.expected - count) & _COUNT_MASK if drop else barrier.expected
    barrier = barrier._replace(pending=barrier.pending - count, expected=expected)
    # An arrive with count 0 leaves even a complete-looking object (init 0) as it is.
    return _completed(barrier) if count else barrier


def expect_tx(barrier: Barrier, count: int) -> Barrier:
    """`mbarrier.expect_tx`: `count` further bytes; completes the phase when that brings the byte count to 0.

    Raises:
        Fault: An operand of 2^20 or more (or negative, read as u32), or a sum beyond 2^20.
    """
    return _completed(_with_tx(barrier, count, 1))


def complete_tx(barrier: Barrier, count: int) -> Barrier:
    """`mbarrier.complete_tx`, and what a copy of `count` bytes does when its data has landed.

    Raises:
        Fault: An operand of 2^20 or more, or a sum below -(2^20 - 1).
    """
    return _completed(_with_tx(barrier, count, -1))


def arrive_expect_tx(barrier: Barrier, count: int, *, drop: bool = False) -> Barrier:
    """`mbarrier.arrive.expect_tx`: the bytes first, then one arrival; the phase is not checked in between.

    Raises:
        Fault: As `expect_tx` and `arrive`.
    """
    return arrive(_with_tx(barrier, count, 1), drop=drop)


def copies_arrive_later(barrier: Barrier) -> Barrier:
    """`cp.async.mbarrier.arrive` when it is issued: the phase waits for one thing more (a byte, not an arrival).

    When the thread's earlier `cp.async` are done, `complete_tx(barrier, 1)` follows. The form `.noinc` does nothing
    now and `arrive(barrier)` then.
    """
    return _with_tx(barrier, 1, 1)


def test_parity(barrier: Barrier, parity: int) -> bool:
    """`test_wait.parity` and `try_wait.parity`: whether the phase with this parity has completed."""
    return (barrier.phase ^ parity) & 1 == 1


def test_token(barrier: Barrier, token: int) -> bool:
    """`test_wait` and `try_wait` with the token of an arrive: whether the phase of that arrive has completed."""
    return (barrier.phase ^ token >> 63) & 1 == 1


def token(barrier: Barrier) -> int:
    """What an arrive returns: the bits of the barrier before it."""
    return to_bits(barrier)


def pending_count(token: int) -> int:
    """`mbarrier.pending_count`: arrivals that were missing before the arrive that gave `token`."""
    return -(token >> 43) & _COUNT_MASK


def to_bits(barrier: Barrier) -> int:
    """The 64 bits that `mbarrier.inval` leaves in memory."""
    phase = (barrier.phase & 1) << 63
    pending = (-barrier.pending & _COUNT_MASK) << 43
    tx = (-barrier.tx & _TX_MASK) << 21
    return phase | pending | tx | (-barrier.expected & _COUNT_MASK) << 1 | barrier.reserved


def from_bits(bits: int) -> Barrier:
    """Ordinary memory taken for a barrier that nobody has initialised."""
    negative = bits >> 21 & _TX_MASK
    return Barrier(
        phase=bits >> 63 & 1,
        pending=pending_count(bits),
        expected=-(bits >> 1) & _COUNT_MASK,
        tx=-(negative - (1 << 21) if negative >> 20 else negative),
        reserved=bits & _RESERVED,
    )


def describe(barrier: Barrier) -> str:
    """For a report: what the phase still waits for."""
    return (
        f"phase {barrier.phase} in progress, {barrier.pending} of {barrier.expected} arrivals still missing, "
        f"{barrier.tx} tx-bytes outstanding"
    )


def _with_tx(barrier: Barrier, count: int, sign: int) -> Barrier:
    if not 0 <= count < _COUNT:
        raise _fault(f"a byte count of {count}, the greatest is {_COUNT - 1}")
    tx = barrier.tx + sign * count
    if not -_COUNT < tx <= _COUNT:
        raise _fault(f"the byte count of phase {barrier.phase} becomes {tx}, outside -(2^20-1)..2^20")
    return barrier._replace(tx=tx)


def _completed(barrier: Barrier) -> Barrier:
    if barrier.pending or barrier.tx:
        return barrier
    return barrier._replace(phase=barrier.phase + 1, pending=barrier.expected)


def _fault(reason: str) -> Fault:
    return Fault("cudaErrorLaunchFailure", f"mbarrier: {reason}")
