"""`ptxbench doctor`: prints what was found, and the remedy of everything that was not."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptxbench.evaluate.diagnosis import Check, CheckState, Diagnosis
from ptxbench.evaluate.doctor import diagnose
from ptxbench.evaluate.selftest import run_selftest
from ptxbench.settings import Settings

STYLES = {CheckState.OK: "green", CheckState.MISSING: "bold red", CheckState.WARNING: "yellow"}


def report_health(*, json: bool) -> int:
    """Check this machine, print the diagnosis and give its exit code."""
    diagnosis = diagnose(Settings.load(), run_selftest)
    if json:
        sys.stdout.write(diagnosis.model_dump_json(indent=2) + "\n")
        return diagnosis.exit_code
    console = Console()
    console.print(diagnosis_table(diagnosis))
    console.print(Text("\n" + summary(diagnosis), "bold"))
    return diagnosis.exit_code


def diagnosis_table(diagnosis: Diagnosis) -> Table:
    """One row per check, by group; a remedy stands below what it is for."""
    table = Table.grid(padding=(0, 2))
    for width in (11, 14, 7):
        table.add_column(min_width=width)
    table.add_column(ratio=1, overflow="fold")
    previous = ""
    for check in _shortened(diagnosis.checks):
        group = "" if check.group == previous else check.group
        detail = Text(check.found)
        if check.remedy:
            detail.append(f"\nremedy: {check.remedy}")
        table.add_row(Text(group, "bold"), check.name, Text(check.state.value, STYLES[check.state]), detail)
        previous = check.group
    return table


def _shortened(checks: tuple[Check, ...]) -> Iterator[Check]:
    """The checks, with all protections that are active in one line."""
    active = [check.name for check in checks if check.group == "protections" and check.state is CheckState.OK]
    for check in checks:
        if check.name in active and check.group == "protections":
            if check.name == active[0]:
                yield check.model_copy(update={"name": "active", "found": ", ".join(active).replace("_", " ")})
        else:
            yield check


def summary(diagnosis: Diagnosis) -> str:
    """What the checks mean together."""
    missing = [check.name for check in diagnosis.checks if check.state is CheckState.MISSING]
    warnings = sum(check.state is CheckState.WARNING for check in diagnosis.checks)
    also = f"; {warnings} warnings" if warnings else ""
    if missing:
        return f"missing: {', '.join(missing)}{also}"
    return f"everything is there that the device at hand needs{also}"
