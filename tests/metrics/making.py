"""Rows of turns for the tests of metrics."""

from __future__ import annotations

from ptxbench.records.rows import Rule, TurnRow
from ptxbench.schema.turn import TurnState


def row(trajectory: str = "t0", turn: int = 0, **known: object) -> TurnRow:
    """A turn that failed at build, unless told otherwise; `ok` and `target` set both rules."""
    ok, target = bool(known.pop("ok", False)), bool(known.pop("target", False))
    fields: dict[str, object] = {
        "run": "r",
        "model": "m",
        "problem": "p",
        "workload": "w",
        "target": "sm_90a",
        "device": "NVIDIA H200",
        "pack": "full",
        "trajectory": trajectory,
        "turn": turn,
        "state": TurnState.PASSED if ok else TurnState.FAILED,
        "failure": "" if ok else "build",
        "code": "" if ok else "compile_error",
        "correct": dict.fromkeys(Rule, ok),
        "target_correct": dict.fromkeys(Rule, ok and target),
    }
    return TurnRow(**{**fields, **known})  # type: ignore[arg-type]


def trajectories(*outcomes: str, speed: float = 1.0) -> list[list[TurnRow]]:
    """One trajectory per word: `.` a failure, `c` correct, `T` correct with the target's instructions."""
    return [
        [
            row(f"t{number}", turn, ok=mark in "cT", target=mark == "T", speedup=speed if mark in "cT" else None)
            for turn, mark in enumerate(word)
        ]
        for number, word in enumerate(outcomes)
    ]
