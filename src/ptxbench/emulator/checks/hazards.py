"""Races on shared memory by order and visibility: use before completion, overwrite before release, missing fences.

A read is right if its bytes were written, the write lies in the reader's past, and (a generic write, read by the async
proxy) the writer fenced in between. A write is right if all earlier reads of its bytes lie in its past and are over.
PTX ISA, sections Memory Consistency Model, Proxies, Asynchronous Operations.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ptxbench.emulator.checks.observer import Observer
from ptxbench.emulator.checks.order import Actor, BarrierClock, Clock, join
from ptxbench.emulator.checks.shadow import (
    CHUNK,
    PENDING,
    WORD,
    Places,
    Shadow,
    Write,
    chunks_of,
    span,
    span_words,
    words_of,
)
from ptxbench.emulator.checks.texts import Reporter
from ptxbench.emulator.machine.unit import Unit

if TYPE_CHECKING:
    from ptxbench.emulator.machine.blocks import RunBlock
    from ptxbench.emulator.machine.cluster import Cluster
    from ptxbench.emulator.machine.cta import Cta
    from ptxbench.emulator.machine.named import NamedBarrier
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.products import Product
    from ptxbench.emulator.machine.spaces import Lanes, Region
    from ptxbench.emulator.machine.unit import Mask
    from ptxbench.emulator.machine.work import Work


_COPIES = ("TMA load", "bulk copy")
"""What overwrites shared memory through the async proxy without looking at its queue of ordinary loads."""
_WIDE = frozenset(("cluster", "gpu", "gl", "sys"))
"""Scopes of fences that reach the other CTAs of a cluster."""
Reader = tuple[str, int | None]
"""What reads by the async proxy, and the swizzle that it expects."""


class Hazards(Observer):
    """Watches one cluster."""

    def __init__(self, cluster: Cluster, report: Reporter) -> None:
        self.report = report
        units = cluster.units
        self.actors = {id(unit): Actor(unit, row) for row, unit in enumerate(units)}
        # Behind the units there is a row for what each has issued to the tensor core of sm_100a.
        self.units = units * 2 if cluster.kernel.compiled.uses_tensor_memory else units
        self.shadows = {id(cta.shared): Shadow(cta) for cta in cluster.ctas}
        self.named: dict[int, Clock] = {}
        self.cluster_clock: Clock = {}
        self.gone: dict[int, Clock] = {}
        self.alone = len(units) == 1
        # Pairs (unit, write) that were found in order once; knowledge only grows.
        self.known: set[tuple[int, int, int, int | None]] = set()

    def actor(self, unit: Unit) -> Actor:
        """The unit as the order sees it."""
        return self.actors[id(unit)]

    def shadow(self, cta: Cta) -> Shadow:
        """What is remembered of a CTA's shared memory."""
        return self.shadows[id(cta.shared)]

    # Order.

    def uninitialised(self, phases: Phases, unit: Unit) -> None:
        """An mbarrier is used that nobody initialised."""
        self.report.uninitialised(phases, unit)

    def initialised(self, phases: Phases, unit: Unit) -> None:
        """An mbarrier begins to be one; whoever uses it must know."""
        actor, clock = self.actor(unit), BarrierClock.of(phases)
        clock.birth, clock.fenced = (actor.row, actor.time, unit.line), False
        actor.young.append(clock)

    def used(self, phases: Phases, unit: Unit) -> None:
        """A unit uses an mbarrier."""
        clock, actor = BarrierClock.of(phases), self.actor(unit)
        birth = clock.birth
        if birth is None:
            return
        if not actor.knows(birth[0], birth[1]):
            self.report.unordered_initialisation(phases, unit, birth[2])
        elif not clock.fenced and unit.cta is not phases.cta:
            self._fenced(self.actor(self.units[birth[0]]))  # once is enough
            self.report.unfenced_initialisation(phases, unit, birth[2])

    def arrived(self, phases: Phases, unit: Unit) -> None:
        """An arrival carries all that the unit knows."""
        join(BarrierClock.of(phases).pending, self.actor(unit).release())

    def phase_complete(self, phases: Phases) -> None:
        """What the arrivers knew can now be learnt."""
        BarrierClock.of(phases).complete(phases)

    def phase_seen(self, phases: Phases, unit: Unit) -> None:
        """The waiter learns it."""
        join(self.actor(unit).clock, BarrierClock.of(phases).done)

    def barrier_arrive(self, barrier: NamedBarrier, unit: Unit, mask: Mask) -> None:
        """Arrivals at a CTA barrier carry what the unit knows."""
        join(self.named.setdefault(id(barrier), {}), self.actor(unit).release())

    def barrier_complete(self, barrier: NamedBarrier, units: Sequence[Unit]) -> None:
        """Those who waited learn it."""
        clocks = [self.named.get(id(barrier), {})]
        if barrier.expected is None:
            clocks.append(self.gone.get(id(barrier.cta), {}))
        for unit in units:
            for clock in clocks:
                join(self.actor(unit).clock, clock)

    def exited(self, unit: Unit) -> None:
        """Barriers of all threads miss those that have exited no more: who passes one comes behind their exit."""
        clock = self.actor(unit).release()
        join(self.cluster_clock, clock)
        join(self.gone.setdefault(id(unit.cta), {}), clock)

    def cluster_arrive(self, unit: Unit) -> None:
        """As a CTA barrier, for the cluster."""
        join(self.cluster_clock, self.actor(unit).release())

    def cluster_complete(self) -> None:
        """Everybody learns it: all wait, or have exited."""
        for actor in self.actors.values():
            join(actor.clock, self.cluster_clock)

    def fence(self, unit: Unit, words: Sequence[str], mask: Mask | None) -> None:
        """A proxy fence makes a unit's generic writes visible to the async proxy."""
        if words[0] == "wgmma":
            self.actor(unit).exposed = False
            return
        if words[0] == "mbarrier_init" or not _WIDE.isdisjoint(words):
            self._fenced(self.actor(unit))
        if len(words) > 1 and words[0] == "proxy" and words[1].startswith("async"):
            actor, lanes = self.actor(unit), unit.full(mask)
            # A fence covers what its own threads stored; one for a part of the writers is only the weaker sort.
            whole = actor.writers is None or not (actor.writers & ~lanes & unit.live).any()
            actor.proxy_fence(whole=whole)

    def _fenced(self, actor: Actor) -> None:
        """The mbarriers that a unit initialised so far need no fence any more."""
        for clock in actor.young:
            clock.fenced = True
        actor.young.clear()

    # Generic accesses.

    def generic_access(self, unit: Unit, region: Region, offsets: Lanes, size: int, write: bool) -> None:
        """A load or store of lanes."""
        shadow, words = self.shadows[id(region)], words_of(offsets, size)
        actor, line = self.actor(unit), unit.line
        if write:
            places = (chunks_of(offsets, size), words)
            if not self.alone or shadow.read_by_copies:
                self._overwrite(shadow, places, actor, line, "a store")
            shadow.store(places, actor.row, actor.time, line)
            actor.wrote(unit.full(unit.mask))
            return
        # Neighbours in one word that are smaller than it cannot be told apart; they count as in order.
        self._generic_read(shadow, words, actor, line, ordered=self.alone or size < WORD)
        if not self.alone:
            shadow.load(words, actor.row, actor.time, line)

    def _generic_read(self, shadow: Shadow, words: Lanes, actor: Actor, line: int, *, ordered: bool) -> None:
        for number in shadow.writers_of_words(words):
            write = shadow.writes[number]
            if write is None:
                place = shadow.first_word(words, number)
                self.report.never_written(shadow.cta, place, line, actor.unit, "a load")
            elif not (ordered and not write.by_copy) and not self._past(actor, write):
                place = shadow.first_word(words, number)
                self.report.early_use((shadow.cta, place), line, actor.unit, write)

    def _past(self, actor: Actor, write: Write) -> bool:
        """Whether a write lies in a unit's past."""
        if write.by_copy:
            if write.phases is None:
                return actor.knows(write.row, write.time)
            return write.phase is not None and actor.clock.get(write.phases, 0) > write.phase
        return actor.knows(write.row, write.time)

    # Reads by the async proxy.

    def _async_read(self, shadow: Shadow, chunks: Places, actor: Actor, line: int, what: Reader) -> None:
        """wgmma or the copy engine reads: `what` is its name and the swizzle that it expects."""
        name, swizzle = what
        for number in shadow.writers(chunks):
            key = (actor.row, id(shadow), number, swizzle)
            if key in self.known:
                continue
            write = shadow.writes[number]
            if write is None:
                self.report.never_written(shadow.cta, _first(shadow, chunks, 0), line, actor.unit, name)
                continue
            if not self._past(actor, write):
                place = _first(shadow, chunks, number)
                self.report.early_use((shadow.cta, place), line, actor.unit, write, name)
            elif not (write.by_copy or actor.visible(write.row, write.time)):
                excuse = "only the reader fences" if actor.fenced_here(write.row, write.time) else ""
                excuse = (
                    "cp.async, which a H200 keeps in order"
                    if write.line in _plain_copies(shadow.cta.cluster)
                    else excuse
                )
                self.report.proxy((shadow.cta, _first(shadow, chunks, number)), line, write, name, excuse)
            elif swizzle is not None and write.swizzle is not None and write.swizzle != swizzle:
                self.report.layout((shadow.cta, _first(shadow, chunks, number)), line, write, swizzle)
            else:
                self.known.add(key)

    def writes_of(self, cta: Cta) -> int:
        """How many writes of a CTA's shared memory were seen."""
        return len(self.shadow(cta).writes)

    def operand_read(self, unit: Unit, where: tuple[Cta, Places], reader: tuple[int, int, int], what: Reader) -> None:
        """The tensor core of sm_100a reads an operand: row and time of its pipe, and the PTX line."""
        (cta, places), (row, time, line) = where, reader
        self._async_read(self.shadow(cta), places, self.actor(unit), line, what)
        self.shadow(cta).read(places, row, time, line)

    def product_issued(self, unit: Unit, product: Product) -> None:
        """A wgmma reads its operands until somebody waited for it."""
        actor, shadow = self.actor(unit), self.shadow(unit.cta)
        if actor.exposed:
            actor.exposed = False
            self.report.missing_fence(unit, product)
        for operand in product.operands():
            places = operand.places
            if self._looked_at(shadow, actor, places, operand.descriptor.span):
                continue
            self._async_read(shadow, places, actor, product.line, ("wgmma", operand.descriptor.span))
            shadow.read(places, actor.row, PENDING, product.line)

    def _looked_at(self, shadow: Shadow, actor: Actor, places: Places, swizzle: int) -> bool:
        """Whether the unit reads the same run again, and nothing was written or waited for in between."""
        if not isinstance(places, slice):
            return False
        key = (id(shadow), places.start, places.stop, swizzle)
        seen = actor.looked.get(key)
        actor.looked[key] = len(shadow.writes)
        return seen == len(shadow.writes)

    def products_waited(self, unit: Unit, products: Sequence[Product]) -> None:
        """The reads of these products are over; those of later ones into the same bytes are not."""
        actor, shadow = self.actor(unit), self.shadow(unit.cta)
        actor.looked.clear()
        if shadow.loads.rows:
            actor.loads_over()
        for places, line in _runs(products):
            shadow.read(places, actor.row, actor.time, line)
        for places, line in _runs(unit.matrices.unwaited()):
            shadow.read(places, actor.row, PENDING, line)

    def accumulator_used(self, unit: Unit, product: Product, block: RunBlock) -> None:
        """Registers of a product are used before a wait."""
        self.report.accumulator(unit, product, block)

    def operand_overwritten(self, unit: Unit, product: Product, block: RunBlock) -> None:
        """Registers of A are written before a wait."""
        self.report.lent(unit, product, block)

    def registers_exposed(self, unit: Unit) -> None:
        """Ordinary instructions use accumulators: the next wgmma needs a fence."""
        self.actor(unit).exposed = True

    # Copies.

    def issued(self, work: Work) -> None:
        """A copy begins: it may read and overwrite from now on."""
        actor = self.actor(work.unit)
        for part in work.reads:
            shadow, chunks = self.shadow(part.cta), span(part.start, part.size)
            if not part.partial:
                self._async_read(shadow, chunks, actor, work.line, (work.kind, None))
            shadow.read(chunks, actor.row, PENDING, work.line)
        for place, part in enumerate(work.writes):
            shadow, chunks = self.shadow(part.cta), span(part.start, part.size)
            places = (chunks, span_words(part.start, part.size))
            self._overwrite(shadow, places, actor, work.line, work.kind)
            swizzle = part.swizzle if work.kind == "TMA load" else None
            # A pattern of 8 lines repeats from aligned addresses on; only a tile that holds a whole one is judged.
            if swizzle and part.start % (8 * swizzle) and part.size >= 8 * swizzle:
                self.report.pattern((part.cta, part.start), work, 8 * swizzle)
            phases = work.barriers[place][0] if place < len(work.barriers) else None
            write = Write(actor.row, actor.time, work.line, work.kind, phases, None, swizzle)
            shadow.copy(part.start, part.size, write)
            work.records.append(write)

    def landed(self, work: Work) -> None:
        """A copy has moved its data: its barrier's present phase tells of it."""
        for write in work.records:
            if write.phases is not None:
                write.phase = write.phases.state.phase

    def group_waited(self, unit: Unit, works: Sequence[Work], read: bool) -> None:
        """The sources of these copies have been read."""
        actor = self.actor(unit)
        for work in works:
            for part in work.reads:
                self.shadow(part.cta).read(span(part.start, part.size), actor.row, actor.time, work.line)

    def unread_at_exit(self, work: Work) -> None:
        """A CTA's shared memory goes while a copy still reads it."""
        self.report.unread(work)

    def _overwrite(self, shadow: Shadow, places: tuple[Places, Places], actor: Actor, line: int, what: str) -> None:
        """Bytes, as chunks and as words, are overwritten: every earlier read must be over and known."""
        for row, time, read_line, place, loaded in shadow.readers(*places):
            pending = time == PENDING
            if pending or not actor.knows(row, time):
                reader = (self.units[row], read_line)
                self.report.overwrite((shadow.cta, place), line, (actor.unit, what), reader, pending=pending)
            elif loaded and what in _COPIES and not actor.loaded(row, time):
                self.report.unfenced_read((shadow.cta, place), line, what, read_line)


def _plain_copies(cluster: Cluster) -> set[int]:
    """PTX lines of `cp.async` without bulk."""
    blocks = cluster.kernel.compiled.program.blocks
    found = (ins for block in blocks for ins in block.instructions if ins.opcode == "cp")
    return {ins.line for ins in found if ins.modifiers[0] == "async" and "bulk" not in ins.modifiers}


def _runs(products: Sequence[Product]) -> list[tuple[Places, int]]:
    """What products read, each run once, with a PTX line."""
    runs: dict[object, tuple[Places, int]] = {}
    for product in products:
        for operand in product.operands():
            places = operand.places
            key: object = (places.start, places.stop) if isinstance(places, slice) else operand
            runs[key] = (places, product.line)
    return list(runs.values())


def _chunk_of(chunks: Places, place: int) -> int:
    if isinstance(chunks, slice):
        return (int(chunks.start) + place) * CHUNK
    return int(chunks.ravel()[place]) * CHUNK


def _first(shadow: Shadow, chunks: Places, number: int) -> int:
    """The first byte among the chunks whose last write has this number."""
    return _chunk_of(chunks, int(np.argmax(shadow.writer[chunks].ravel() == number)))
