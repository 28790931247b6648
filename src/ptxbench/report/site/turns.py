"""What a page shows of a turn: why it ended as it did, its three layers, and what changed in the kernel."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from ptxbench.schema.candidate import Candidate
from ptxbench.schema.stages import SanitizerFinding
from ptxbench.schema.turn import Extracted, Trajectory, Turn
from ptxbench.schema.values import Layer
from ptxbench.schema.verdict import Verdict

CONTEXT = 3
"""Unchanged lines around a change."""

Kind = Literal["same", "added", "removed", "gap"]


@dataclass(frozen=True)
class DiffLine:
    """One line of a difference between two kernels."""

    kind: Kind
    text: str
    number: int | None
    """Of the line in the new kernel."""


@dataclass(frozen=True)
class LayerView:
    """One answer of the verdict, in words."""

    name: str
    state: str
    text: str


@dataclass(frozen=True)
class TurnView:
    """A turn as its page shows it."""

    turn: Turn
    why: str
    """One sentence: what a reader needs first."""
    layers: tuple[LayerView, ...]
    findings: tuple[SanitizerFinding, ...]
    diff: tuple[DiffLine, ...]
    """Against the kernel before it; the whole kernel where there is none."""
    first: bool
    """There is no kernel before it."""

    @property
    def added(self) -> int:
        """New lines."""
        return sum(line.kind == "added" for line in self.diff)

    @property
    def removed(self) -> int:
        """Lines that are gone."""
        return sum(line.kind == "removed" for line in self.diff)


@dataclass(frozen=True)
class TrajectoryView:
    """A trajectory as its page shows it."""

    name: str
    turns: tuple[TurnView, ...]
    stop: str


def trajectory_view(trajectory: Trajectory) -> TrajectoryView:
    """Everything that the page of a trajectory shows."""
    views: list[TurnView] = []
    before: Candidate | None = None
    for turn in trajectory.turns:
        views.append(_turn(turn, before))
        before = turn.candidate or before
    stop = trajectory.stop.value.replace("_", " ") if trajectory.stop else "running"
    return TrajectoryView(trajectory.key.name, tuple(views), stop)


def _turn(turn: Turn, before: Candidate | None) -> TurnView:
    verdict = turn.verdict
    return TurnView(
        turn=turn,
        why=why(turn),
        layers=_layers(verdict) if verdict else (),
        findings=_findings(verdict) if verdict else (),
        diff=difference(before, turn.candidate),
        first=before is None,
    )


def why(turn: Turn) -> str:
    """One sentence about how a turn ended."""
    if turn.verdict is None:
        return turn.extraction_note or {
            Extracted.CUT: "The answer was cut inside its kernel.",
            Extracted.MISSING: "The answer has no complete kernel.",
        }.get(turn.extracted, "")
    status = turn.verdict.status
    if status.reason is not None:
        return f"{status.stage.value if status.stage else ''}: {status.reason.message}"
    if not turn.target_correct:
        return "Right, but without the target's instructions doing its work."
    speed = turn.speedup
    return "Right, by the target's instructions" + (f", {speed:.3f} x the library." if speed is not None else ".")


def _layers(verdict: Verdict) -> tuple[LayerView, ...]:
    layers = verdict.layers
    named = (
        ("correct, our contract", layers.correct_contract),
        ("correct, published rule", layers.correct_published),
        ("target in the machine code", layers.target.static),
        ("target executed", layers.target.executed),
        ("work share of the target", layers.target.work_share),
        ("output needs the target", layers.target.necessity),
        ("speedup", layers.speed),
    )
    return tuple(LayerView(name, layer.state, _words(layer)) for name, layer in named)


def _words(layer: Layer) -> str:
    if layer.value is not None:
        low_high = f" [{layer.interval[0]:.3f}, {layer.interval[1]:.3f}]" if layer.interval else ""
        return f"{layer.value:.3f}{low_high}"
    return layer.reason or layer.state


def _findings(verdict: Verdict) -> tuple[SanitizerFinding, ...]:
    return tuple(finding for run in verdict.stages.sanitize.runs for finding in run.findings)


def difference(before: Candidate | None, after: Candidate | None) -> tuple[DiffLine, ...]:
    """The lines that changed between two kernels, with a few around them; all lines of a first kernel."""
    if after is None:
        return ()
    new = after.entry_source.splitlines()
    if before is None:
        return tuple(DiffLine("same", text, number) for number, text in enumerate(new, 1))
    old = before.entry_source.splitlines()
    groups = difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT)
    found: list[DiffLine] = []
    for group in groups:
        found.append(DiffLine("gap", "", None))
        for operation in group:
            found += _lines(operation, old, new)
    return tuple(found)


def _lines(operation: tuple[str, int, int, int, int], old: Sequence[str], new: Sequence[str]) -> list[DiffLine]:
    tag, old_from, old_to, new_from, new_to = operation
    if tag == "equal":
        return [DiffLine("same", new[at], at + 1) for at in range(new_from, new_to)]
    gone = [DiffLine("removed", old[at], None) for at in range(old_from, old_to)]
    return gone + [DiffLine("added", new[at], at + 1) for at in range(new_from, new_to)]
