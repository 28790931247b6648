"""Runs as tables and in other tools' formats, read back by what reads them there."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import polars
import pytest
from tests.report.making import make_run

from ptxbench.errors import CommandError
from ptxbench.records.published import published_rows
from ptxbench.records.read import read_run
from ptxbench.report.export import FORMATS, export
from ptxbench.report.tables import COLUMNS, TURNS, turn_values, write_parquet
from ptxbench.schema.trace_files import find_traces, read_definition, read_solution, read_workloads
from ptxbench.schema.turn import Answer

PROBLEM = "gemm_n7168_k5120"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    return make_run(folder, "broken", Answer(text="no kernel", reasoning="hm"), "wrong", "fast 1.1 own work")


def exported(run: Path, form: str, folder: Path) -> tuple[Path, ...]:
    return export([read_run(run)], form, folder)


def test_the_csv_has_a_row_per_turn_and_the_documented_columns(run: Path, tmp_path: Path) -> None:
    turns, aggregates = exported(run, "csv", tmp_path)
    rows = list(csv.DictReader(turns.open()))
    assert [row["failure"] for row in rows[:4]] == ["build", "no_kernel", "check", ""]
    assert (rows[3]["speedup"], rows[3]["target_correct"], rows[0]["speedup"]) == ("1.1", "True", "")
    for path in (turns, aggregates):
        heading = next(csv.reader(path.open()))
        assert heading == [column.name for column in COLUMNS[path.stem]]


def test_the_aggregates_are_those_of_the_metrics(run: Path, tmp_path: Path) -> None:
    _, aggregates = exported(run, "csv", tmp_path)
    rows = list(csv.DictReader(aggregates.open()))
    assert [(row["rule"], row["k"], row["correct"], row["peak"]) for row in rows] == [
        ("strict", "1", "0.0", "0.0"),
        ("strict", "4", "1.0", "1.1"),
        ("published", "1", "0.0", "0.0"),
        ("published", "4", "1.0", "1.1"),
    ]


def test_parquet_and_csv_hold_the_same(run: Path, tmp_path: Path) -> None:
    csv_files = exported(run, "csv", tmp_path)
    for plain, packed in zip(csv_files, exported(run, "parquet", tmp_path), strict=True):
        frame = polars.read_parquet(packed)
        assert frame.columns == [column.name for column in COLUMNS[plain.stem]]
        read = polars.read_csv(plain, schema_overrides=frame.schema)
        assert frame.with_columns(polars.col(polars.String).fill_null("")).equals(
            read.with_columns(polars.col(polars.String).fill_null(""))
        )


def test_published_rows_leave_our_rule_empty(tmp_path: Path) -> None:
    write_parquet(TURNS, map(turn_values, published_rows()[:50]), tmp_path / "turns.parquet")
    frame = polars.read_parquet(tmp_path / "turns.parquet")
    assert frame["correct"].null_count() == 50
    assert frame["correct_published"].null_count() == 0


def test_every_column_says_what_it_means() -> None:
    for columns in COLUMNS.values():
        assert len({column.name for column in columns}) == len(columns)
        assert all(column.meaning for column in columns)


def test_the_same_kernel_is_one_solution_with_one_trace(run: Path, tmp_path: Path) -> None:
    exported(run, "traces", tmp_path)
    definition = read_definition(tmp_path / "definitions" / "gemm" / f"{PROBLEM}.json")
    workloads = read_workloads(tmp_path / "workloads" / "gemm" / f"{PROBLEM}.jsonl")
    traces = find_traces(tmp_path, PROBLEM)
    assert (definition.name, len(workloads)) == (PROBLEM, 1)
    # Two trajectories with the same three kernels each.
    assert len(traces) == 3
    solutions = sorted((tmp_path / "solutions").rglob("*.json"))
    assert {read_solution(path).name for path in solutions} == {trace.solution for trace in traces}
    # The scripted evaluator names no output, so nothing says that numbers were compared.
    statuses = [trace.evaluation.status.value for trace in traces if trace.evaluation]
    assert sorted(statuses) == ["COMPILE_ERROR", "PASSED", "RUNTIME_ERROR"]


def test_mini_swe_agents_arithmetic_of_messages_holds(run: Path, tmp_path: Path) -> None:
    paths = exported(run, "mini-swe-agent", tmp_path)
    assert len(paths) == 2
    document = json.loads(paths[0].read_text())
    assert document["trajectory_format"] == "mini-swe-agent-1.1"
    roles = [message["role"] for message in document["messages"]]
    assert roles == ["system", "user", *["assistant", "user"] * 4, "exit"]
    for turn in range(4):
        answer, observation = document["messages"][2 + 2 * turn : 4 + 2 * turn]
        assert isinstance(answer["content"], str)
        assert observation["extra"]["returncode"] == (0 if turn == 3 else 1)
    assert document["messages"][4]["reasoning_content"] == "hm"
    assert document["info"]["model_stats"] == {"instance_cost": pytest.approx(0.03), "api_calls": 4}


def _check_atif(document: dict[str, Any]) -> None:
    """Harbor's rules for a trajectory, as its RFC 0001 states them."""
    assert set(document) <= {
        "schema_version",
        "session_id",
        "trajectory_id",
        "agent",
        "steps",
        "final_metrics",
        "extra",
    }
    assert [step["step_id"] for step in document["steps"]] == list(range(1, len(document["steps"]) + 1))
    for step in document["steps"]:
        assert step["source"] in {"system", "user", "agent"}
        assert isinstance(step["message"], str)
        if step["source"] != "agent":
            assert not {"metrics", "reasoning_content", "tool_calls", "model_name"} & set(step)
    assert document["final_metrics"]["total_steps"] == len(document["steps"])


def test_atif_has_a_step_for_every_message_with_its_verdict_as_observation(run: Path, tmp_path: Path) -> None:
    for path in exported(run, "atif", tmp_path):
        document = json.loads(path.read_text())
        _check_atif(document)
        sources = [step["source"] for step in document["steps"]]
        assert sources == ["system", "user", "agent", "agent", "agent", "agent"]
        assert document["steps"][2]["observation"]["results"][0]["content"]
        assert document["steps"][3]["reasoning_content"] == "hm"
        assert document["final_metrics"]["total_completion_tokens"] == 150


def test_an_unknown_format_brings_those_there_are(run: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError) as caught:
        exported(run, "xlsx", tmp_path)
    assert all(form in caught.value.remedy for form in FORMATS)
