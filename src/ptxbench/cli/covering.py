"""`ptxbench emulator coverage`: prints which PTX instruction forms are emulated; the emulator counts them."""

from __future__ import annotations

import dataclasses
import json as encoder
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from ptxbench.emulator.coverage import Covered, Share, covered, shares
from ptxbench.emulator.ptx.isa import TARGETS
from ptxbench.errors import CommandError

WIDTH = 120
"""Columns that the table needs."""
MEANING = (
    "supported: becomes code; tested: executed by a test, with a result checked against a model of its own;\n"
    "measured: compared with what an H200 answered"
)


def show_coverage(target: str | None, *, missing: bool, json: bool) -> None:
    """Print the counts of each section, or the forms that are missing.

    Args:
        target: `sm_90a`, `sm_100a`, or None for both.
        missing: Name what is not supported, and what is but no test executes, in place of the counts.
        json: Print JSON: for each target the counts, and what is missing.

    Raises:
        CommandError: There is no such target.
    """
    if target is not None and target not in TARGETS:
        raise CommandError(f"{target!r} is no target.", f"Use {' or '.join(TARGETS)}.")
    chosen = TARGETS if target is None else (target,)
    found = {each: covered(each) for each in chosen}
    if json:
        sys.stdout.write(encoder.dumps({name: _document(forms) for name, forms in found.items()}, indent=2) + "\n")
        return
    console = Console(highlight=False, soft_wrap=missing)
    console.width = max(console.width, WIDTH)
    for name, forms in found.items():
        console.print(f"[bold]{name}[/]: forms of PTX ISA 9.0 without texture, surface and video")
        if missing:
            for line in _missing(forms):
                console.print(line, markup=False)
        else:
            console.print(_table(shares(forms)), MEANING, "", sep="\n")


def _missing(forms: Sequence[Covered]) -> list[str]:
    lacking = [f"not supported: {each.form.name}" for each in forms if not each.supported]
    untested = [f"not tested: {each.form.name}" for each in forms if each.supported and not each.executed]
    return [*lacking, *untested]


def _document(forms: Sequence[Covered]) -> dict[str, object]:
    return {
        "sections": [dataclasses.asdict(each) for each in shares(forms)],
        "unsupported": [each.form.name for each in forms if not each.supported],
        "not tested": [each.form.name for each in forms if not each.executed],
        "not measured": [each.form.name for each in forms if not each.measured],
    }


def _table(rows: Sequence[Share]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("section", header_style="dim", no_wrap=True)
    for heading in ("forms", "supported", "", "tested", "", "measured", ""):
        table.add_column(heading, header_style="dim", justify="right", no_wrap=True)
    for row in rows:
        counts = (cell for each in (row.supported, row.executed, row.measured) for cell in _cells(each, row.forms))
        table.add_row(row.section, f"{row.forms:,}", *counts, style="bold" if row.section == "all" else None)
    return table


def _cells(count: int, forms: int) -> tuple[str, str]:
    # Only all of them are 100 %.
    return f"{count:,}", "100 %" if count == forms else f"{min(100 * count / forms, 99.9):.1f} %"
