"""`ptxbench export`: has runs written in a format, and says where; the formats are `report`'s."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ptxbench.records.read import read_run
from ptxbench.report.export import export


def export_runs(sources: Sequence[Path], form: str, folder: Path) -> None:
    """Write runs below a folder.

    Raises:
        RecordError: A run is not there, or damaged.
        CommandError: There is no such format, or what it needs is not installed.
    """
    written = export([read_run(source) for source in sources], form, folder)
    console = Console(highlight=False, soft_wrap=True)
    for path in written[:8]:
        console.print(f"wrote {path}", markup=False)
    if len(written) > 8:
        console.print(f"and {len(written) - 8} more")
