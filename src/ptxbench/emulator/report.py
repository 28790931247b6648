"""Findings as values: what is wrong, where, who was involved, what would mend it; decides no verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ptxbench.emulator.ptx.ir import Location

Severity = Literal["error", "warning", "lint"]


@dataclass(frozen=True)
class Place:
    """Where a line of PTX comes from, as somebody looks for it who knows the kernel better than its helpers.

    Attributes:
        file, line: The user's: where the helper around the line is called, or, where there is none, the line itself.
        inlined: What is inlined there, outermost first: `tma_load at helpers.cuh:33`; the last one is the line itself.
    """

    file: str
    line: int
    inlined: tuple[str, ...] = ()

    @classmethod
    def of(cls, location: Location) -> Place:
        """The user's line is the innermost one in another file than the line itself, else the one around it."""
        chain = [location]
        while (around := chain[-1].inlined_at) is not None:
            chain.append(around)
        other = next((at for at, each in enumerate(chain) if each.file != location.file), min(1, len(chain) - 1))
        inlined = tuple(
            f"{each.function or 'a function'} at {_short(each.file)}:{each.line}" for each in reversed(chain[:other])
        )
        return cls(chain[other].file, chain[other].line, inlined)

    def __str__(self) -> str:
        inside = f" (inlined in {', '.join(self.inlined)})" if self.inlined else ""
        return f"{_short(self.file)}:{self.line}{inside}"


def _short(file: str) -> str:
    """A path without its folders."""
    return file.rpartition("/")[2]


@dataclass(frozen=True)
class Named:
    """A line of PTX that a finding's words name, with the place that it comes from."""

    line: int
    place: Place


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a run.

    Attributes:
        rule: A short name such as `deadlock`, `use-before-completion`, `proxy-fence`.
        severity: `error` makes results undefined; `warning` may; `lint` is against the rules without effect.
        message: One sentence with addresses and numbers.
        line: PTX line of the instruction at which it showed.
        location: The line of CUDA source, if the text has it; `place` names the user's line too.
        warps: Warps involved, named with their CTA.
        state: Barriers and groups at that moment, one a line.
        hint: What would mend it.
        schedule: The schedule in which it showed.
        named: The places of all PTX lines that the message and the state name, where the text has them.
    """

    rule: str
    severity: Severity
    message: str
    line: int
    location: Location | None = None
    warps: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    hint: str = ""
    schedule: str = ""
    named: tuple[Named, ...] = ()

    @property
    def place(self) -> Place | None:
        """The user's line, with what is inlined there."""
        return Place.of(self.location) if self.location is not None else None
