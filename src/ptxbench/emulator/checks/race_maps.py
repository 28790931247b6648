"""Tensor maps in memory that the kernel itself wrote, for the check for races; maps that came with the launch are free.

PTX ISA, section Tensormap proxy: whoever edits a map fences with fence.proxy.tensormap::generic.release, whoever uses
it with fence.proxy.tensormap::generic.acquire on its 128 bytes, and release and acquire stand between. A map must not
be edited while a copy may still read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ptxbench.emulator.checks.clocks import VISIBLE, WARP, Ints
from ptxbench.emulator.checks.history import History, Kind, Places
from ptxbench.emulator.checks.race_ground import run_of
from ptxbench.emulator.checks.races import Access, Side

if TYPE_CHECKING:
    from ptxbench.emulator.checks.race_checks import RaceChecks

BYTES = 128


@dataclass(frozen=True)
class _Seen:
    """What a thread's acquire found: the writes that it covers, and one whose author had not released it."""

    writes: bytes
    unreleased: tuple[int, int] | None


class MapRaces:
    """Watches the maps of one cluster."""

    def __init__(self, checks: RaceChecks) -> None:
        self.checks = checks
        self._released = -1
        self._seen: dict[int, dict[int, _Seen]] = {}
        self._used: dict[int, int] = {}

    def released(self, threads: Ints) -> None:
        """`fence.proxy.tensormap::generic.release`, alone or with a copy: the edits of these threads so far."""
        clocks = self.checks.clocks
        if self._released < 0:
            self._released = clocks.column(clocks.threads)
        for thread in threads.tolist():
            mark = clocks.mark(self._released + thread, int(clocks.now[thread // WARP]))
            clocks.acquire(np.asarray([thread]), mark)
        clocks.advance(threads)

    def acquired(self, threads: Ints, addresses: Ints, line: int) -> None:
        """`fence.proxy.tensormap::generic.acquire`: the threads may use the maps as they are now."""
        for thread, address in zip(threads.tolist(), addresses.tolist(), strict=True):
            found = self._places(address, line)
            if found is not None:
                seen = _Seen(_state(*found), self._unreleased(thread, *found))
                self._seen.setdefault(address, {})[thread] = seen

    def used(self, threads: Ints, addresses: Ints, kind: Kind) -> None:
        """Threads issue tensor copies through these maps."""
        self._used = {}
        for thread, address in zip(threads.tolist(), addresses.tolist(), strict=True):
            found = self._places(address, kind.line)
            if found is None:
                continue
            self._used[thread] = address
            history, places = found
            if not history.written or not (history.writer[places].any() or history.strong is not None):
                continue
            access = Access(history, places, np.asarray(thread), 0, kind)
            races = list(self.checks.judge.read(access))
            self.checks.found(races)
            if not races:
                self._fences(thread, address, found, kind)

    def read(self, thread: int, number: int, line: int) -> None:
        """A copy that a thread has issued reads its map until it is over."""
        address = self._used.pop(thread, None)
        found = self._places(address, line) if address is not None else None
        if found is not None:
            found[0].read(found[1], number)

    def _fences(self, thread: int, address: int, found: tuple[History, Places], kind: Kind) -> None:
        seen, now = self._seen.get(address, {}), _state(*found)
        reader = Side(kind, self.checks.number, thread, write=False)
        mine = seen.get(thread)
        if mine is None or mine.writes != now:
            # Another thread's fence is not the rule, but that it was there is something.
            others = any(each.writes == now for each in seen.values())
            author = self._author(found[0], *_last(*found))
            self.checks.report.unfenced_map(author, reader, "acquire", sure=not others)
        elif mine.unreleased is not None:
            author = self._author(found[0], *mine.unreleased)
            self.checks.report.unfenced_map(author, reader, "release", sure=True)

    def _unreleased(self, thread: int, history: History, places: Places) -> tuple[int, int] | None:
        """A write that no release of its author covers, as far as a thread knows: entry and lane."""
        entries, clocks = self.checks.ground.entries, self.checks.clocks
        for number, lane in _writes(history, places):
            if entries.engine[number]:
                continue
            column = self._released + int(entries.column[number]) + lane
            place = (int(entries.cluster[number]), column, int(entries.time[number]))
            if self._released < 0 or not clocks.knows_of(thread, VISIBLE, place):
                return number, lane
        return None

    def _author(self, history: History, number: int, lane: int) -> Side:
        entries = history.entries
        kind, owner = entries.kinds[int(entries.kind[number])], int(entries.owner[number]) + lane
        return Side(kind, int(entries.cluster[number]), owner, write=True)

    def _places(self, address: int, line: int) -> tuple[History, Places] | None:
        ground = self.checks.ground
        found = ground.history(address, line)
        return (found[0], run_of(address - found[1], BYTES, ground.grains[1])) if found is not None else None


def _writes(history: History, places: Places) -> list[tuple[int, int]]:
    """The last ordinary writes: entry and lane."""
    pairs = np.unique(np.stack([history.writer[places], history.lane[places].astype(np.int32)]), axis=1)
    return [(number, lane) for number, lane in pairs.T.tolist() if number]


def _last(history: History, places: Places) -> tuple[int, int]:
    return max(_writes(history, places), default=(0, 0))


def _state(history: History, places: Places) -> bytes:
    """What is different after any write."""
    strong = history.strong[0][places].tobytes() if history.strong is not None else b""
    return history.writer[places].tobytes() + history.lane[places].tobytes() + strong
