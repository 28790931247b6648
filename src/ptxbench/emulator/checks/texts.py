"""What findings say: rule, severity, sentence, hint; each finding once per place, whatever the number of its occurrences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ptxbench.emulator.report import Finding, Severity

if TYPE_CHECKING:
    from ptxbench.emulator.checks.shadow import Write
    from ptxbench.emulator.machine.cta import Cta
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.products import Product
    from ptxbench.emulator.machine.unit import Unit
    from ptxbench.emulator.machine.work import Work
    from ptxbench.emulator.ptx.ir import Location

_MOST = 200


@dataclass
class Reporter:
    """Collects the findings of one run.

    Attributes:
        locations: CUDA line of each PTX line that has one.
    """

    schedule: str
    locations: Mapping[int, Location]
    findings: dict[tuple[str, int, int], Finding] = field(default_factory=dict)

    def add(self, rule: str, severity: Severity, lines: tuple[int, int], message: str, **more: Any) -> None:
        """Keep a finding, the first one of its rule at these lines."""
        key = (rule, *lines)
        if key in self.findings or len(self.findings) >= _MOST:
            return
        location = self.locations.get(lines[0])
        self.findings[key] = Finding(rule, severity, message, lines[0], location, schedule=self.schedule, **more)

    def never_written(self, cta: Cta, place: int, line: int, unit: Unit, what: str) -> None:
        """Shared memory is read that nobody wrote."""
        self.add(
            "never-written",
            "error",
            (line, 0),
            f"{what} (line {line}) reads shared+{place:#x} of {cta.name()}, which nothing has written",
            warps=_warps(unit),
            hint="wait for the copy that fills it, or check offsets and sizes",
        )

    def early_use(
        self, cta: Cta, place: int, line: int, unit: Unit, write: Write, what: str = "a load"
    ) -> None:
        """Bytes are used before it is known that they are there."""
        state: tuple[str, ...] = ()
        if write.phases is not None:
            state = (write.phases.describe(),)
        doing = "is in flight" if write.by_copy and write.phase is None else "is not known to be over"
        self.add(
            "use-before-completion",
            "error",
            (line, write.line),
            f"{what} (line {line}) reads shared+{place:#x} of {cta.name()} while the {write.kind} of line {write.line} {doing}",
            warps=_warps(unit),
            state=state,
            hint="wait for the mbarrier's phase, or for a barrier behind the store, before reading",
        )

    def overwrite(
        self, cta: Cta, place: int, line: int, writer: tuple[Unit, str], reader: tuple[Unit, int], *, pending: bool
    ) -> None:
        """Bytes are overwritten while somebody may still read them."""
        unit, what = writer
        other, read_line = reader
        doing = "has not been waited for" if pending else "is not known to be over"
        self.add(
            "overwrite-before-release",
            "error",
            (line, read_line),
            f"{what} (line {line}) overwrites shared+{place:#x} of {cta.name()} while the read of line {read_line} {doing}",
            warps=(*_warps(unit), *_warps(other)),
            hint="release the buffer only after the wait that covers its last read",
        )

    def proxy(self, cta: Cta, place: int, line: int, write: Write, what: str, *, weak: bool) -> None:
        """The async proxy reads a generic store that was not fenced by its writer."""
        self.add(
            "proxy-fence",
            "warning" if weak else "error",
            (line, write.line),
            f"{what} (line {line}) reads shared+{place:#x} of {cta.name()}, stored through the generic proxy at line "
            f"{write.line} without fence.proxy.async by the writer" + (" (only the reader fences)" if weak else ""),
            hint="every writing thread: fence.proxy.async.shared::cta after its stores, then the barrier",
        )

    def layout(self, cta: Cta, place: int, line: int, write: Write, span: int) -> None:
        """Descriptor and tensor map disagree about the swizzle."""
        self.add(
            "layout-mismatch",
            "error",
            (line, write.line),
            f"wgmma (line {line}) reads shared+{place:#x} of {cta.name()} with a {span}-byte swizzle, but the tensor copy "
            f"of line {write.line} wrote it with {write.swizzle} bytes",
            hint="use the same swizzle in the tensor map and the matrix descriptor (their codes differ: 1 and 3 change places)",
        )

    def uninitialised(self, phases: Phases, unit: Unit) -> None:
        """An mbarrier that nobody initialised."""
        self.add(
            "uninitialised-barrier",
            "error",
            (unit.line, 0),
            f"line {unit.line} uses shared+{phases.offset:#x} of {phases.cta.name()} as an mbarrier before its initialisation",
            warps=_warps(unit),
            hint="mbarrier.init, fence.mbarrier_init and a barrier of all threads come before the first use",
        )

    def accumulator(self, unit: Unit, product: Product, block: Any) -> None:
        """Accumulators are used before a wait."""
        self.add(
            "accumulator-before-wait",
            "lint",
            (product.line, block.line),
            f"registers of the wgmma of line {product.line} are used from line {block.line} on without a wait",
            warps=_warps(unit),
            hint="wgmma.wait_group before the use; ptxas inserts one (C7517) and serialises the products",
        )

    def missing_fence(self, unit: Unit, product: Product) -> None:
        """A first wgmma without a fence."""
        self.add(
            "wgmma-fence",
            "lint",
            (product.line, 0),
            f"the wgmma of line {product.line} follows other uses of its registers without wgmma.fence",
            warps=_warps(unit),
            hint="wgmma.fence before the first wgmma of a sequence; ptxas inserts one (C7519)",
        )

    def unread(self, work: Work) -> None:
        """A CTA ends while a copy reads its shared memory."""
        self.add(
            "exit-before-read",
            "warning",
            (work.line, 0),
            f"{work.unit.cta.name()} exits while the {work.kind} of line {work.line} has not been waited for",
            hint="cp.async.bulk.wait_group.read 0 before the exit of the issuing thread",
        )


def _warps(unit: Unit) -> tuple[str, ...]:
    return (f"{unit.cta.name()} warps {unit.warp_numbers(None)}",)
