"""Finds lanes that take part in an exchange whose membermask leaves them out; knows no memory."""

from __future__ import annotations

from ptxbench.emulator.checks.observer import Observer
from ptxbench.emulator.checks.texts import Reporter
from ptxbench.emulator.machine.spaces import Lanes
from ptxbench.emulator.machine.unit import Unit
from ptxbench.emulator.report import Finding

_WARP = 32


class Masks(Observer):
    """Reports what the ISA leaves undefined: a thread executes an exchange and is not in its membermask."""

    def __init__(self, report: Reporter) -> None:
        self.report = report

    def outside_mask(self, unit: Unit, lanes: Lanes, what: tuple[str, int]) -> None:
        """Lanes of a unit execute `what`, a name and its line, which their mask does not name."""
        name, line = what
        warp = int(lanes[0]) // _WARP
        those = (lanes[lanes // _WARP == warp] % _WARP).tolist()
        message = f"{name} (line {line}) is executed by lanes {_ranges(those)} of a warp of {unit.cta.name()}, "
        message += "which are not in its membermask"
        hint = "name every lane that executes it in the mask, or let only the named ones execute it"
        warps = (f"{unit.cta.name()} warps {unit.warp_numbers(None)[warp : warp + 1]}",)
        self.report.add(Finding("outside-membermask", "error", message, line, warps=warps, hint=hint))


def _ranges(numbers: list[int]) -> str:
    """`8 to 31`, or `3, 5 to 7`."""
    parts: list[list[int]] = []
    for each in numbers:
        if parts and parts[-1][-1] == each - 1:
            parts[-1].append(each)
        else:
            parts.append([each])
    return ", ".join(f"{each[0]} to {each[-1]}" if len(each) > 1 else str(each[0]) for each in parts)
