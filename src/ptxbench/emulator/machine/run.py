"""Runs the groups of a unit block by block until they wait, poll, or use up their quantum; no schedule, no memory.

Of diverged groups the lowest block goes first, so that lanes meet again where code joins. A group that stands before an
instruction for whole warps or warpgroups with only some of their lanes goes last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptxbench.emulator.errors import Fault, Trap
from ptxbench.emulator.machine.unit import WARP, Mask, Unit

if TYPE_CHECKING:
    from ptxbench.emulator.machine.kernel import Kernel


def run_unit(unit: Unit, kernel: Kernel, quantum: int) -> None:
    """Run until no group can, or `quantum` blocks have run, or all that is left polls.

    Raises:
        Trap: The kernel did something illegal, or beyond the limits.
    """
    groups, polls = unit.groups, 0
    while groups:
        pc = next(iter(groups)) if len(groups) == 1 else _pick(unit, kernel)
        if _gather(unit, kernel, pc):
            continue
        mask = groups.pop(pc)
        quantum -= _run_group(unit, kernel, pc, mask, quantum)
        if unit.polled:
            polls += 1
            if len(groups) > 1 and polls <= 2 * len(groups):
                unit.polled = False
                unit.rotation = polls
                continue
            return
        if quantum <= 0:
            return


def _run_group(unit: Unit, kernel: Kernel, pc: int, mask: Mask | None, quantum: int) -> int:
    """Run one group until it waits, meets another group, polls, or the quantum ends; how many blocks ran."""
    groups, registers, constants = unit.groups, unit.registers, unit.constants
    unit.mask = mask
    ran = 0
    warps, lanes = unit.warps_of(mask), unit.lanes if mask is None else int(np.count_nonzero(mask))
    while True:
        block = kernel.code(pc)
        if len(constants) < block.constants:
            constants.extend(kernel.constants.of(unit, kernel.specs[len(constants) :]))
        if unit.owed and not unit.owed.isdisjoint(block.slots):
            unit.matrices.settle(unit, block)
        if unit.lent and not unit.lent.isdisjoint(block.written):
            unit.matrices.overwritten(unit, block)
        try:
            code = (block.full if mask is None else block.masked) or block.function(mask)
            answer = code(registers, constants, unit, mask)
            block.warps += warps
            block.threads += lanes
            kernel.spend(block.length * warps)
            following = block.next if block.end is None else block.end(unit, mask, answer)
        except Fault as fault:
            raise kernel.trap(fault, unit, block) from fault
        ran += 1
        if following < 0:
            return ran
        if groups or unit.polled or ran >= quantum:
            unit.add(following, mask)
            return ran
        if following in kernel.collective and mask is not None:
            unit.add(following, mask)
            return ran
        pc = following


def _pick(unit: Unit, kernel: Kernel) -> int:
    """The group that runs next."""
    places = sorted(unit.groups)
    turn, unit.rotation = unit.rotation, 0
    if turn:
        places = places[turn % len(places) :] + places[: turn % len(places)]
    for pc in places:
        if pc not in kernel.collective or _whole(unit, unit.groups[pc], kernel.collective[pc]):
            return pc
    return places[0]


def _whole(unit: Unit, mask: Mask | None, lanes: int) -> bool:
    """Whether the group has all live lanes of each of its warps (or warpgroups)."""
    if mask is None:
        return True
    there, live = mask.reshape(-1, lanes), unit.live.reshape(-1, lanes)
    return bool((there == live)[there.any(axis=1)].all())


def _gather(unit: Unit, kernel: Kernel, pc: int) -> bool:
    """Make a part of a warp or warpgroup wait for the rest; whether it does.

    A part of a warp waits while other lanes wait for something else; if that never comes, the instruction refuses it.
    """
    if pc not in kernel.gathering or _whole(unit, unit.groups[pc], kernel.collective[pc]):
        return False
    alone = len(unit.groups) == 1 and all(isinstance(each, Gathering) for each in unit.waits)
    if kernel.collective[pc] <= WARP and (alone or unit.hurried):
        unit.hurried = False
        return False
    mask = unit.groups.pop(pc)
    assert mask is not None
    if not unit.groups and not unit.waits:
        raise Trap("cudaErrorIllegalInstruction", kernel.first_line(pc), "not all warps of the warpgroup take part")
    unit.waits.append(Gathering(mask, kernel.first_line(pc), pc, kernel.collective[pc]))
    return True


@dataclass(eq=False)
class Gathering:
    """Lanes of a warp or a warpgroup that wait for its other lanes."""

    mask: Mask
    line: int
    block: int
    lanes: int

    def poke(self, unit: Unit, patience: int) -> bool:
        """Try again when other lanes have moved; a part of a warp also when nothing moves any more."""
        unit.hurried = not unit.groups and patience >= 2 and self.lanes <= WARP
        if not unit.groups and not unit.hurried:
            return False
        unit.waits.remove(self)
        unit.add(self.block, self.mask)
        return True

    def describe(self, unit: Unit) -> str:
        """What must happen."""
        missing = unit.warp_numbers(unit.live & ~self.mask)
        whole = "warpgroup" if self.lanes > WARP else "warp"
        return f"an instruction for the whole {whole} waits for lanes of warps {missing}"
