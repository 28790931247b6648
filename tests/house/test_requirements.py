"""The pinned requirements name every direct dependency, each with hashes and none with an address."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CORE = PROJECT["project"]["dependencies"]
GROUPS = PROJECT["dependency-groups"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
BUILD = GROUPS["build"]
DEV = [each for each in GROUPS["dev"] if isinstance(each, str)]
TESTED_EXTRAS = EXTRAS["agent"] + EXTRAS["local-model"] + EXTRAS["report"]


def pinned(name: str) -> dict[str, str]:
    """Name (normalised) -> version of one requirements file."""
    text = (ROOT / "requirements" / name).read_text()
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))


def normalised(requirement: str) -> str:
    return re.split(r"[<>=!~\[; ]", requirement)[0].lower().replace("_", "-")


@pytest.mark.parametrize(
    ("name", "direct"), [("core.txt", CORE + BUILD), ("dev.txt", CORE + BUILD + DEV + TESTED_EXTRAS)]
)
def test_every_direct_dependency_is_pinned(name: str, direct: list[str]) -> None:
    assert {normalised(requirement) for requirement in direct} <= pinned(name).keys()


def test_both_files_pin_the_same_versions() -> None:
    assert pinned("core.txt").items() <= pinned("dev.txt").items()


@pytest.mark.parametrize("name", ["core.txt", "dev.txt"])
def test_every_pin_has_a_hash_and_no_address(name: str) -> None:
    text = (ROOT / "requirements" / name).read_text()
    for block in re.split(r"\n(?=\S)", text.strip()):
        assert "--hash=sha256:" in block, block
    assert "://" not in text
