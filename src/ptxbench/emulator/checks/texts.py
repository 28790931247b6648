"""What findings say: rule, severity, sentence, hint; each once per place; looks for nothing itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ptxbench.emulator.report import Finding, Named, Place

if TYPE_CHECKING:
    from ptxbench.emulator.checks.shadow import Write
    from ptxbench.emulator.machine.blocks import RunBlock
    from ptxbench.emulator.machine.cta import Cta
    from ptxbench.emulator.machine.dependence import HeldBack
    from ptxbench.emulator.machine.phases import Phases
    from ptxbench.emulator.machine.products import Product
    from ptxbench.emulator.machine.unit import Unit
    from ptxbench.emulator.machine.work import Work
    from ptxbench.emulator.ptx.ir import Location

_MOST = 200
_BEHIND = "griddepcontrol.wait before the first access to what the kernel in front reads or writes"
_LINE = re.compile(r"\bline (\d+)")
"""How the sentences below, and those about waits, name a line of PTX."""

_RULES = {
    "cudaErrorIllegalAddress": ("out-of-bounds", "check the offset against the size of the allocation"),
    "cudaErrorMisalignedAddress": ("misaligned", "an access of n bytes needs an address that is a multiple of n"),
    "cudaErrorIllegalInstruction": ("illegal-use", "the operands or the participating threads are not allowed"),
    "cudaErrorAssert": ("assertion", "the kernel's own assertion failed"),
    "cudaErrorLaunchTimeout": ("too-long", "the kernel does not end within the limit"),
    "deadlock": ("deadlock", "compare who arrives, how often and with how many bytes, with what the waits expect"),
}


@dataclass
class Reporter:
    """Collects the findings of one run.

    Attributes:
        locations: CUDA line of each PTX line that has one.
        cluster: The number of the one that runs.
        found_in: The cluster of each finding.
    """

    schedule: str
    locations: Mapping[int, Location]
    findings: dict[tuple[str, int, int], Finding] = field(default_factory=dict)
    cluster: int = 0
    found_in: dict[tuple[str, int, int], int] = field(default_factory=dict)

    def add(self, finding: Finding, other: int = 0) -> None:
        """Keep a finding, the first one of its rule at its line and the other line."""
        key = (finding.rule, finding.line, other)
        if key not in self.findings and len(self.findings) < _MOST:
            location = self.locations.get(finding.line)
            named = self._named((finding.message, *finding.state))
            self.findings[key] = replace(finding, location=location, schedule=self.schedule, named=named)
            self.found_in[key] = self.cluster

    def _named(self, texts: Iterable[str]) -> tuple[Named, ...]:
        """The places of the PTX lines that the texts name, each once, in their order."""
        lines = dict.fromkeys(int(number) for text in texts for number in _LINE.findall(text))
        return tuple(Named(line, Place.of(self.locations[line])) for line in lines if line in self.locations)

    def include(self, found: Iterable[tuple[int, tuple[str, int, int], Finding]]) -> None:
        """Findings of other processes, by cluster; what is kept is what a run of all clusters in order would keep."""
        mine = [(self.found_in[key], key, finding) for key, finding in self.findings.items()]
        self.findings, self.found_in = {}, {}
        for cluster, key, finding in sorted((*mine, *found), key=lambda each: each[0]):
            if key not in self.findings and len(self.findings) < _MOST:
                self.findings[key], self.found_in[key] = finding, cluster

    def forget_after(self, cluster: int) -> None:
        """A run of all clusters in order would have ended at this one."""
        self.findings = {key: each for key, each in self.findings.items() if self.found_in[key] <= cluster}

    def stopped(self, error: str, line: int, reason: str, state: tuple[str, ...] = ()) -> None:
        """The device stops the kernel, or it hangs."""
        rule, hint = _RULES.get(error, ("launch-failure", "the device stops here"))
        if "mbarrier" in reason and error == "cudaErrorLaunchFailure":
            rule, hint = "barrier-protocol", "count arrivals and bytes: what init and expect_tx say must be what comes"
        self.add(Finding(rule, "error", f"{error}: {reason}", line, state=state, hint=hint))

    def dependent(self, held: HeldBack, *, whole: bool) -> None:
        """A kernel that may begin before the one in front of it has ended has come to its end."""
        if held.lost[1]:
            message = (
                f"{held.lost[1]} bytes from {held.lost[0]:#x} on are written before griddepcontrol.wait, and by the "
            )
            message += "kernel in front"
            self.add(Finding("dependent-launch", "error", message, 0, hint=_BEHIND))
        elif whole and not held.waited and held.changes.pieces:
            message = (
                "this kernel may begin before the one in front has ended, and never executes griddepcontrol.wait: "
            )
            message += "it need not see what that one wrote"
            self.add(Finding("dependent-launch", "warning", message, 0, hint=_BEHIND))

    def never_written(self, cta: Cta, place: int, line: int, unit: Unit, what: str) -> None:
        """Shared memory is read that nobody wrote."""
        message = f"{what} (line {line}) reads shared+{place:#x} of {cta.name()}, which nothing has written"
        hint = "wait for the copy that fills it, or check offsets and sizes"
        self.add(Finding("never-written", "error", message, line, warps=_warps(unit), hint=hint))

    def early_use(self, where: tuple[Cta, int], line: int, unit: Unit, write: Write, what: str = "a load") -> None:
        """Bytes are used before it is known that they are there."""
        cta, place = where
        state = (write.phases.describe(),) if write.phases is not None else ()
        doing = "is in flight" if write.by_copy and write.phase is None else "is not known to be over"
        message = f"{what} (line {line}) reads shared+{place:#x} of {cta.name()} while the {write.kind} of line "
        message += f"{write.line} {doing}"
        hint = "wait for the mbarrier's phase, or for a barrier behind the store, before reading"
        made = Finding("use-before-completion", "error", message, line, warps=_warps(unit), state=state, hint=hint)
        self.add(made, write.line)

    def overwrite(
        self, where: tuple[Cta, int], line: int, writer: tuple[Unit, str], reader: tuple[Unit, int], *, pending: bool
    ) -> None:
        """Bytes are overwritten while somebody may still read them."""
        cta, place = where
        doing = "has not been waited for" if pending else "is not known to be over"
        message = f"{writer[1]} (line {line}) overwrites shared+{place:#x} of {cta.name()} while the read of line "
        message += f"{reader[1]} {doing}"
        hint = "release the buffer only after the wait that covers its last read"
        warps = (*_warps(writer[0]), *_warps(reader[0]))
        self.add(Finding("overwrite-before-release", "error", message, line, warps=warps, hint=hint), reader[1])

    def proxy(self, where: tuple[Cta, int], line: int, write: Write, what: str, excuse: str) -> None:
        """The async proxy reads a generic store that was not fenced by its writer; `excuse`: why a H200 bears it."""
        cta, place = where
        message = f"{what} (line {line}) reads shared+{place:#x} of {cta.name()}, stored through the generic proxy at "
        message += f"line {write.line} without fence.proxy.async by the writer"
        message += f" ({excuse})" if excuse else ""
        hint = "every writing thread: fence.proxy.async.shared::cta after its stores, then the barrier"
        made = Finding("proxy-fence", "warning" if excuse else "error", message, line, hint=hint)
        self.add(made, write.line)

    def unfenced_read(self, where: tuple[Cta, int], line: int, what: str, read_line: int) -> None:
        """The async proxy overwrites what was loaded through the generic proxy, and the reader did not fence."""
        cta, place = where
        message = f"{what} (line {line}) overwrites shared+{place:#x} of {cta.name()}, loaded at line {read_line} "
        message += "without fence.proxy.async by the reader: the load may still wait in its queue"
        hint = "every reading thread: fence.proxy.async.shared::cta after its loads, then release the buffer"
        self.add(Finding("proxy-fence", "warning", message, line, hint=hint), read_line)

    def layout(self, where: tuple[Cta, int], line: int, write: Write, span: int) -> None:
        """Descriptor and tensor map disagree about the swizzle."""
        cta, place = where
        message = f"wgmma (line {line}) reads shared+{place:#x} of {cta.name()} with a {span}-byte swizzle, but the "
        message += f"tensor copy of line {write.line} wrote it with {write.swizzle} bytes"
        hint = "use one swizzle in tensor map and matrix descriptor (their codes differ: 1 and 3 change places)"
        self.add(Finding("layout-mismatch", "error", message, line, hint=hint), write.line)

    def pattern(self, where: tuple[Cta, int], work: Work, period: int) -> None:
        """A swizzled tile does not begin where the pattern does."""
        cta, place = where
        message = f"the {work.kind} of line {work.line} puts a swizzled tile at shared+{place:#x} of {cta.name()}, "
        message += f"which is no multiple of {period}: its rows are exchanged by other addresses than the tile's own"
        hint = f"align the tile to {period} bytes, by hand: dynamic shared memory starts at any multiple of 16"
        self.add(Finding("swizzle-alignment", "warning", message, work.line, warps=_warps(work.unit), hint=hint))

    def uninitialised(self, phases: Phases, unit: Unit) -> None:
        """An mbarrier that nobody initialised."""
        message = f"line {unit.line} uses shared+{phases.offset:#x} of {phases.cta.name()} as an mbarrier before its "
        message += "initialisation"
        hint = "mbarrier.init, fence.mbarrier_init and a barrier of all threads come before the first use"
        self.add(Finding("uninitialised-barrier", "error", message, unit.line, warps=_warps(unit), hint=hint))

    def unordered_initialisation(self, phases: Phases, unit: Unit, line: int) -> None:
        """An mbarrier is used by a unit that cannot know of its initialisation."""
        message = f"line {unit.line} uses the mbarrier shared+{phases.offset:#x} of {phases.cta.name()}, and nothing "
        message += f"orders its initialisation at line {line} before"
        hint = "a barrier of all threads (of the cluster, if others use it) comes behind mbarrier.init"
        made = Finding("uninitialised-barrier", "error", message, unit.line, warps=_warps(unit), hint=hint)
        self.add(made, line)

    def unfenced_initialisation(self, phases: Phases, unit: Unit, line: int) -> None:
        """An mbarrier is used from another CTA, and its initialisation was ordered, but not fenced."""
        message = f"line {unit.line} of {unit.cta.name()} uses the mbarrier shared+{phases.offset:#x} of "
        message += f"{phases.cta.name()}, whose initialisation at line {line} no fence.mbarrier_init makes visible"
        hint = "fence.mbarrier_init.release.cluster behind mbarrier.init, before the cluster's barrier"
        made = Finding("mbarrier-init-fence", "lint", message, unit.line, warps=_warps(unit), hint=hint)
        self.add(made, line)

    def accumulator(self, unit: Unit, product: Product, block: RunBlock) -> None:
        """Accumulators are used before a wait."""
        message = f"registers of the wgmma of line {product.line} are used from line {block.line} on without a wait"
        hint = "wgmma.wait_group before the use; ptxas inserts one (C7517) and serialises the products"
        made = Finding("accumulator-before-wait", "lint", message, product.line, warps=_warps(unit), hint=hint)
        self.add(made, block.line)

    def lent(self, unit: Unit, product: Product, block: RunBlock) -> None:
        """Registers of A are written before a wait."""
        message = f"registers of A of the wgmma of line {product.line} are written from line {block.line} on without a "
        message += "wait"
        hint = "wgmma.wait_group before the registers get other values; ptxas gives them other ones, or serialises"
        made = Finding("operand-before-wait", "lint", message, product.line, warps=_warps(unit), hint=hint)
        self.add(made, block.line)

    def missing_fence(self, unit: Unit, product: Product) -> None:
        """A first wgmma without a fence."""
        message = f"the wgmma of line {product.line} follows other uses of its registers without wgmma.fence"
        hint = "wgmma.fence before the first wgmma of a sequence; ptxas inserts one (C7519)"
        self.add(Finding("wgmma-fence", "lint", message, product.line, warps=_warps(unit), hint=hint))

    def unread(self, work: Work) -> None:
        """A CTA ends while a copy reads its shared memory."""
        message = f"{work.unit.cta.name()} exits while the {work.kind} of line {work.line} has not been waited for"
        hint = "cp.async.bulk.wait_group.read 0 before the exit of the issuing thread"
        self.add(Finding("exit-before-read", "warning", message, work.line, hint=hint))


def _warps(unit: Unit) -> tuple[str, ...]:
    return (f"{unit.cta.name()} warps {unit.warp_numbers(None)}",)
