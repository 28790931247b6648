"""A timeline of a launch for Perfetto or chrome://tracing: warps, barriers, TMA and tensor cores; it measures no time.

The unit of its axis is one executed warp instruction, shown as one microsecond: it orders events, and says nothing of
how long hardware takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptxbench.emulator.checks.observer import Observer

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cluster import Cluster
    from ptxbench.emulator.machine.cta import Cta
    from ptxbench.emulator.machine.named import NamedBarrier
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.products import Product
    from ptxbench.emulator.machine.unit import Mask, Unit
    from ptxbench.emulator.machine.work import Work

MOST = 200_000
"""Events that are kept; a viewer is of no use beyond."""


@dataclass
class Trace:
    """The events of a run in Chrome's trace format; `watch` goes into `Policy.watch`."""

    events: list[dict[str, Any]] = field(default_factory=list)
    left_out: int = 0
    """Events beyond the most that are kept."""
    _processes: dict[str, int] = field(default_factory=dict)
    _named: set[tuple[int, int]] = field(default_factory=set)

    @property
    def watch(self) -> Callable[[Cluster], Observer]:
        """Makes the observer of each cluster."""
        return lambda cluster: _Tracer(self, cluster)

    def text(self) -> str:
        """The JSON document (Trace Event Format, the object form); it says itself how many events are left out."""
        document = {"displayTimeUnit": "ns", "otherData": {"left_out": self.left_out}, "traceEvents": self.events}
        return json.dumps(document, separators=(",", ":"))

    def process(self, cta: Cta) -> int:
        """The number of a CTA; on its first use it gets its name."""
        name = cta.name()
        if name not in self._processes:
            self._processes[name] = len(self._processes) + 1
            self._name("process_name", (self._processes[name], 0), name)
        return self._processes[name]

    def thread(self, unit: Unit) -> tuple[int, int]:
        """The numbers of a unit: its CTA, and itself."""
        key = (self.process(unit.cta), unit.index + 1)
        if key not in self._named:
            self._named.add(key)
            warps = unit.warp_numbers(None)
            self._name("thread_name", key, f"warps {warps[0]}-{warps[-1]}" if len(warps) > 1 else f"warp {warps[0]}")
        return key

    def add(self, event: dict[str, Any]) -> None:
        """Keep an event."""
        if len(self.events) < MOST:
            self.events.append(event)
        else:
            self.left_out += 1

    def _name(self, what: str, key: tuple[int, int], name: str) -> None:
        self.events.append({"name": what, "ph": "M", "pid": key[0], "tid": key[1], "args": {"name": name}})


class _Tracer(Observer):
    """Writes what one cluster does into the trace."""

    gathers = True

    def __init__(self, trace: Trace, cluster: Cluster) -> None:
        self.trace = trace
        self.kernel = cluster.kernel
        self.waiting: dict[int, tuple[int, str]] = {}

    def ran(self, unit: Unit, since: int) -> None:
        """A unit ran; what it waited for before ends here, and what it waits for now begins."""
        now = self.kernel.spent
        begun = self.waiting.pop(id(unit), None)
        if begun is not None and since > begun[0]:
            self._slice(unit, begun[1], begun[0], since)
        if now > since:
            self._slice(unit, "run", since, now)
        if unit.waits:
            self.waiting[id(unit)] = (now, f"wait: {unit.waits[0].describe(unit)}")

    def arrived(self, phases: Phases, unit: Unit) -> None:
        """An arrival at an mbarrier."""
        self._instant(unit, f"arrive: {phases.describe()}")

    def barrier_arrive(self, barrier: NamedBarrier, unit: Unit, mask: Mask) -> None:
        """An arrival at a CTA barrier."""
        self._instant(unit, "arrive at a CTA barrier")

    def issued(self, work: Work) -> None:
        """A copy begins."""
        self._flight(work.unit, ("copy", id(work)), "b", f"{work.kind} (line {work.line})")

    def landed(self, work: Work) -> None:
        """It ends."""
        self._flight(work.unit, ("copy", id(work)), "e", f"{work.kind} (line {work.line})")

    def product_issued(self, unit: Unit, product: Product) -> None:
        """A wgmma begins."""
        self._flight(unit, ("mma", id(product)), "b", f"wgmma (line {product.line})")

    def products_waited(self, unit: Unit, products: Sequence[Product]) -> None:
        """Their results are waited for."""
        for product in products:
            self._flight(unit, ("mma", id(product)), "e", f"wgmma (line {product.line})")

    def _slice(self, unit: Unit, name: str, start: int, end: int) -> None:
        pid, tid = self.trace.thread(unit)
        self.trace.add({"name": name, "ph": "X", "ts": start, "dur": end - start, "pid": pid, "tid": tid})

    def _instant(self, unit: Unit, name: str) -> None:
        pid, tid = self.trace.thread(unit)
        self.trace.add({"name": name, "ph": "i", "s": "t", "ts": self.kernel.spent, "pid": pid, "tid": tid})

    def _flight(self, unit: Unit, key: tuple[str, int], phase: str, name: str) -> None:
        pid, tid = self.trace.thread(unit)
        event = {"name": name, "cat": key[0], "ph": phase, "id": key[1], "ts": self.kernel.spent, "pid": pid}
        self.trace.add({**event, "tid": tid})
