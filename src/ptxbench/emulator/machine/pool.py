"""Registers that warps hand to each other with `setmaxnreg`; what the registers hold is not known here.

A CTA has as many as it was launched with (H200: launch registers times warps), however many the multiprocessor has.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxbench.emulator.machine.unit import Mask, Unit


@dataclass(eq=False)
class RegisterWait:
    """Warps that wait for `value` registers per thread."""

    mask: Mask
    line: int
    following: int
    value: int

    def take(self, unit: Unit) -> bool:
        """Change the unit's share if the pool allows it."""
        cta = unit.cta
        held = unit.held or cta.cluster.kernel.shape.registers
        needed = (self.value - held) * unit.warps_of(self.mask)
        if needed > cta.pool:
            return False
        cta.pool -= needed
        unit.held = self.value
        cta.cluster.changed += 1
        if needed < 0:
            for other in cta.units:
                cta.cluster.wake(other)
        return True

    def poke(self, unit: Unit, patience: int) -> bool:
        """Try again."""
        if not self.take(unit):
            return False
        unit.waits.remove(self)
        unit.add(self.following, self.mask)
        return True

    def describe(self, unit: Unit) -> str:
        """What must happen."""
        held = unit.held or unit.cta.cluster.kernel.shape.registers
        free = unit.cta.pool // max(unit.warps_of(self.mask), 1)
        return f"setmaxnreg.inc from {held} to {self.value} registers per thread, the CTA's pool has {free} left"
