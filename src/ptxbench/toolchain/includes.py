"""Which files a candidate's source may name for the compiler to read: those beside it and headers on the include path.

An early, deterministic refusal; the real wall is the confinement of the compiler (`confine.py`), which not every
machine has. It says nothing about forbidden libraries: that is the policy stage's question.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from pathlib import PurePosixPath

from ptxbench.schema.candidate import Candidate
from ptxbench.schema.stages import Diagnostic

_SPLICE = re.compile(r"(?:\\|\?\?/)[ \t]*\r?\n")
_COMMENT_OR_LITERAL = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)"
    r'|R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"'
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])*'",
    re.DOTALL,
)
_DIRECTIVE = re.compile(
    r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:include|include_next|import|embed)\b[ \t]*(?P<argument>[^\n]*)", re.MULTILINE
)
_HAS = re.compile(r"__has_(?:include|include_next|embed)\s*\(\s*(?P<argument>[^)\n]*)")
_NAME = re.compile(r'"(?P<quoted>[^"\n]+)"|<(?P<angled>[^>\n]+)>')
_ASSEMBLER = re.compile(r"\.(?:incbin|include)\b")


def safe_name(path: str) -> bool:
    """Whether a source's path can be given to compilers, which pass it to a shell unquoted and read options from it."""
    return re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*(?:/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*", path) is not None


def refused_includes(candidate: Candidate) -> tuple[Diagnostic, ...]:
    """One error for each directive that would make the compiler read a file by an absolute path, a path through a
    parent folder, a macro (whose value is not known here), or the assembler's own `.include` and `.incbin`.
    """
    return tuple(
        Diagnostic(severity="error", message=message, file=source.path, line=line)
        for source in candidate.sources
        for line, message in _refusals(source.content)
    )


def _refusals(text: str) -> list[tuple[int, str]]:
    code, splices = _spliced(text)
    code = _COMMENT_OR_LITERAL.sub(_without_comment, code)
    found = []
    for pattern in (_DIRECTIVE, _HAS):
        for match in pattern.finditer(code):
            argument = match["argument"].strip()
            problem = _problem(argument)
            if problem:
                found.append((match.start(), f"cannot include {argument or 'nothing'}: {problem}"))
    for literal in _COMMENT_OR_LITERAL.finditer(code):
        if directive := _ASSEMBLER.search(literal[0]):
            found.append((literal.start(), f"the assembler directive {directive[0]} reads files; it is refused"))
    return [(1 + code.count("\n", 0, at) + bisect_right(splices, at), message) for at, message in sorted(found)]


def _spliced(text: str) -> tuple[str, list[int]]:
    """The text as the preprocessor sees it, lines that end in a backslash joined, and where they were joined."""
    parts, splices, length, end = [], [], 0, 0
    for match in _SPLICE.finditer(text):
        parts.append(text[end : match.start()])
        length += len(parts[-1])
        splices.append(length)
        end = match.end()
    return "".join([*parts, text[end:]]), splices


def _without_comment(match: re.Match[str]) -> str:
    text = match[0]
    return re.sub(r"[^\n]", " ", text) if text.startswith(("//", "/*")) else text


def _problem(argument: str) -> str:
    match = _NAME.match(argument)
    if match is None:
        return "the name must stand there literally, not through a macro"
    name = PurePosixPath(match["quoted"] or match["angled"])
    if name.is_absolute():
        return "absolute paths are refused"
    if ".." in name.parts:
        return "paths through a parent folder are refused"
    return ""
