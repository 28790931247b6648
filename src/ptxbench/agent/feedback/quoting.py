"""Makes text that a candidate may have chosen fit to stand in a feedback: one line, bounded, quoted; judges nothing.

Kernel names, file names (`#line`), messages of `static_assert` and of thrown errors are the candidate's own words.
Whatever they hold, they stay within the backticks, or behind the gutter of a listing, where they are put.
"""

from __future__ import annotations

import re

MESSAGE = 300
"""Characters of one quoted message."""
NAME = 80
"""Characters of one quoted name."""
LINE = 160
"""Characters of one line of a listing."""

_FOLDERS = re.compile(r"(?<![\w.])(?:/[\w.+-]+)+/(?=[\w.+-])")
_MANGLED = re.compile(r"^_ZN?(?=\d)")
_PART = re.compile(r"([1-9]\d{0,3})(?!\d)")


def plain(text: str, limit: int = MESSAGE) -> str:
    """One line of printable characters without backticks, and without the folders of this machine."""
    line = " ".join(_FOLDERS.sub("", text).split())
    safe = "".join("'" if char == "`" else char if char.isprintable() else "?" for char in line)
    return safe if len(safe) <= limit else safe[: limit - 3] + "..."


def quoted(text: str, limit: int = MESSAGE) -> str:
    """`text` between backticks."""
    return f"`{plain(text, limit) or ' '}`"


def listed(text: str) -> str:
    """A line of source for a listing: its indentation is kept, and no character ends the line or moves the cursor."""
    safe = "".join(char if char.isprintable() else "?" for char in text.rstrip().expandtabs(4))
    return safe if len(safe) <= LINE else safe[: LINE - 3] + "..."


def kernel_name(name: str) -> str:
    """A kernel's own name, quoted: the last part of what the Itanium ABI made of it, or all of it where it is plain."""
    nested, rest, last = name.startswith("_ZN"), _MANGLED.sub("", name), name
    while rest != name and (part := _PART.match(rest)) and (size := int(part[1])) <= len(rest) - part.end():
        last, rest = rest[part.end() : part.end() + size], rest[part.end() + size :]
        if not nested:
            break
    return quoted(last, NAME)
