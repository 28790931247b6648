"""A unit: lanes that run together; its registers, where its lanes are, what they wait for; no scheduling.

Lanes at the same block form a group; the mask None means all lanes of the unit, of which then none has exited. Lanes
beyond the CTA's threads count as exited from the start.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cta import Cta

Mask = NDArray[np.bool_]
Lanes = NDArray[Any]
"""One value per lane, or per active lane."""
Answer: TypeAlias = Any
"""What a block's function answers: a predicate over lanes, a tuple of arrays, or None."""
WARP = 32
_LOOK = 4096


class Waiter(Protocol):
    """What a blocking instruction leaves behind for lanes that cannot go on."""

    mask: Mask
    """Which lanes wait."""
    line: int
    """PTX line of the instruction."""

    def poke(self, unit: Unit, patience: int) -> bool:
        """Let lanes go on if they can; whether any did.

        Args:
            unit: The unit that waits.
            patience: 0 only all lanes together, 1 those that can, 2 also those for which giving up is allowed.
        """
        ...

    def describe(self, unit: Unit) -> str:
        """For a report: what must happen."""
        ...


@dataclass
class Unit:
    """Lanes `first`..`first + lanes - 1` of a CTA."""

    cta: Cta
    index: int
    first: int
    lanes: int
    registers: list[Any]
    constants: list[Any]
    live: Mask
    groups: dict[int, Mask | None] = field(default_factory=dict)
    waits: list[Waiter] = field(default_factory=list)
    polled: bool = False
    hurried: bool = False
    """Whether a part of a warp goes on without its other lanes, since nothing else can."""
    """Whether the last block asked for something that only others can change."""
    queued: bool = False
    """Whether the scheduler has it among the runnable ones."""
    local: Any = None
    stack: Any = None
    """Per lane the first free offset of its local stack."""
    cluster_round: Any = None
    """Per lane: the round of the cluster barrier in which it arrived last."""
    owed: set[int] = field(default_factory=set)
    """Register slots whose value an asynchronous product still owes."""
    lent: set[int] = field(default_factory=set)
    """Register slots that an asynchronous product may still read."""
    matrices: Any = None
    """State of wgmma, kept by its own part."""
    copies: Any = None
    """Commit groups of asynchronous copies, kept by their own part."""
    rotation: int = 0
    held: int = 0
    """Registers per thread after a `setmaxnreg`; 0: as launched."""
    ticks: int = 0
    line: int = 0
    """PTX line of the last instruction that concerned the machine."""
    tally: Any = None
    """Counts guarded instructions."""
    knowledge: Any = None
    everyone: Any = None
    mask: Any = None
    """Of the group that runs."""
    latest: tuple[Any, Any] = (None, None)
    """What the checks know about its order with others."""

    @property
    def warps(self) -> int:
        """Number of warps, exited ones included."""
        return self.lanes // WARP

    @property
    def done(self) -> bool:
        """Whether all lanes have exited."""
        return not self.groups and not self.waits

    def full(self, mask: Mask | None) -> Mask:
        """A mask as an array."""
        if mask is not None:
            return mask
        if self.everyone is None:
            self.everyone = np.ones(self.lanes, np.bool_)
        made: Mask = self.everyone
        return made

    def clock(self, shift: int, dtype: str) -> Lanes:
        """A time that goes forward with every look at it; it measures nothing."""
        cluster = self.cta.cluster
        self.ticks += _LOOK
        self.polled = True
        # Whoever waits for a time will see it come.
        cluster.changed += 1
        made: Lanes = np.full(self.lanes, (cluster.kernel.spent + self.ticks) >> shift).astype(dtype)
        return made

    def active(self, mask: Mask | None) -> Lanes:
        """The lanes of a mask; the answer for the last mask is kept, since a group runs on with the same one."""
        if mask is None:
            mask = self.full(None)
        if self.latest[0] is not mask:
            self.latest = (mask, np.flatnonzero(mask))
        found: Lanes = self.latest[1]
        return found

    def add(self, block: int, mask: Mask | None) -> None:
        """Lanes arrive at a block."""
        there = self.groups.get(block, False)
        if there is False:
            if mask is not None and len(self.groups) == 0 and not self.waits and np.count_nonzero(mask) == mask.size:
                mask = None
            self.groups[block] = mask
            return
        assert mask is not None
        assert there is not None
        merged = there | mask
        self.groups[block] = None if len(self.groups) == 1 and np.count_nonzero(merged) == merged.size else merged

    def leave(self, mask: Mask | None) -> None:
        """Lanes exit."""
        before = int(np.count_nonzero(self.live))
        if mask is None:
            self.live = np.zeros(self.lanes, np.bool_)
        else:
            self.live = self.live & ~mask
        self.cta.live -= before - int(np.count_nonzero(self.live))

    def warps_of(self, mask: Mask | None) -> int:
        """Number of warps with a lane in the mask."""
        if mask is None:
            return self.lanes // WARP
        if self.lanes == WARP:
            return int(mask.any())
        return int(np.count_nonzero(np.packbits(mask).view(np.uint32)))

    def warp_numbers(self, mask: Mask | None) -> list[int]:
        """The warps of the CTA that have a lane in the mask."""
        first = self.first // WARP
        if mask is None:
            return list(range(first, first + self.lanes // WARP))
        return [first + int(each) for each in np.flatnonzero(mask.reshape(-1, WARP).any(axis=1))]
