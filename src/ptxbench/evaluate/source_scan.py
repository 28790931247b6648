"""Reads C++ text just far enough to tell code from comments and strings; it preprocesses and judges nothing.

Follows the lexical phases of ISO C++ ([lex.phases], [lex.pptoken]): lines that end in a backslash are joined, comments
become space, and a header name exists only after `#include`.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

_SPLICE = re.compile(r"\\[ \t]*\r?\n")

_TOKEN = re.compile(
    r"""
    (?P<space>      [^\S\n]+ | //[^\n]* | /\*.*?(?:\*/|\Z) )
  | (?P<newline>    \n )
  | (?P<raw>        (?:u8|[uUL])?R"(?P<fence>[^()\\\s"]{0,16})\( .*? (?:\)(?P=fence)"|\Z) )
  | (?P<string>     (?:u8|[uUL])?"(?:[^"\\\n]|\\.)*"? )
  | (?P<character>  (?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'? )
  | (?P<number>     \.?\d(?:[eEpP][+-]|'?[\w.])* )
  | (?P<word>       [A-Za-z_]\w* )
  | (?P<other>      . )
    """,
    re.DOTALL | re.VERBOSE,
)
_HEADER = re.compile(r'<(?P<angled>[^>\n]+)>|"(?P<quoted>[^"\n]+)"')

_INCLUDING = frozenset({"include", "include_next", "import"})


@dataclass(frozen=True)
class Piece:
    """A word of code, or the header that an `#include` names, with its line (from 1)."""

    kind: Literal["word", "header"]
    text: str
    line: int


def pieces(source: str) -> Iterator[Piece]:
    """The identifiers and included headers of `source`, in order; nothing from comments, strings or characters."""
    text, lines = _spliced(source)
    at, place = 0, _Place.LINE_START
    while at < len(text):
        header = _HEADER.match(text, at) if place is _Place.AFTER_INCLUDE else None
        if header:
            yield Piece("header", header["angled"] or header["quoted"], lines.at(at))
            at, place = header.end(), _Place.ELSEWHERE
            continue
        token = _TOKEN.match(text, at)
        assert token is not None  # the last alternative takes any character
        if token.lastgroup == "word":
            yield Piece("word", token[0], lines.at(at))
        if token.lastgroup != "space":
            place = _next_place(place, token[0])
        at = token.end()


class _Place(Enum):
    LINE_START = auto()
    AFTER_HASH = auto()
    AFTER_INCLUDE = auto()
    ELSEWHERE = auto()


def _next_place(place: _Place, text: str) -> _Place:
    """Where the scanner is after a token that is not space."""
    if text == "\n":
        return _Place.LINE_START
    if place is _Place.LINE_START and text == "#":
        return _Place.AFTER_HASH
    if place is _Place.AFTER_HASH and text in _INCLUDING:
        return _Place.AFTER_INCLUDE
    return _Place.ELSEWHERE


class _Lines:
    """Line numbers of the original text for positions of the spliced one."""

    def __init__(self, starts: list[int], numbers: list[int]) -> None:
        self._starts = starts
        self._numbers = numbers

    def at(self, position: int) -> int:
        return self._numbers[bisect.bisect_right(self._starts, position) - 1]


def _spliced(source: str) -> tuple[str, _Lines]:
    """`source` with continued lines joined, and where its original lines begin in the result."""
    parts: list[str] = []
    starts, numbers = [0], [1]
    length, line = 0, 1
    for row in re.split(r"(?<=\n)", source):
        joined = _SPLICE.search(row)
        part = row[: joined.start()] if joined else row
        parts.append(part)
        length += len(part)
        line += row.count("\n")
        starts.append(length)
        numbers.append(line)
    return "".join(parts), _Lines(starts, numbers)
