"""What is said of races: both accesses with who and where, the order that is missing, and what would bring it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxbench.emulator.checks.texts import Reporter
from ptxbench.emulator.report import Finding, Place

if TYPE_CHECKING:
    from ptxbench.emulator.checks.race_ground import Ground
    from ptxbench.emulator.checks.races import Race, Side

_SAME = frozenset(("use-before-completion", "overwrite-before-release", "proxy-fence"))
"""Rules of the unit-wise checks; an access that they find wrong is not named twice."""
RULE, UNDECIDED = "race", "race-undecided"


class RaceReporter:
    """Makes findings for a reporter."""

    def __init__(self, report: Reporter, ground: Ground) -> None:
        self.report = report
        self.ground = ground
        self.grain = {"s": ground.grains[0], "g": ground.grains[1]}
        self._known: set[tuple[int, int]] = set()

    def race(self, race: Race) -> None:
        """Two accesses without order."""
        first, second = race.first, race.second
        pair = (second.kind.line, first.kind.line)
        if pair in self._known:
            return
        self._known.add(pair)
        place = race.place * self.grain[race.history.name[0]]
        name, _, owner = race.history.name.partition(" of ")
        where = f"{name}+{place:#x}" + (f" of {owner}" if owner else "")
        message = f"{self._who(second)} {'writes' if second.write else 'reads'} {where}, which {self._who(first)} "
        message += f"{'wrote' if first.write else 'read'}: {_missing(race)}"
        warps = tuple(dict.fromkeys(self.ground.name(each.cluster, each.thread) for each in (second, first)))
        found = Finding(RULE, "error", message, second.kind.line, warps=warps, hint=_hint(race, self.ground.per_cta))
        self.report.add(found, first.kind.line)

    def together(self, line: int, name: str, where: str) -> None:
        """Lanes of one store put different values into one place."""
        message = f"lanes of one {name} (line {line}) write different values to {where}; which one stays is not defined"
        self.report.add(Finding(RULE, "warning", message, line, hint="let one lane store, or give each its own place"))

    def uninitialised(self, where: str, side: Side, line: int, hint: str) -> None:
        """An mbarrier is used by a thread that cannot know of its initialisation."""
        message = f"{self._who(side)} uses {where}, and nothing makes its initialisation at line {line} visible to it"
        found = Finding("uninitialised-barrier", "error", message, side.kind.line, hint=hint)
        self.report.add(found, line)

    def unshown(self, author: Side, reader: Side) -> None:
        """A copy reads global memory that this kernel wrote, and no proxy fence stands between."""
        message = f"{self._who(reader)} reads global memory that {self._who(author)} wrote through the generic proxy "
        message += "without fence.proxy.async by the writer"
        hint = "every writing thread: fence.proxy.async (or .global) after its stores, then release and acquire"
        found = Finding("proxy-fence", "error", message, reader.kind.line, hint=hint)
        self.report.add(found, author.kind.line)

    def unfenced_map(self, author: Side, reader: Side, half: str, *, sure: bool) -> None:
        """A copy uses a tensor map that this kernel edited, and one half of the fences is missing."""
        who = "by its issuer" if half == "acquire" else "by the editor"
        message = f"{self._who(reader)} uses a tensor map that {self._who(author)} wrote, without "
        message += f"fence.proxy.tensormap::generic.{half} {who}"
        hint = (
            "behind the edit fence.proxy.tensormap::generic.release.gpu (or tensormap.cp_fenceproxy), before the use "
        )
        hint += "fence.proxy.tensormap::generic.acquire.gpu [map], 128"
        made = Finding("proxy-fence", "error" if sure else "warning", message, reader.kind.line, hint=hint)
        self.report.add(made, author.kind.line)

    def undecided(self, what: str, line: int) -> None:
        """Something that the check could not decide."""
        message = f"the check for races is incomplete: {what}" + (f" (line {line})" if line else "")
        self.report.add(Finding(UNDECIDED, "warning", message, line, hint="races may be left that were not seen"))

    def finish(self) -> None:
        """Leave out what other checks have said of the same access."""
        found = self.report.findings
        said = {key[1] for key, each in found.items() if key[0] in _SAME and each.severity == "error"}
        self.report.findings = {key: each for key, each in found.items() if key[0] != RULE or key[1] not in said}

    def _who(self, side: Side) -> str:
        location = self.report.locations.get(side.kind.line)
        cuda = f", {Place.of(location)}" if location is not None else ""
        return f"{side.kind.name} (line {side.kind.line}{cuda}) of {self.ground.name(side.cluster, side.thread)}"


def _missing(race: Race) -> str:
    if race.first.pending:
        return "it has not been waited for"
    if race.ordered:
        return "a barrier or flag is between, but nothing releases and acquires the data in a scope that has both"
    return "nothing orders the two"


def _hint(race: Race, per_cta: int) -> str:
    first, second = race.first, race.second
    if first.cluster != second.cluster:
        return (
            "different clusters: release at .gpu scope behind the first access (st.release.gpu, or __threadfence() and "
            "an atomic), acquire before the second one"
        )
    if race.first.kind.engine or race.first.pending:
        return "wait for the copy (its mbarrier's phase, or its group) and pass that on by a barrier"
    if first.thread // per_cta != second.thread // per_cta:
        return "CTAs of a cluster: barrier.cluster.arrive.release and wait.acquire, or an mbarrier in .cluster scope"
    if first.thread // 32 == second.thread // 32:
        return "lanes of one warp: __syncwarp() between the two"
    return "different warps: __syncthreads(), or an mbarrier that the first arrives at and the second waits for"
