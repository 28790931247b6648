"""What docs/emulator.md shows is what the tool prints: its blocks are searched in verdicts, word by word."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console
from tests.evaluate.emulating import ROOT, verdict_on

from ptxbench.evaluate.render import render_verdict

TEXT = (ROOT / "docs" / "emulator.md").read_text()
SHOWN = re.findall(r"<!-- shown: (\w+) -->\n```text\n(.*?)```", TEXT, re.DOTALL)
PYTHON = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


def words(text: str) -> str:
    """The text without its lines' breaks and columns, seconds and versions."""
    unversioned = re.sub(r"(?<=emulator) \d+\.\d+\.\w+", "", text)
    return " ".join(re.sub(r"(?<= )\d+\.\d\d(?= )", "", unversioned).split())


def printed(name: str) -> str:
    """A verdict on a terminal that breaks no line."""
    out = StringIO()
    Console(file=out, width=2000).print(render_verdict(verdict_on(name)))
    return words(out.getvalue())


def test_the_deadlock_the_race_the_coverage_and_the_decoration_are_shown() -> None:
    assert [name for name, _ in SHOWN] == ["hang", "race", "right", "idle_tma"]


@pytest.mark.parametrize(("name", "block"), SHOWN, ids=[name for name, _ in SHOWN])
def test_a_shown_text_is_what_the_tool_prints(name: str, block: str) -> None:
    for line in [block] if block.startswith("failed") else block.splitlines():
        assert words(line) in printed(name)


@pytest.mark.parametrize(
    ("line", "what"), [(93, "wait_full"), (87, "tma_load(ring.a(stage)")], ids=["the wait", "the load"]
)
def test_a_named_line_is_the_one_that_the_text_speaks_of(line: int, what: str) -> None:
    source = (ROOT / "reference" / "demo" / "gemm.cu").read_text().splitlines()
    assert f"ine {line} " in TEXT
    assert what in " ".join(source[line - 2 : line])


def test_the_python_example_runs() -> None:
    (example,) = PYTHON
    space: dict[str, object] = {}
    exec(example, space)
    assert space["result"].ok  # type: ignore[attr-defined]


def test_every_file_that_the_text_names_is_there() -> None:
    for path in re.findall(r"(?:reference|tests|docs)/[\w/.-]+\.\w+", TEXT):
        assert (ROOT / path).exists(), path
