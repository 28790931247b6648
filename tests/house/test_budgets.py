"""The budget tool finds what it is for; whether the repository keeps the budgets is `make check`'s business."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
WORD_RULES = (ROOT / "tools" / "forbidden_words.txt").read_text()


@pytest.fixture(scope="module")
def budgets() -> ModuleType:
    spec = importlib.util.spec_from_file_location("budgets", ROOT / "tools" / "budgets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["budgets"] = module
    spec.loader.exec_module(module)
    return module


def messages(budgets: ModuleType, root: Path, path: str, text: str) -> list[str]:
    """What the tool says about a repository of one file."""
    (root / "tools").mkdir(exist_ok=True)
    (root / "tools" / "forbidden_words.txt").write_text(WORD_RULES)
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return [breach.message for breach in budgets.breaches(root)]


def test_a_tidy_module_breaks_nothing(budgets: ModuleType, tmp_path: Path) -> None:
    assert messages(budgets, tmp_path, "src/ptxbench/tidy.py", '"""Tidy."""\n\nX = 1\n') == []


def test_a_file_of_401_lines_is_too_long(budgets: ModuleType, tmp_path: Path) -> None:
    text = '"""Long."""\n' + "X = 1\n" * 400
    assert messages(budgets, tmp_path, "src/ptxbench/long.py", text) == ["401 lines; a file has at most 400"]


def test_a_python_function_of_61_lines_is_too_long(budgets: ModuleType, tmp_path: Path) -> None:
    text = '"""Long."""\n\ndef f() -> None:\n' + "    print()\n" * 60
    assert messages(budgets, tmp_path, "tools/long.py", text) == ["f: 61 lines; at most 60"]


def test_a_c_function_of_61_lines_is_too_long_even_inside_a_namespace(budgets: ModuleType, tmp_path: Path) -> None:
    body = '  if (x) { y("}"); } // {\n' * 59
    text = f"#define F(x) {{ \\\n  x\nnamespace a {{\nint f(int x) {{\n{body}}}\nint g(void) {{ return 0; }}\n}}\n"
    assert messages(budgets, tmp_path, "src/ptxbench/native/f.h", text) == ["a function of 61 lines; at most 60"]


def test_a_kernel_file_may_hold_one_long_function(budgets: ModuleType, tmp_path: Path) -> None:
    text = "__global__ void k() {\n" + "  f();\n" * 100 + "}\n"
    assert messages(budgets, tmp_path, "tests/kernels/k.cu", text) == []


@pytest.mark.parametrize(
    "statement", ["import os\nX = os.environ['A']", "import os\nX = os.getenv('A')", "from os import environ"]
)
def test_the_environment_is_read_by_settings_alone(budgets: ModuleType, tmp_path: Path, statement: str) -> None:
    text = f'"""Reads."""\n{statement}\n'
    assert len(messages(budgets, tmp_path, "src/ptxbench/other.py", text)) == 1


def test_settings_may_read_the_environment(budgets: ModuleType, tmp_path: Path) -> None:
    text = '"""Reads."""\nimport os\nX = os.environ\n'
    assert messages(budgets, tmp_path, "src/ptxbench/settings.py", text) == []


def test_a_module_without_docstring_and_with_an_empty_name_breaks_two_rules(
    budgets: ModuleType, tmp_path: Path
) -> None:
    assert len(messages(budgets, tmp_path, "src/ptxbench/utils.py", "X = 1\n")) == 2


@pytest.mark.parametrize(
    "line", ["see " + "/ho" + "me/someone/x", "# TO" + "DO later", "pip install --index" + "-url x"]
)
def test_a_forbidden_word_is_named_with_its_reason(budgets: ModuleType, tmp_path: Path, line: str) -> None:
    assert len(messages(budgets, tmp_path, "docs/x.md", line + "\n")) == 1
