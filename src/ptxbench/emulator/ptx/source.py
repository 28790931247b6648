"""PTX text with its comments blanked, line numbers and bounds; knows no grammar.

Everything that reads PTX works on a `Source`: comments are gone, offsets and lines are those of the text as given.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NoReturn

from ptxbench.emulator.errors import PtxError


@dataclass(frozen=True)
class Limits:
    """Bounds on what `parse` accepts; text beyond them is a PtxError, so hostile text costs bounded time and memory."""

    text: int = 32 << 20
    """Characters of the whole text."""
    statement: int = 8 << 20
    """Characters of one statement (large initialisers are one)."""
    nesting: int = 64
    """Depth of `{}` scopes."""
    functions: int = 20_000
    instructions: int = 2_000_000
    """Over all functions."""
    mnemonics: int = 20_000
    """Different ones in one function; the ISA has fewer."""
    variables: int = 500_000
    """Over all functions and the module."""
    variable_bytes: int = 1 << 40
    """Size of one variable."""
    initial_bytes: int = 256 << 20
    """Bytes of all initialisers together."""


# Strings are matched so that `//` inside a string is not a comment. Each alternative either ends or runs to the end of
# its line or text, so nothing is scanned twice.
_COMMENT = re.compile(r'"[^"\n]*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_NOT_NEWLINE = re.compile(r"[^\n]+")
_SPACE = re.compile(r"\s*")

TOKEN = re.compile(
    r"""\s*(
      0[fF][0-9a-fA-F]{8}(?![\w$]) | 0[dD][0-9a-fA-F]{16}(?![\w$])
    | 0[xX][0-9a-fA-F]+U? | 0[bB][01]+U?
    | \d+\.\d*(?:[eE][+-]?\d+)? | \.\d+(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+ | \d+U?
    | \.[A-Za-z_][\w:]*
    | [A-Za-z][\w$]* | [_$%][\w$]+ | _
    | "[^"\n]*"
    | << | >> | <= | >= | == | != | && | \|\|
    | \S
    )""",
    re.VERBOSE,
)


@dataclass
class Source:
    """The text, comments replaced by blanks of the same length."""

    text: str
    limits: Limits
    _newlines: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._newlines = [m.start() for m in re.finditer("\n", self.text)]

    def line(self, position: int) -> int:
        """Line of an offset, from 1."""
        return bisect_right(self._newlines, position - 1) + 1

    def fail(self, position: int, message: str) -> NoReturn:
        """Raise PtxError for the place."""
        raise PtxError(self.line(position), message)


def clean(text: str, limits: Limits) -> Source:
    """Bound the text and blank its comments.

    Raises:
        PtxError: The text is too long, or a comment or string never ends.
    """
    if len(text) > limits.text:
        raise PtxError(1, f"the text has {len(text)} characters, the limit is {limits.text}")
    source = Source(text, limits)

    def blank(match: re.Match[str]) -> str:
        found = match[0]
        if found[0] == '"':
            if len(found) < 2 or found[-1] != '"':
                source.fail(match.start(), "a string does not end on its line")
            return found
        if found[1] == "*":
            if len(found) < 4 or not found.endswith("*/"):
                source.fail(match.start(), "a comment never ends")
            return _NOT_NEWLINE.sub(lambda part: " " * len(part[0]), found)
        return " " * len(found)

    if '"' in text or "/" in text:
        source.text = _COMMENT.sub(blank, text)
    return source


class Cursor:
    """Reads tokens one after the other; for headers and declarations, where speed does not matter."""

    def __init__(self, source: Source, position: int) -> None:
        self.source = source
        self.position = position

    def peek(self) -> str:
        """The next token, "" at the end."""
        match = TOKEN.match(self.source.text, self.position)
        return match[1] if match else ""

    def take(self) -> str:
        """The next token, which is consumed.

        Raises:
            PtxError: The text ends here.
        """
        match = TOKEN.match(self.source.text, self.position)
        if match is None:
            self.source.fail(self.position, "the text ends in the middle of a statement")
        self.position = match.end()
        return match[1]

    def accept(self, token: str) -> bool:
        """Consume the next token if it is this one."""
        match = TOKEN.match(self.source.text, self.position)
        if match is None or match[1] != token:
            return False
        self.position = match.end()
        return True

    def expect(self, token: str) -> None:
        """Consume this token.

        Raises:
            PtxError: Something else stands here.
        """
        if not self.accept(token):
            self.fail(f"expected `{token}`, found `{self.peek()[:40]}`")

    def name(self) -> str:
        """An identifier, which is consumed."""
        token = self.take()
        if not (token[0].isalpha() or token[0] in "_$%"):
            self.fail(f"expected a name, found `{token[:40]}`")
        return token

    def until(self, stop: str) -> str:
        """The text up to the character `stop`, which is consumed too."""
        end = self.source.text.find(stop, self.position, self.position + self.source.limits.statement)
        if end < 0:
            self.fail(f"`{stop}` is missing, or the statement is too long")
        found = self.source.text[self.position : end]
        self.position = end + 1
        return found

    def skip_space(self) -> None:
        """Move to the next token."""
        match = _SPACE.match(self.source.text, self.position)
        if match:
            self.position = match.end()

    @property
    def line(self) -> int:
        """Line of the next token."""
        self.skip_space()
        return self.source.line(self.position)

    def fail(self, message: str) -> NoReturn:
        """Raise PtxError for the next token's place."""
        self.skip_space()
        self.source.fail(self.position, message)
