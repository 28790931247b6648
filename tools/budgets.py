"""Holds the budgets and the house rules that no linter knows; reports every breach and repairs nothing.

Parameters and complexity are ruff's work, layers import-linter's.
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

FILE_LINES = 400
FUNCTION_LINES = 60

IGNORED = {".git", ".venv", "__pycache__", "build", "dist", "out", ".hypothesis"}
IGNORED_SUFFIXES = ("_cache", ".egg-info")
NAMELESS = {"utils", "util", "helpers", "helper", "misc", "common"}
ENVIRONMENT = {"environ", "getenv", "putenv", "environb"}
ENVIRONMENT_OWNER = "src/ptxbench/settings.py"
WORDS_FILE = "tools/forbidden_words.txt"


@dataclass(frozen=True)
class Breach:
    """One broken rule."""

    path: str
    line: int
    message: str


@dataclass(frozen=True)
class SourceText:
    """A file of the repository as text."""

    path: str
    text: str

    @property
    def lines(self) -> int:
        """Number of lines."""
        return len(self.text.splitlines())


Rule = Callable[[SourceText], Iterator[Breach]]


def file_length(file: SourceText) -> Iterator[Breach]:
    """A file must be readable in one sitting."""
    if file.lines > FILE_LINES:
        yield Breach(file.path, FILE_LINES + 1, f"{file.lines} lines; a file has at most {FILE_LINES}")


def python_functions(file: SourceText) -> Iterator[Breach]:
    """Python functions stay short; a nested one counts for its surroundings too."""
    for node in ast.walk(ast.parse(file.text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield Breach(file.path, node.lineno, f"{node.name}: {length} lines; at most {FUNCTION_LINES}")


def c_functions(file: SourceText) -> Iterator[Breach]:
    """C and C++ functions stay short."""
    for line, length in c_function_spans(file.text):
        if length > FUNCTION_LINES:
            yield Breach(file.path, line, f"a function of {length} lines; at most {FUNCTION_LINES}")


def c_function_spans(text: str) -> Iterator[tuple[int, int]]:
    """First line and number of lines of each outermost function body, opening line included."""
    code = _blank_c_noise(text)
    stack: list[int | None] = []
    head_start = 0
    for position, char in enumerate(code):
        if char in ";{}":
            head = code[head_start:position].strip()
            head_start = position + 1
        if char == "{":
            inside_function = any(start is not None for start in stack)
            is_function = not inside_function and ")" in head and not head.endswith("=")
            stack.append(position if is_function else None)
        elif char == "}" and stack:
            start = stack.pop()
            if start is not None:
                first = code.count("\n", 0, start) + 1
                yield first, code.count("\n", start, position) + 1


_C_NOISE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])*' | ^[ \t]*\#(?:\\\n|[^\n])*""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)


def _blank_c_noise(text: str) -> str:
    """The text without comments, literals and preprocessor lines; line numbers stay."""
    return _C_NOISE.sub(lambda match: "\n" * match.group().count("\n"), text)


def module_docstring(file: SourceText) -> Iterator[Breach]:
    """Each module says what it is and what it is not for."""
    tree = ast.parse(file.text)
    if tree.body and not ast.get_docstring(tree):
        yield Breach(file.path, 1, "the module has no docstring")


def module_name(file: SourceText) -> Iterator[Breach]:
    """A module is named after what it is."""
    if Path(file.path).stem in NAMELESS or Path(file.path).parent.name in NAMELESS:
        yield Breach(file.path, 1, "the name says nothing about what is inside")


def environment_access(file: SourceText) -> Iterator[Breach]:
    """One file knows the environment."""
    if file.path == ENVIRONMENT_OWNER or not file.path.startswith("src/"):
        return
    for node in ast.walk(ast.parse(file.text)):
        names: list[str] = []
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            names = [alias.name for alias in node.names]
        if ENVIRONMENT.intersection(names):
            yield Breach(file.path, getattr(node, "lineno", 1), f"only {ENVIRONMENT_OWNER} reads the environment")


def forbidden_words(file: SourceText, rules: list[tuple[re.Pattern[str], str]]) -> Iterator[Breach]:
    """The project speaks of itself alone."""
    for number, line in enumerate(file.text.splitlines(), 1):
        for pattern, reason in rules:
            if found := pattern.search(line):
                yield Breach(file.path, number, f"{found.group().strip()!r}: {reason}")


def read_word_rules(root: Path) -> list[tuple[re.Pattern[str], str]]:
    """Lines `regular expression <tab> reason`; `#` starts a comment."""
    rules = []
    for line in (root / WORDS_FILE).read_text().splitlines():
        if line and not line.startswith("#"):
            pattern, reason = line.split("\t")
            rules.append((re.compile(pattern), reason))
    return rules


def text_files(root: Path) -> Iterator[SourceText]:
    """Text files of the repository; what builds and tools leave behind, and binary files, are passed over."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(name for name in names if name not in IGNORED and not name.endswith(IGNORED_SUFFIXES))
        for name in sorted(files):
            path = Path(folder, name)
            try:
                yield SourceText(path.relative_to(root).as_posix(), path.read_text())
            except UnicodeDecodeError:
                continue


def rules_for(file: SourceText) -> tuple[Rule, ...]:
    """The rules that bind one file, by its place and kind."""
    top, suffix = file.path.split("/")[0], Path(file.path).suffix
    if top in {"src", "tests", "benchmarks", "tools"} and suffix == ".py":
        return (file_length, python_functions, module_docstring, module_name, environment_access)
    if top in {"src", "tests"} and suffix in {".c", ".cc", ".h"}:
        return (file_length, c_functions)
    if top in {"src", "tests", "reference"} and suffix in {".cu", ".cuh"}:
        return (file_length,)  # a kernel is one function by nature
    return ()


def breaches(root: Path) -> list[Breach]:
    """Every broken rule of the repository at `root`."""
    words = read_word_rules(root)
    found: list[Breach] = []
    for file in text_files(root):
        for rule in rules_for(file):
            found += rule(file)
        if file.path != WORDS_FILE:
            found += forbidden_words(file, words)
    return sorted(found, key=lambda breach: (breach.path, breach.line))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, nargs="?", default=Path(__file__).resolve().parent.parent)
    found = breaches(parser.parse_args().root)
    for breach in found:
        print(f"{breach.path}:{breach.line}: {breach.message}")
    print(f"budgets: {len(found)} breaches" if found else "budgets: kept")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
