"""The wheel holds what the commands need, so that an installed ptxbench does what a clone does."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "ptxbench"


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names of the files in the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    return set(zipfile.ZipFile(wheel).namelist())


def test_the_reference_kernels_are_in_the_wheel(contents: set[str]) -> None:
    assert "ptxbench/reference/gemm_n7168_k5120/sm_90a.cu" in contents


@pytest.mark.parametrize(
    "pattern",
    [
        "*.py",
        "*.c",
        "*.h",
        "*.cu",
        "*.cuh",
        "*.html",
        "*.css",
        "*.js",
        "*.csv",
        "*.gz",
        "*.md",
        "*.toml",
        "*.json",
        "*.jsonl",
    ],
)
def test_every_file_of_the_package_is_in_the_wheel(contents: set[str], pattern: str) -> None:
    files = {path.relative_to(PACKAGE.parent).as_posix() for path in PACKAGE.rglob(pattern)}
    assert files
    assert files <= contents


def test_the_licence_is_in_the_wheel(contents: set[str]) -> None:
    assert any(name.endswith("licenses/LICENSE") for name in contents)
