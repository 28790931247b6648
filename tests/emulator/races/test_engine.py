"""The engine against a model that keeps every access: random threads, barriers, flags, places, clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.emulator.checks.clocks import NEVER, WARP, Clocks, Message
from ptxbench.emulator.checks.history import Entries, History, Kind
from ptxbench.emulator.checks.races import Access, Judge, Race

THREADS = (0, 1, 31, 32, 40)
"""Threads of each cluster: of two warps."""
CLUSTERS, PLACES, FLAGS = 2, 3, 2
READ, WRITE, ATOMIC = Kind("ld", 1), Kind("st", 2), Kind("atom", 3, scope=3, atomic=True)
Past = dict[tuple[int, int], int]


@dataclass
class Model:
    """Every access with what its thread knew: (kind, thread, its count)."""

    known: dict[tuple[int, int], Past] = field(default_factory=dict)
    count: dict[tuple[int, int], int] = field(default_factory=dict)
    flags: dict[int, Past] = field(default_factory=dict)
    done: list[tuple[int, Kind, tuple[int, int], int]] = field(default_factory=list)

    def release(self, threads: list[tuple[int, int]], flag: int) -> None:
        there = self.flags.setdefault(flag, {})
        for each in threads:
            for key, value in (*self.known.get(each, {}).items(), (each, self.count.get(each, 0))):
                there[key] = max(there.get(key, 0), value)

    def acquire(self, threads: list[tuple[int, int]], flag: int) -> None:
        for each in threads:
            mine = self.known.setdefault(each, {})
            for key, value in self.flags.get(flag, {}).items():
                mine[key] = max(mine.get(key, 0), value)

    def access(self, kind: Kind, who: tuple[int, int], place: int) -> bool:
        """Whether it races with any earlier access."""
        self.count[who] = self.count.get(who, 0) + 1
        mine = self.known.get(who, {})
        here = [each for each in self.done if each[0] == place]
        # Atomics of one place have one order: the last one stands for all.
        last = [each for each in here if each[1] is ATOMIC][-1:]
        race = any(
            other != who and mine.get(other, 0) < count
            for _, before, other, count in [*(each for each in here if each[1] is not ATOMIC), *last]
            if {before, kind} not in ({READ}, {ATOMIC})
        )
        self.done.append((place, kind, who, self.count[who]))
        return race


class Engine:
    """The same through the engine."""

    def __init__(self, rows: int) -> None:
        self.entries = Entries()
        self.history = History("memory", PLACES, rows, self.entries)
        self.clocks = [Clocks(64, number) for number in range(CLUSTERS)]
        self.judges = [Judge(clocks, self.entries, 64, {}) for clocks in self.clocks]
        self.flags: dict[int, dict[int, Message]] = {}

    def release(self, threads: list[tuple[int, int]], flag: int) -> None:
        for cluster in {each[0] for each in threads}:
            made = self.clocks[cluster].release(np.array([x for c, x in threads if c == cluster]))
            there = self.flags.setdefault(flag, {})
            there[cluster] = made.joined(there.get(cluster))

    def acquire(self, threads: list[tuple[int, int]], flag: int) -> None:
        for home, message in list(self.flags.get(flag, {}).items()):
            for cluster in {each[0] for each in threads}:
                mine = np.array([x for c, x in threads if c == cluster])
                self.clocks[cluster].acquire(mine, message.seen_from(home, cluster))

    def access(self, kind: Kind, who: tuple[int, int], place: int) -> list[Race]:
        cluster, thread = who
        clocks, warp = self.clocks[cluster], thread // WARP
        number = self.entries.add(kind, cluster, warp * WARP, int(clocks.now[warp]), warp * WARP)
        threads, places, numbers = np.array([thread]), np.array([place]), np.array([number])
        access = Access(self.history, places, threads, numbers, kind)
        if kind is READ:
            found = list(self.judges[cluster].read(access))
            self.history.read_by_lanes(places, threads, numbers, clocks)
            return found
        return list(self.judges[cluster].write(access))

    @property
    def undecided(self) -> bool:
        return any(judge.undecided for judge in self.judges) or bool(self.history.crowded.any())


def run(steps: list[Any], clusters: int) -> None:
    """Both must agree on each access to a place, up to the first race there."""
    model, engine = Model(), Engine(rows=2 if clusters == 1 else 0)
    over: set[int] = set()
    for what, threads, place in steps:
        chosen = sorted({(cluster % clusters, thread) for cluster, thread in threads})
        if what == "release":
            model.release(chosen, place % FLAGS)
            engine.release(chosen, place % FLAGS)
        elif what == "acquire":
            model.acquire(chosen, place % FLAGS)
            engine.acquire(chosen, place % FLAGS)
        else:
            kind = {"read": READ, "write": WRITE, "atomic": ATOMIC}[what]
            expected, found = model.access(kind, chosen[0], place), engine.access(kind, chosen[0], place)
            if place not in over:
                assert bool(found) == expected or engine.undecided, (what, chosen[0], place)
                assert not (found and not expected)
            if expected:
                over.add(place)
            if engine.undecided:
                return


STEP = st.tuples(
    st.sampled_from(["read", "read", "write", "atomic", "release", "acquire"]),
    st.lists(st.tuples(st.integers(0, CLUSTERS - 1), st.sampled_from(THREADS)), min_size=1, max_size=4),
    st.integers(0, PLACES - 1),
)


@pytest.mark.parametrize("clusters", [1, CLUSTERS])
def test_each_access_is_judged_as_by_a_model_that_forgets_nothing(clusters: int) -> None:
    @settings(max_examples=150, deadline=None)
    @given(st.lists(STEP, max_size=40))
    def check(steps: list[Any]) -> None:
        run(steps, clusters)

    check()


def test_what_is_in_flight_is_over_for_nobody_until_its_end_is_told() -> None:
    engine = Engine(rows=2)
    clocks = engine.clocks[0]
    column = clocks.column()
    copy = engine.entries.add(Kind("TMA load", 9, engine=True), 0, column, NEVER, 0)
    write = Access(engine.history, slice(0, 3), np.array(0), copy, Kind("TMA load", 9, engine=True))
    assert not list(engine.judges[0].write(write))
    assert [race.first.pending for race in engine.access(READ, (0, 0), 1)] == [True]
    engine.entries.time[copy] = 1
    clocks.acquire(np.array([0, 32]), clocks.mark(column, 1))
    assert not engine.access(READ, (0, 0), 2)
    assert engine.access(READ, (0, 1), 2)


def test_columns_may_come_at_any_time_and_old_messages_stay_right() -> None:
    clocks = Clocks(64)
    early = clocks.release(np.array([0]))
    first = clocks.column(500)
    clocks.acquire(np.array([5]), clocks.mark(first + 499, 7))
    clocks.acquire(np.array([5]), early)
    assert clocks.knows_of(5, 0, (0, 0, 1))
    assert clocks.knows_of(5, 0, (0, first + 499, 7))
    assert not clocks.knows_of(6, 0, (0, first + 499, 7))


def test_threads_with_equal_knowledge_share_a_clock() -> None:
    clocks = Clocks(128)
    for _ in range(50):
        message = clocks.release(np.arange(128))
        clocks.acquire(np.arange(0, 128, 2), message)
        clocks.acquire(np.arange(1, 128, 2), message)
        assert np.unique(clocks.of).size == 1
    assert len(clocks.table) == 4


def test_a_barrier_that_makes_nothing_visible_orders_reads_before_writes_alone() -> None:
    engine = Engine(rows=2)
    engine.access(WRITE, (0, 0), 0)
    engine.access(READ, (0, 0), 1)
    clocks = engine.clocks[0]
    clocks.acquire(np.array([40]), clocks.release(np.array([0])), visible=False)
    assert [race.ordered for race in engine.access(READ, (0, 40), 0)] == [True]
    assert not engine.access(WRITE, (0, 40), 1)


def test_more_readers_than_are_remembered_are_said_to_be_undecided() -> None:
    engine = Engine(rows=0)
    engine.history.begin_writes()
    for cluster in range(CLUSTERS):
        for warp in range(2):
            engine.access(READ, (cluster, warp * WARP), 0)
    assert not engine.undecided
    engine.history.read(np.array([0]), engine.entries.add(READ, 7, 0, 1, 0))
    assert engine.undecided
