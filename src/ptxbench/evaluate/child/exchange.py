"""What belongs to the answer of one order, and in which order it may come; anything else is a forgery."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ptxbench.evaluate.child.wire import (
    MAX_NAMES,
    Done,
    ForgedMessageError,
    Kind,
    Message,
    Module,
    Name,
    Phase,
    Progress,
    ProtectionReport,
    RawSpans,
    Status,
)

_PHASES: dict[Kind, tuple[Phase, ...]] = {
    Kind.SETUP: (Phase.CONNECTED, Phase.SANDBOXED, Phase.CONTEXT),
    Kind.READY: (Phase.MEMORY, Phase.READY),
    Kind.LOAD: (Phase.LOADING, Phase.LOADED),
    Kind.CALL: (Phase.CALLING, Phase.RETURNED),
    Kind.CALIBRATE: (Phase.CALLING, Phase.RETURNED),
}
"""Which phases an order passes through."""

_MAX_PROTECTIONS = 32


@dataclass(frozen=True)
class Answer:
    """Everything that came for one order; `wall_ns` is the judge's clock from CALLING to RETURNED, else 0."""

    done: Done
    wall_ns: int
    names: tuple[str, ...]
    modules: tuple[Module, ...]
    protections: tuple[ProtectionReport, ...]
    spans: RawSpans | None


@dataclass
class Exchange:
    """Collects the messages of one answer.

    Attributes:
        kind: Of the order.
        named: Kernel names that are known already.
        phase: The last one reported in this exchange.
        done: The last message, once it is there.
    """

    kind: Kind
    named: int
    phase: Phase | None = None
    done: Done | None = None
    _passed: int = 0
    _entered: int = 0
    _wall_ns: int = 0
    _names: list[str] = field(default_factory=list)
    _modules: list[Module] = field(default_factory=list)
    _protections: list[ProtectionReport] = field(default_factory=list)
    _spans: RawSpans | None = None

    def take(self, message: Message) -> None:
        """Add one message.

        Raises:
            ForgedMessageError: It has no place here.
        """
        if isinstance(message, Progress):
            self._progress(message)
        elif isinstance(message, Done):
            self._finish(message)
        elif isinstance(message, ProtectionReport):
            self._require(self.kind in (Kind.SETUP, Kind.READY) and len(self._protections) < _MAX_PROTECTIONS, message)
            self._protections.append(message)
        else:
            self._require(self.kind is Kind.CALL and self.phase is Phase.RETURNED and self._spans is None, message)
            self._activity(message)

    def answer(self) -> Answer:
        """All of it, once it is done."""
        assert self.done is not None
        return Answer(
            self.done, self._wall_ns, tuple(self._names), tuple(self._modules), tuple(self._protections), self._spans
        )

    def _progress(self, message: Progress) -> None:
        phases = _PHASES.get(self.kind, ())
        self._require(self._passed < len(phases) and phases[self._passed] is message.phase, message)
        if message.phase is Phase.CALLING:
            self._entered = time.perf_counter_ns()
        elif message.phase is Phase.RETURNED:
            self._wall_ns = time.perf_counter_ns() - self._entered
        self.phase = message.phase
        self._passed += 1

    def _finish(self, message: Done) -> None:
        if message.status is Status.OK:
            self._require(self._passed == len(_PHASES.get(self.kind, ())), message)
        self.done = message

    def _activity(self, message: Name | Module | RawSpans) -> None:
        if isinstance(message, Name):
            self._require(message.index == self.named + len(self._names) < MAX_NAMES, message)
            self._names.append(message.text)
        elif isinstance(message, Module):
            self._require(len(self._modules) < MAX_NAMES, message)
            self._modules.append(message)
        else:
            self._spans = message

    def _require(self, fits: bool, message: Message) -> None:
        if not fits:
            raise ForgedMessageError(f"a {type(message).__name__} out of place")
