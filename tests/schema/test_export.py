"""The JSON Schema files in the repository are those of the values."""

import json
from pathlib import Path

import pytest

from ptxbench.schema import Candidate
from ptxbench.schema.export import DOCUMENTS, FOLDER, export, schema_text

STORED = Path(__file__).parents[2] / FOLDER


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_the_stored_schema_is_that_of_the_value(name: str) -> None:
    stored = (STORED / f"{name}.json").read_text(encoding="utf-8")
    assert stored == schema_text(DOCUMENTS[name]), (
        f"docs/schema/{name}.json has drifted; run `python -m ptxbench.schema.export`"
    )


def test_no_schema_is_stored_for_a_value_that_is_not_exported() -> None:
    assert {path.stem for path in STORED.iterdir()} == set(DOCUMENTS)


def test_the_schema_of_a_verdict_has_what_is_derived() -> None:
    schema = json.loads(schema_text(DOCUMENTS["verdict"]))
    assert {"status", "layers", "schema_version"} <= set(schema["properties"])


def test_a_changed_value_changes_its_schema() -> None:
    class Longer(Candidate):
        """A candidate with one field more."""

        colour: str = "red"

    assert schema_text(Longer) != schema_text(Candidate)


def test_export_writes_every_document(tmp_path: Path) -> None:
    paths = export(tmp_path / "new")
    assert {path.name for path in paths} == {f"{name}.json" for name in DOCUMENTS}
    assert all(path.read_text() == schema_text(DOCUMENTS[path.stem]) for path in paths)
