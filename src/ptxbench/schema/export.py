"""Writes the JSON Schema of the documents that ptxbench exchanges to `docs/schema`; reads no document.

`python -m ptxbench.schema.export` renews the files; a test fails when they have drifted from the values.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pydantic import BaseModel

from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem
from ptxbench.schema.turn import Run, Trajectory
from ptxbench.schema.values import SCHEMA_VERSION
from ptxbench.schema.verdict import Verdict

DOCUMENTS: dict[str, type[BaseModel]] = {
    "candidate": Candidate,
    "problem": Problem,
    "run": Run,
    "trajectory": Trajectory,
    "verdict": Verdict,
}
"""File name without suffix -> value."""

FOLDER = Path("docs/schema")
"""Below the root of the repository."""


def schema_text(model: type[BaseModel]) -> str:
    """The JSON Schema (draft 2020-12) of a value as ptxbench writes it, derived fields included."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "x-schema-version": SCHEMA_VERSION,
        **model.model_json_schema(mode="serialization"),
    }
    return json.dumps(schema, indent=2) + "\n"


def export(folder: Path) -> tuple[Path, ...]:
    """Write every document's schema as `<folder>/<name>.json` and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, model in DOCUMENTS.items():
        path = folder / f"{name}.json"
        path.write_text(schema_text(model), encoding="utf-8")
        paths.append(path)
    return tuple(paths)


if __name__ == "__main__":
    for written in export(FOLDER):
        sys.stdout.write(f"{written}\n")
