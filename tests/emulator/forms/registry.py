"""Which forms the tests here and in `blackwell` execute, and which an H200 answered; `python -m` writes the lists.

A form counts if a test has it as its parameter `form`: `conftest.py` sees to it that such a test executes it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path

from tests.emulator.agreement import answers

from ptxbench.emulator.coverage import EVIDENCE
from ptxbench.emulator.ptx.isa import Form, coverage

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


def measured() -> list[str]:
    """Names of the forms for which an H200's answer is kept, sorted."""
    kept = (answers.load("programs") or {"answers": {}})["answers"]
    known = {form.name for form in coverage()}
    return sorted(name for name in known & set(kept) if any(map(answers.is_digest, kept[name].values())))


def _write(name: str, forms: list[str]) -> None:
    (EVIDENCE / f"{name}.json").write_text(json.dumps(forms, indent=0) + "\n", "utf-8")


if __name__ == "__main__":
    EVIDENCE.mkdir(exist_ok=True)
    _write("executed", executed())
    _write("measured", measured())
