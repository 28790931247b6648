"""What findings about tensor memory say; looks for nothing itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ptxbench.emulator.checks.texts import Reporter
from ptxbench.emulator.report import Finding, Severity

if TYPE_CHECKING:
    from ptxbench.emulator.checks.tensor_shadow import Entry
    from ptxbench.emulator.machine.blocks import RunBlock
    from ptxbench.emulator.machine.tensor_memory import Region
    from ptxbench.emulator.machine.tensor_work import WarpMove
    from ptxbench.emulator.machine.unit import Unit
    from ptxbench.emulator.ptx.ir import Location

_SEVERITIES: dict[str, Severity] = {"error": "error", "warning": "warning", "lint": "lint"}
_DONE = {
    "tcgen05.ld": "tcgen05.wait::ld",
    "tcgen05.st": "tcgen05.wait::st",
}


@dataclass(frozen=True)
class Access:
    """Somebody uses a part of tensor memory.

    Attributes:
        threads: Their numbers in the cluster, where lanes are told apart.
    """

    unit: Unit
    region: Region
    kind: str
    line: int
    threads: Any = None

    def where(self) -> str:
        """The cells, for a sentence."""
        groups, columns = self.region.groups, self.region.columns
        lanes = f"lanes {groups.start * 16} to {groups.stop * 16 - 1}"
        return f"{lanes}, columns {columns.start} to {columns.stop - 1} of tensor memory of {self.region.cta.name()}"


class TensorReporter:
    """Makes findings for a reporter."""

    def __init__(self, report: Reporter) -> None:
        self.report = report
        self.told: set[tuple[str, Location]] = set()

    def rule(self, unit: Unit, kind: tuple[str, str], text: tuple[str, str], line: int) -> None:
        """A rule is broken that stops nothing; told once for each line of CUDA, which may be many of PTX."""
        place = self.report.locations.get(line)
        if (kind[0], place) in self.told:
            return
        if place is not None:
            self.told.add((kind[0], place))
        made = Finding(kind[0], _SEVERITIES[kind[1]], text[0], line, warps=_warps(unit), hint=text[1])
        self.report.add(made)

    def never_written(self, access: Access, *, by_halves: bool) -> None:
        """Cells are read that nobody wrote; `by_halves`: whole halves of a warp's lanes, as behind products of 64 rows.

        A load of 32 lanes cannot leave the other half out, so that is a lint: its use would show in the results.
        """
        message = f"{access.kind} (line {access.line}) reads {access.where()}, of which nothing has written a part"
        hint = "the first product into an accumulator has enable-input-d false; or store, or copy, before"
        self._add("never-written", "lint" if by_halves else "error", message, access, hint)

    def race(self, access: Access, other: Entry, what: tuple[str, str], *, uncommitted: bool) -> None:
        """An access meets another that is not over, not known, or not fenced."""
        doing, verdict = what
        message = f"{access.kind} (line {access.line}) {doing} {access.where()} "
        if verdict in ("after", "before"):
            fence = f"tcgen05.fence::{verdict}_thread_sync"
            side = f"behind the wait, before line {access.line}" if verdict == "after" else f"behind line {other.line}"
            message += f"behind the {other.kind} of line {other.line} without {fence}"
            hint = f"{fence} {side}: a barrier alone does not order tcgen05 operations"
            self._add("tcgen05-fence", "error", message, access, hint, other.line)
            return
        name = "overwrite-before-release" if doing in ("overwrites", "frees") else "use-before-completion"
        if verdict == "pending":
            message += f"while the {other.kind} of line {other.line} has not been waited for"
            hint = f"{_DONE.get(other.kind, 'a wait')} comes before the barrier that hands the cells on"
        elif uncommitted:
            message += f"while no tcgen05.commit covers the {other.kind} of line {other.line}"
            hint = "the thread that issued it commits it to an mbarrier, and others wait for that"
        else:
            message += f"while the {other.kind} of line {other.line} is not known to be over"
            hint = "wait for the mbarrier of its commit, or for the barrier behind its wait"
        self._add(name, "error", message, access, hint, other.line)

    def open_order(self, access: Access, other: Entry) -> None:
        """Two operations of one thread whose order the ISA does not promise, though devices are known to keep it."""
        message = f"{access.kind} (line {access.line}) writes {access.where()} behind the {other.kind} of line "
        message += f"{other.line}; the PTX ISA orders this pair only by a commit that was waited for"
        hint = "wait for the commit, or copy to other columns"
        self._add("tcgen05-order", "warning", message, access, hint, other.line)

    def early(self, unit: Unit, move: WarpMove, block: RunBlock) -> None:
        """Registers of a load are used before its wait."""
        message = f"registers of the tcgen05.ld of line {move.line} are used from line {block.line} on without "
        message += "tcgen05.wait::ld"
        hint = "tcgen05.wait::ld before the use, with the registers as operands of the asm statement"
        made = Finding("register-before-wait", "warning", message, move.line, warps=_warps(unit), hint=hint)
        self.report.add(made, block.line)

    def _add(self, name: str, severity: Severity, message: str, access: Access, hint: str, other: int = 0) -> None:
        made = Finding(name, severity, message, access.line, warps=_warps(access.unit), hint=hint)
        self.report.add(made, other)


def _warps(unit: Unit) -> tuple[str, ...]:
    return (f"{unit.cta.name()} warps {unit.warp_numbers(None)}",)
