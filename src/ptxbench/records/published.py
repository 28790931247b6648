"""The paper's published results as rows of turns and as its own aggregates; no run of ours is read here."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ptxbench.records.rows import Rule, TurnRow
from ptxbench.schema.turn import TurnState

SOURCE = "PTXBench (arXiv 2608.17379)"
DEVICES = {"hopper": ("sm_90a", "NVIDIA H100"), "blackwell": ("sm_100a", "NVIDIA B200")}
"""Published architecture -> target and the GPU that the paper measured on."""

STAGES = {
    "Correct": "",
    "Extraction error": "no_kernel",
    "Compilation error": "build",
    "Sanitize Timeout": "sanitize",
}
"""Published label -> stage. All others were found while the kernel ran: `check`."""


@dataclass(frozen=True)
class Aggregate:
    """What was published for the first `turn_limit` turns of one run.

    Attributes:
        run: Name of the run.
        model: Name of the model.
        problem: Name of the problem.
        date: As published.
        turn_limit: 1, 4 or 8.
        trajectories: How many there were.
        correct: Trajectories with a correct turn.
        target_correct: Trajectories with a correct turn in which the target's instructions executed.
        best_speedup: The largest of all correct turns; 0 if none.
    """

    run: str
    model: str
    problem: str
    date: str
    turn_limit: int
    trajectories: int
    correct: int
    target_correct: int
    best_speedup: float


@cache
def published_rows() -> tuple[TurnRow, ...]:
    """All 13,674 published turns. The strict rule says nothing about them: its entries are absent."""
    packed = files("ptxbench.records").joinpath("data", "turns.csv.gz").read_bytes()
    text = gzip.decompress(packed).decode()
    return tuple(_row(line) for line in csv.DictReader(io.StringIO(text)))


@cache
def published_aggregates() -> tuple[Aggregate, ...]:
    """The 315 published values of each kind: 105 runs by three turn limits."""
    text = files("ptxbench.records").joinpath("data", "aggregates.csv").read_text(encoding="utf-8")
    return tuple(
        Aggregate(
            run=line["run"],
            model=line["model"],
            problem=line["definition"],
            date=line["date"],
            turn_limit=int(line["turn_limit"]),
            trajectories=int(line["n_trajectories"]),
            correct=int(line["correct"]),
            target_correct=int(line["correct_with_arch"]),
            best_speedup=float(line["best_speedup"] or 0),
        )
        for line in csv.DictReader(io.StringIO(text))
    )


def _row(line: dict[str, str]) -> TurnRow:
    target, device = DEVICES[line["arch"]]
    label = line["correctness"]
    correct = label == "Correct"
    failure = STAGES.get(label, "check")
    return TurnRow(
        run=line["run"],
        model=line["model"],
        problem=line["definition"],
        workload=line["workload"],
        target=target,
        device=device,
        pack="published",
        trajectory=line["trajectory_id"],
        turn=int(line["turn"]),
        state=_state(correct, failure),
        failure=failure,
        code="" if correct else label,
        correct={Rule.PUBLISHED: correct},
        target_correct={Rule.PUBLISHED: line["correct_with_arch"] == "1"},
        speedup=float(line["speedup"]) if correct and line["speedup"] else None,
        reasoning_tokens=int(float(line["reasoning_tokens"])) if line["reasoning_tokens"] else None,
    )


def _state(correct: bool, failure: str) -> TurnState:
    if correct:
        return TurnState.PASSED
    return TurnState.NO_KERNEL if failure == "no_kernel" else TurnState.FAILED
