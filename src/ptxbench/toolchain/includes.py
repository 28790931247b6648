"""Which files a candidate's source may name for the compiler to read: those beside it and headers on the include path.

An early, deterministic refusal; the real wall is the confinement of the compiler (`confine.py`), which not every
machine has. It says nothing about forbidden libraries: that is the policy stage's question.
"""

from __future__ import annotations

import re
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
    # Spliced lines are one line to the preprocessor; marks keep the count of the lines that they spanned.
    spliced = _SPLICE.sub("\v", text)
    code = _COMMENT_OR_LITERAL.sub(_without_comment, spliced)
    found = []
    for pattern in (_DIRECTIVE, _HAS):
        for match in pattern.finditer(code):
            argument = match["argument"].replace("\v", "").strip()
            problem = _problem(argument)
            if problem:
                found.append((_line(code, match.start()), f"cannot include {argument or 'nothing'}: {problem}"))
    for literal in _COMMENT_OR_LITERAL.finditer(code):
        if directive := _ASSEMBLER.search(literal[0]):
            message = f"the assembler directive {directive[0]} reads files; it is refused"
            found.append((_line(code, literal.start()), message))
    return sorted(found)


def _without_comment(match: re.Match[str]) -> str:
    text = match[0]
    if not text.startswith(("//", "/*")):
        return text
    return " " + re.sub(r"[^\n\v]", "", text)


def _line(code: str, offset: int) -> int:
    return 1 + code.count("\n", 0, offset) + code.count("\v", 0, offset)


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
