"""`ptxbench report`: has the site of some runs written, and says where it begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ptxbench.records.read import read_run
from ptxbench.report.site import build_site


def report_runs(sources: Sequence[Path], folder: Path) -> None:
    """Write the site.

    Raises:
        RecordError: A run is not there, or damaged.
    """
    pages = build_site([read_run(source) for source in sources], folder)
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"wrote {len(pages)} pages; open {pages[0]}", markup=False)
