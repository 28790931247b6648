"""Says on standard error which stage is running, on a terminal as one changing line, else a line per step."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console

from ptxbench.schema.verdict import StageName


class Progress:
    """Shows progress while it is open."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._status = self._console.status("starting") if self._console.is_terminal else None

    def __enter__(self) -> Self:
        if self._status is not None:
            self._status.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, stage: StageName, text: str) -> None:
        """A step of a stage begins."""
        if self._status is not None:
            self._status.update(f"{stage.value}: {text}")
        else:
            self._console.print(f"{stage.value}: {text}", highlight=False, markup=False, soft_wrap=True)
