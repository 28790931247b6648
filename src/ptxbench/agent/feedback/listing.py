"""Excerpts of a candidate's source, with line numbers in a gutter; each line that matters is shown once.

A listing is indented by four spaces and has a gutter, so that no line of the source can look like a line of the text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ptxbench.agent.feedback.quoting import listed
from ptxbench.schema.candidate import Candidate

AROUND = 2
"""Lines before and behind one that matters."""
MOST = 28
"""Lines of one listing."""

Place = tuple[str, int]
"""File and line, counted from 1."""


@dataclass
class Listings:
    """The excerpts of one text."""

    candidate: Candidate | None
    _shown: set[Place] = field(default_factory=set)

    def of(self, places: Iterable[Place], around: int = AROUND, helpers: Iterable[Place] = ()) -> tuple[str, ...]:
        """The lines at these places with those around them, and helpers' lines alone; empty when all were shown."""
        wide = {place: around for place in map(_whole, places)}
        wanted = {place: 0 for place in map(_whole, helpers)} | wide
        new = {place: reach for place, reach in wanted.items() if place not in self._shown and self._has(place)}
        self._shown.update(new)
        files = dict.fromkeys(file for file, _ in new)
        lines = [
            line for file in files for line in self._file(file, {at: new[name, at] for name, at in new if name == file})
        ]
        return (*lines[:MOST], *(["    ..."] if len(lines) > MOST else []))

    def _file(self, file: str, marked: dict[int, int]) -> Iterator[str]:
        source = self._lines(file)
        near = {at for mark, reach in marked.items() for at in range(mark - reach, mark + reach + 1)}
        wanted = sorted(near & set(source))
        before = wanted[0] - 1
        for at in wanted:
            if at != before + 1:
                yield "    ..."
            yield f"    {'>' if at in marked else ' '} {at:>4} | {listed(source[at])}".rstrip()
            before = at

    def _has(self, place: Place) -> bool:
        return place[1] in self._lines(place[0])

    def _lines(self, file: str) -> dict[int, str]:
        """The lines of a source by number; a compiler ends lines at LF alone."""
        for source in self.candidate.sources if self.candidate else ():
            if _base(source.path) == file:
                return dict(enumerate(source.content.split("\n"), 1))
        return {}


def _whole(place: Place) -> Place:
    return (_base(place[0]), place[1])


def _base(file: str) -> str:
    return file.rpartition("/")[2]
