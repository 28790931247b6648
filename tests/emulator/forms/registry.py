"""Which forms the tests here and in `blackwell` execute, read from their parameters; `python -m` writes the list.

A form counts if a test has it as its parameter `form`: `conftest.py` sees to it that such a test executes it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

from ptxbench.emulator.coverage import EVIDENCE
from ptxbench.emulator.ptx.isa import Form

FOLDERS = ("forms", "blackwell")


def executed() -> list[str]:
    """Names of the forms, sorted."""
    parent = Path(__file__).parents[1]
    modules = [f"{folder}.{path.stem}" for folder in FOLDERS for path in (parent / folder).glob("test_*.py")]
    return sorted({form.name for module in modules for form in _parameters(module)})


def _parameters(module: str) -> Iterator[Form]:
    for value in vars(importlib.import_module(f"tests.emulator.{module}")).values():
        for mark in getattr(value, "pytestmark", ()):
            if mark.name == "parametrize" and mark.args[0] == "form":
                yield from mark.args[1]


if __name__ == "__main__":
    EVIDENCE.mkdir(exist_ok=True)
    (EVIDENCE / "executed.json").write_text(json.dumps(executed(), indent=0) + "\n", "utf-8")
