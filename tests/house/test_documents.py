"""What the documents name exists: links, files, targets of make, commands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ptxbench.cli.app import app, emulator_app, make_app, packs_app, suite_app, tasks_app

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
REGISTERED = [
    command
    for each in (app, tasks_app, packs_app, suite_app, make_app, emulator_app)
    for command in each.registered_commands
]
COMMANDS = {command.name or getattr(command.callback, "__name__", "") for command in REGISTERED}
GROUPS = {"tasks", "packs", "suite", "make", "emulator"}


def ids(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_every_link_leads_to_a_file(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", document.read_text())
    assert [link for link in links if "://" not in link and not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_every_named_file_exists(document: Path) -> None:
    named = re.findall(r"`((?:src|tests|tools|docs|reference|requirements)/[\w./-]+)`", document.read_text())
    assert [name for name in named if "PROBLEM" not in name and not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_every_make_target_exists(document: Path) -> None:
    named = re.findall(r"(?:^ +|`)make ([a-z]+)", document.read_text(), re.MULTILINE)
    assert set(named) <= TARGETS


@pytest.mark.parametrize("document", DOCUMENTS, ids=ids)
def test_every_command_exists(document: Path) -> None:
    named = re.findall(r"(?:^ +|`|bin/|uvx )ptxbench ([a-z]+)", document.read_text(), re.MULTILINE)
    assert set(named) <= COMMANDS | GROUPS


def test_every_setting_is_documented() -> None:
    settings = (ROOT / "src" / "ptxbench" / "settings.py").read_text()
    documented = (ROOT / "docs" / "evaluation.md").read_text()
    variables = set(re.findall(r"PTXBENCH_[A-Z_]+", settings))
    assert variables
    assert {name for name in variables if f"`{name}`" not in documented} == set()
