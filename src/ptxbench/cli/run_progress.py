"""Says on standard error how far a run is and how long it may take: one changing line, or a line per trajectory."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from ptxbench.agent.estimate import estimate
from ptxbench.agent.session import Session
from ptxbench.schema.turn import SampleKey, Trajectory


class RunProgress:
    """Shows progress while it is open."""

    def __init__(self, session: Session, parallel: int) -> None:
        self._turns = session.run.plan.turns
        keys = session.open_keys()
        self._done: dict[SampleKey, int] = {key: len(session.begun(key).turns) for key in keys}
        self._open = set(keys)
        self._correct: set[SampleKey] = set()
        self._console = Console(stderr=True)
        minutes = estimate(session, keys, parallel).seconds / 60
        self._forecast = (
            f"trajectories: {len(keys)}; turns of each: {self._turns} at most; about {minutes:,.0f} min at most"
        )
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("turns"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        total = len(keys) * self._turns
        self._task = self._bar.add_task(self._words(), total=total, completed=sum(self._done.values()))

    def __enter__(self) -> Self:
        self._console.print(self._forecast, highlight=False)
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def show(self, trajectory: Trajectory) -> None:
        """A trajectory has another turn, or ended; the turns that it does not need count as done."""
        key, turns = trajectory.key, trajectory.turns
        if any(turn.correct for turn in turns):
            self._correct.add(key)
        self._done[key] = len(turns) if trajectory.stop is None else self._turns
        if trajectory.stop is not None and key in self._open:
            self._open.discard(key)
            if not self._console.is_terminal:
                self._console.print(_line(trajectory), highlight=False, markup=False, soft_wrap=True)
        self._bar.update(self._task, completed=sum(self._done.values()), description=self._words())

    def _words(self) -> str:
        return (
            f"{len(self._done) - len(self._open)}/{len(self._done)} ended, {len(self._correct)} with a correct kernel"
        )


def _line(trajectory: Trajectory) -> str:
    states = " ".join(turn.state.value for turn in trajectory.turns)
    assert trajectory.stop is not None
    return f"{trajectory.key.name}: {states or 'no turn'} ({trajectory.stop.value.replace('_', ' ')})"
