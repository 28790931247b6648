"""Sections of a feedback text and how they are fitted into a budget of tokens, the most useful first; no content.

A line never depends on a later one (nothing is fenced), so that a text may be cut behind any of its lines.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ptxbench.agent.feedback.context import tokens

LEAST = 60
"""Tokens below which the beginning of a section is not worth showing."""


@dataclass(frozen=True)
class Section:
    """A title and the lines below it; one without lines is left out.

    Attributes:
        title: What the lines are about.
        lines: Bullets and listings.
        tail: Lines at the end that are kept when the middle has to go.
    """

    title: str
    lines: tuple[str, ...]
    tail: int = 0

    @property
    def text(self) -> str:
        """Title and lines."""
        return "\n".join((f"{self.title}:", *self.lines))


def fit(head: str, sections: Iterable[Section], foot: str, budget: int) -> str:
    """Head and foot whole; between them as much of the sections as the budget allows, in their order."""
    parts, left = [head], budget - tokens(head) - tokens(foot) - 2
    for section in sections:
        if not section.lines:
            continue
        text = section.text if tokens(section.text) + 1 <= left else _cut(section, left)
        if text:
            parts.append(text)
            left -= tokens(text) + 1
    return "\n\n".join((*parts, foot)) + "\n"


def _cut(section: Section, budget: int) -> str:
    """The section with lines left out of its middle, or of its end; empty where next to nothing would stay."""
    lines = section.lines
    tail = lines[len(lines) - section.tail :] if section.tail < len(lines) else ()
    mark = f"[{len(lines)} more lines left out]"
    left = budget - tokens("\n".join((f"{section.title}:", mark, *tail))) - 2
    head: list[str] = []
    for line in lines[: len(lines) - len(tail)]:
        left -= tokens(line + "\n")
        if left < 0:
            break
        head.append(line)
    if not head or budget < LEAST:
        return ""
    out = len(lines) - len(head) - len(tail)
    return "\n".join((f"{section.title}:", *head, f"[{out} more lines left out]", *tail))
