"""Reads and writes FlashInfer-Trace files, naming file, line and remedy on a fault; converts nothing.

A data set on disk holds `definitions/<op_type>/<name>.json`, `workloads/<op_type>/<definition>.jsonl`,
`solutions/<author>/<op_type>/<definition>/<name>.json` and `traces/<author>/<op_type>/<definition>.jsonl`; older ones
have `traces/<op_type>/<definition>.jsonl`. Both layouts of traces are read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from ptxbench.errors import CandidateError, ProblemError, PtxbenchError, RecordError
from ptxbench.schema.trace_base import TraceModel
from ptxbench.schema.trace_evaluation import Trace
from ptxbench.schema.trace_problem import Definition, Workload
from ptxbench.schema.trace_solution import Solution

Model = TypeVar("Model", bound=TraceModel)


def read_definition(path: Path) -> Definition:
    """The definition in a JSON file.

    Raises:
        ProblemError: The file cannot be read as one.
    """
    return _validated(Definition, _parsed(_text(path, ProblemError), str(path), ProblemError), str(path), ProblemError)


def read_workloads(path: Path) -> tuple[Workload, ...]:
    """The workloads of a JSONL file whose lines are bare workloads, or traces that hold one.

    Raises:
        ProblemError: A line cannot be read as a workload, or two have the same uuid.
    """
    found: dict[str, Workload] = {}
    for place, line in _documents(path, ProblemError):
        inner = line["workload"] if isinstance(line, dict) and "workload" in line else line
        workload = _validated(Workload, inner, place, ProblemError)
        if workload.uuid in found:
            raise ProblemError(f"{place}: a second workload with uuid {workload.uuid}.", "Give it a uuid of its own.")
        found[workload.uuid] = workload
    return tuple(found.values())


def read_solution(path: Path, missing_style: bool | None = None) -> Solution:
    """The solution in a JSON file.

    Args:
        path: The file.
        missing_style: What the absence of `destination_passing_style` means: True in FlashInfer-Bench and PTXBench,
            False in flashinfer-python. None refuses such a file, because a wrong guess calls the kernel wrongly.

    Raises:
        CandidateError: The file cannot be read as a solution.
    """
    return parse_solution(_text(path, CandidateError), str(path), missing_style)


def parse_solution(text: str, place: str, missing_style: bool | None = None) -> Solution:
    """`read_solution` for a text; `place` names it in errors."""
    document = _parsed(text, place, CandidateError)
    spec = document.get("spec") if isinstance(document, dict) else None
    if isinstance(spec, dict) and "destination_passing_style" not in spec:
        if missing_style is None:
            raise CandidateError(
                f"{place}: spec.destination_passing_style is missing.",
                "Say whether outputs are arguments (true) or returned (false); projects differ in the default.",
            )
        spec["destination_passing_style"] = missing_style
    return _validated(Solution, document, place, CandidateError)


def read_traces(path: Path) -> tuple[Trace, ...]:
    """The traces of a JSONL file.

    Raises:
        RecordError: A line cannot be read as a trace.
    """
    return tuple(_validated(Trace, line, place, RecordError) for place, line in _documents(path, RecordError))


def find_traces(root: Path, definition: str) -> tuple[Trace, ...]:
    """Every evaluated trace of a definition in a data set, in the order of the files' paths; both layouts.

    Raises:
        RecordError: A file of them cannot be read.
    """
    found = (trace for path in sorted((root / "traces").rglob(f"{definition}.jsonl")) for trace in read_traces(path))
    return tuple(trace for trace in found if not trace.is_workload)


def traces_path(root: Path, author: str, op_type: str, definition: str) -> Path:
    """Where a data set keeps an author's traces of a definition, in the present layout."""
    return root / "traces" / author / op_type / f"{definition}.jsonl"


def one_line(value: TraceModel) -> str:
    """The value as one line of JSON."""
    return json.dumps(value.document(), allow_nan=False)


def several_lines(value: TraceModel) -> str:
    """The value as indented JSON with a final newline."""
    return json.dumps(value.document(), indent=2, allow_nan=False) + "\n"


def write_document(value: TraceModel, path: Path) -> None:
    """Write one document as indented JSON; the file appears whole or not at all."""
    write_text(several_lines(value), path)


def write_lines(values: Iterable[TraceModel], path: Path) -> None:
    """Write documents one per line; the file appears whole or not at all."""
    write_text("".join(one_line(value) + "\n" for value in values), path)


def write_text(text: str, path: Path) -> None:
    """Write UTF-8 text; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(text, encoding="utf-8", newline="")
    partial.replace(path)


def _text(path: Path, error: type[PtxbenchError]) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else "it is not UTF-8 text"
        raise error(f"{path}: {why}.", "Name a readable FlashInfer-Trace file.") from None


def _documents(path: Path, error: type[PtxbenchError]) -> Iterable[tuple[str, object]]:
    for number, line in enumerate(_text(path, error).split("\n"), start=1):
        if line.strip():
            place = f"{path}:{number}"
            yield place, _parsed(line, place, error)


def _parsed(text: str, place: str, error: type[PtxbenchError]) -> object:
    try:
        return json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as fault:
        at = f"{place}:{fault.lineno}" if "\n" in text else place
        raise error(f"{at}: not JSON, column {fault.colno}: {fault.msg}.", "Repair the file.") from None
    except (ValueError, RecursionError) as fault:
        raise error(f"{place}: {fault}.", "Repair the file.") from None


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return document


def _validated(model: type[Model], document: object, place: str, error: type[PtxbenchError]) -> Model:
    try:
        return model.model_validate(document)
    except ValidationError as fault:
        lines = []
        for item in fault.errors(include_url=False, include_context=False, include_input=False):
            where = ".".join(str(part) for part in item["loc"]) or model.__name__.lower()
            lines.append(f"{where}: {item['msg'].removeprefix('Value error, ')}")
        more = f" (and {len(lines) - 3} more)" if len(lines) > 3 else ""
        raise error(
            f"{place}: not a FlashInfer-Trace {model.__name__.lower()}: {'; '.join(lines[:3])}{more}.",
            "Correct these fields.",
        ) from None
