"""Memory and processor time of a process and all that it started, from /proc; ends nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Usage:
    """What a tree of processes holds and has used.

    Attributes:
        memory: Bytes that are resident; memory that several of them share counts once.
        seconds: Of processor time, user and system.
    """

    memory: int
    seconds: float


def usage(pid: int) -> Usage:
    """The usage of `pid` and its descendants; zeros once it is gone."""
    own, shared, seconds = 0, 0, 0.0
    for each in _tree(pid):
        try:
            status = (each / "status").read_text()
            times = (each / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        own += _bytes(fields.get("RssAnon"))
        shared = max(shared, _bytes(fields.get("RssShmem")))
        seconds += sum(int(each) for each in times[11:15]) / _TICKS  # its own, and of children that have ended
    return Usage(own + shared, seconds)


def _tree(pid: int) -> Iterator[Path]:
    folder = Path("/proc") / str(pid)
    yield folder
    try:
        children = [word for task in folder.glob("task/*/children") for word in task.read_text().split()]
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def _bytes(field: str | None) -> int:
    return int(field.split()[0]) << 10 if field else 0
