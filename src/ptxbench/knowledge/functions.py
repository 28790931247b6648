"""Finds the functions that a CUDA text in the repository's layout defines; it parses no C++ beyond that."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEFINITION = re.compile(
    r"""
    ^(?P<head>(?:template\ <[^\n]*>\n)?      # a template's parameters stand on a line of their own
      (?!namespace|struct|extern|return|else|using|typedef)
      [A-Za-z_][^;{}()\#]*?\b(?P<name>\w+)\((?P<parameters>[^;{}]*?)\)(?:\ const)?)\s*
    (?P<body>\{(?:[^\n]*\}$|[^\n]*\n.*?^\}))  # to the end of its line, or to a brace at the start of one
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
_ATTRIBUTES = re.compile(r"\b(?:inline|static)\s+|\b__(?:global|cluster_dims|launch_bounds)__(?:\([^)]*\))?\s*")


@dataclass(frozen=True)
class Function:
    """One definition.

    Attributes:
        signature: Return type, name and parameters on one line, without `inline` and `static`.
        body: From its opening brace to its closing one.
    """

    name: str
    signature: str
    body: str


def functions_of(text: str) -> tuple[Function, ...]:
    """Definitions at the start of a line, in their order; members of structures and macros are none."""
    return tuple(
        Function(match["name"], re.sub(r"\s+", " ", _ATTRIBUTES.sub("", match["head"])).strip(), match["body"])
        for match in _DEFINITION.finditer(text)
    )
