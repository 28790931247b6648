"""Findings as values: what is wrong, where, who was involved, what would mend it; decides no verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ptxbench.emulator.ptx.ir import Location

Severity = Literal["error", "warning", "lint"]


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong with a run.

    Attributes:
        rule: A short name such as `deadlock`, `use-before-completion`, `proxy-fence`.
        severity: `error` makes results undefined; `warning` may; `lint` is against the rules without effect.
        message: One sentence with addresses and numbers.
        line: PTX line of the instruction at which it showed.
        location: The line of CUDA source, if the text has it.
        warps: Warps involved, named with their CTA.
        state: Barriers and groups at that moment, one a line.
        hint: What would mend it.
        schedule: The schedule in which it showed.
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
