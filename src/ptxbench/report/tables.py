"""Turns and aggregates as tables with documented columns, written as CSV or Parquet; the numbers are `metrics`'."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ptxbench.errors import CommandError
from ptxbench.metrics.cells import Cell, TurnRows
from ptxbench.metrics.intervals import wilson
from ptxbench.metrics.shares import (
    Share,
    correct_at_k,
    target_correct_at_k,
    target_turn_share_at_k,
)
from ptxbench.metrics.speed import peak_at_k, typical_at_k
from ptxbench.records.rows import Rule, TurnRow
from ptxbench.schema.trace_files import write_text

Value = str | int | float | bool | None
Kind = Literal["text", "integer", "number", "boolean"]


@dataclass(frozen=True)
class Column:
    """One column: its name, kind, and meaning."""

    name: str
    kind: Kind
    meaning: str


TURNS: tuple[Column, ...] = (
    Column("run", "text", "Id or name of the run"),
    Column("model", "text", "Name of the model"),
    Column("problem", "text", "Name of the problem"),
    Column("workload", "text", "Uuid of the workload"),
    Column("target", "text", "sm_90a or sm_100a"),
    Column("device", "text", "Name of the GPU, or emulator"),
    Column("pack", "text", "Knowledge pack that the model was given"),
    Column("trajectory", "text", "Which trajectory of the run"),
    Column("turn", "integer", "Index of the turn, from 0"),
    Column("state", "text", "passed, failed, cheated, inconclusive, or no_kernel"),
    Column("failure", "text", "Stage at which it ended; empty for a pass"),
    Column("code", "text", "Reason within the stage"),
    Column("correct", "boolean", "By our rule; empty for published rows"),
    Column("target_correct", "boolean", "By our rule; empty for published rows"),
    Column("correct_published", "boolean", "By the paper's rule"),
    Column("target_correct_published", "boolean", "By the paper's rule"),
    Column("speedup", "number", "Time of the baseline / time of the kernel; empty where not correct or not measured"),
    Column("work_share", "number", "Share of the required arithmetic done by the target's instructions"),
    Column("input_tokens", "integer", "Tokens of the prompt"),
    Column("output_tokens", "integer", "Tokens of the answer, reasoning included"),
    Column("reasoning_tokens", "integer", "Tokens of reasoning"),
    Column("cost", "number", "US dollars"),
    Column("model_seconds", "number", "Wall-clock seconds until the answer was complete"),
    Column("evaluation_seconds", "number", "Wall-clock seconds of the evaluation, waiting included"),
    Column("candidate", "text", "Content hash of the kernel"),
)

_SHARES: tuple[tuple[str, str], ...] = (
    ("correct", "Share of trajectories with a correct turn among the first k"),
    ("target_correct", "Share of trajectories with a target-correct turn among the first k"),
    ("target_turns", "Share of the first k turns that are target-correct"),
)

AGGREGATES: tuple[Column, ...] = (
    *TURNS[:7],
    Column("rule", "text", "strict (ours) or published (the paper's)"),
    Column("k", "integer", "Only turns of index < k count"),
    Column("trajectories", "integer", "Number of trajectories"),
    *(
        Column(f"{name}{end}", "number", f"{meaning}{tail}")
        for name, meaning in _SHARES
        for end, tail in (("", ""), ("_low", "; lower end of Wilson's 95 % interval"), ("_high", "; upper end"))
        if not (name == "target_turns" and end)
    ),
    Column("peak", "number", "Largest speedup of a correct turn; empty on the emulator"),
    Column("typical", "number", "Median over trajectories of the best correct speedup, 0 where there is none"),
)

COLUMNS: dict[str, tuple[Column, ...]] = {"turns": TURNS, "aggregates": AGGREGATES}
"""File name without suffix -> its columns."""


def turn_values(row: TurnRow) -> dict[str, Value]:
    """One row of the table of turns."""
    values: dict[str, Value] = {
        "state": row.state.value,
        "correct": row.correct.get(Rule.STRICT),
        "target_correct": row.target_correct.get(Rule.STRICT),
        "correct_published": row.correct.get(Rule.PUBLISHED),
        "target_correct_published": row.target_correct.get(Rule.PUBLISHED),
    }
    return {each.name: values[each.name] if each.name in values else getattr(row, each.name) for each in TURNS}


def aggregate_values(found: Mapping[Cell, Sequence[TurnRows]], ks: Iterable[int]) -> Iterator[dict[str, Value]]:
    """The rows of the table of aggregates: one for each cell, k, and rule that its rows were judged by."""
    for cell, trajectories in found.items():
        for rule in Rule:
            if all(rule in row.correct for turns in trajectories for row in turns):
                for k in ks:
                    yield _aggregate(cell, trajectories, k, rule)


def _aggregate(cell: Cell, trajectories: Sequence[TurnRows], k: int, rule: Rule) -> dict[str, Value]:
    correct = correct_at_k(trajectories, k, rule)
    target = target_correct_at_k(trajectories, k, rule)
    names = {each.name: str(getattr(cell, each.name)) for each in TURNS[:7]}
    return {
        **names,
        "rule": rule.value,
        "k": k,
        "trajectories": correct.total,
        **_with_interval("correct", correct),
        **_with_interval("target_correct", target),
        "target_turns": target_turn_share_at_k(trajectories, k, rule).value,
        "peak": peak_at_k(trajectories, k, rule),
        "typical": typical_at_k(trajectories, k, rule),
    }


def _with_interval(name: str, share: Share) -> dict[str, Value]:
    low, high = wilson(share) or (None, None)
    return {name: share.value, f"{name}_low": low, f"{name}_high": high}


def write_csv(columns: Sequence[Column], rows: Iterable[Mapping[str, Value]], path: Path) -> None:
    """Write a table as CSV: UTF-8, a heading, empty cells for what is unknown. It appears whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [each.name for each in columns], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(text.getvalue(), path)


def write_parquet(columns: Sequence[Column], rows: Iterable[Mapping[str, Value]], path: Path) -> None:
    """Write a table as Parquet, each column with its type and nulls for what is unknown.

    Raises:
        CommandError: Polars is not installed.
    """
    try:
        import polars  # noqa: PLC0415  (an extra)
    except ImportError:
        remedy = "Install it with `pip install 'ptxbench[report]'`, or ask for csv."
        raise CommandError("Parquet needs Polars, which is not installed.", remedy) from None
    types = {"text": polars.String, "integer": polars.Int64, "number": polars.Float64, "boolean": polars.Boolean}
    frame = polars.DataFrame(list(rows), schema={each.name: types[each.kind] for each in columns})
    part = path.with_name(f".{path.name}.part")
    frame.write_parquet(part)
    part.replace(path)


Writer = Callable[[Sequence[Column], Iterable[Mapping[str, Value]], Path], None]
WRITERS: dict[str, Writer] = {"csv": write_csv, "parquet": write_parquet}
"""Format, which is also the file's suffix -> what writes it."""
