"""What the emulator, or a sanitizer, found: who waits for what, which lines race, each with its source; finds nothing.

The tools speak of lines of PTX, which a model does not see: they are given as the lines of its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ptxbench.agent.feedback.listing import Listings, Place
from ptxbench.agent.feedback.quoting import kernel_name, plain, quoted
from ptxbench.agent.feedback.section import Section
from ptxbench.schema.stages import SanitizerFinding, SourceLine
from ptxbench.schema.verdict import Verdict

IN_FULL = 3
"""Findings with their source; the others get a line each."""
BRIEF = 6
WAITS = 4
"""Groups of warps of one deadlock."""

_LINE = re.compile(r"(?:PTX )?\bline (\d+)")
_WHERE = re.compile(r"CTA [\d,]+|warps \[[\d, ]+\]")
_MISSING = re.compile(r"(\d+) of (\d+) arrivals still missing, (-?\d+) tx-bytes outstanding")
_INSIDE = re.compile(r" at (.+):(\d+)$")


def findings(verdict: Verdict, *severities: str) -> tuple[SanitizerFinding, ...]:
    """All findings of these severities, the first of each kind at each line."""
    seen: dict[tuple[str, str, int | None], SanitizerFinding] = {}
    for run in verdict.stages.sanitize.runs:
        for each in run.findings:
            if each.severity in severities and each.kind != "no_result":
                seen.setdefault((each.kind, each.file, each.line), each)
    return tuple(seen.values())


def found(verdict: Verdict, listings: Listings) -> Section:
    """The errors, the first ones of each kind in full."""
    errors = findings(verdict, "error")
    full = _first_of_each_kind(errors)[:IN_FULL]
    lines = [line for each in full for line in _in_full(each, listings)]
    if len(full) > 1:
        lines.append("- these are in the order in which they showed; later ones often follow from the first")
    rest = [each for each in errors if each not in full]
    lines += [f"- also {_brief(each)}" for each in rest[:BRIEF]]
    lines += [f"- and {len(rest) - BRIEF} more"] if len(rest) > BRIEF else []
    return Section("What the kernel does wrong", tuple(lines))


def milder(verdict: Verdict, listings: Listings) -> Section:
    """Warnings and what is against the rules without effect, each kind once."""
    lines: list[str] = []
    for each in _first_of_each_kind(findings(verdict, "warning", "lint"))[:BRIEF]:
        lines.append(f"- {each.severity}: {_brief(each)}. To do: {plain(each.hint)}.")
        lines += listings.of(_own(each), around=0)
    return Section("Not errors, but worth mending", tuple(lines))


def _first_of_each_kind(found: Iterable[SanitizerFinding]) -> list[SanitizerFinding]:
    kinds: dict[str, SanitizerFinding] = {}
    for each in found:
        kinds.setdefault(each.kind, each)
    return list(kinds.values())


def _in_full(finding: SanitizerFinding, listings: Listings) -> Iterator[str]:
    yield f"- {_brief(finding)}"
    waits = list(_waits(finding))
    yield from (f"  - {line}" for line in waits[:WAITS])
    if len(waits) > WAITS:
        yield f"  - and {len(waits) - WAITS} more waits"
    if meaning := _meaning(finding):
        yield f"  This means: {meaning}"
    if finding.hint:
        yield f"  To do: {plain(finding.hint)}."
    named = [(each.file, each.line) for each in finding.named]
    yield from listings.of((*_own(finding), *named), helpers=_helpers(finding))


def _brief(finding: SanitizerFinding) -> str:
    """Kind, kernel, place and message on one line."""
    inside = f" in {kernel_name(finding.kernel)}" if finding.kernel else ""
    at = f" at {_place(finding)}" if finding.line is not None else ""
    return f"{plain(finding.kind, 40)}{inside}{at}: {_sourced(finding.message, finding.named)}"


def _place(at: SanitizerFinding | SourceLine) -> str:
    inside = f" (inlined: {', '.join(plain(each) for each in at.inlined)})" if at.inlined else ""
    return quoted(f"{_base(at.file)}:{at.line}{inside}")


def _sourced(text: str, named: Iterable[SourceLine]) -> str:
    """A tool's sentence, with the lines of PTX that it names replaced by those of the source."""
    places = {each.ptx_line: f"{_base(each.file)}:{each.line}" for each in named}
    return quoted(_LINE.sub(lambda found: places.get(int(found[1]), f"PTX {found[0].removeprefix('PTX ')}"), text))


def _waits(finding: SanitizerFinding) -> Iterator[str]:
    """Each state once; groups of warps that wait alike are counted."""
    alike: dict[str, list[str]] = {}
    for text in (_sourced(each, finding.named) for each in finding.state):
        alike.setdefault(_WHERE.sub("", text), []).append(text)
    for texts in alike.values():
        others = len(texts) - 1
        more = f" (and {others} more {'group' if others == 1 else 'groups'} of warps alike)" if others else ""
        yield texts[0] + more


def _meaning(finding: SanitizerFinding) -> str:
    """What the barriers of a deadlock say together: bytes that never come, or arrivals."""
    if finding.kind != "deadlock":
        return ""
    barriers = [tuple(map(int, match.groups())) for text in finding.state if (match := _MISSING.search(text))]
    bytes_due = [due for missing, _, due in barriers if not missing and due > 0]
    if bytes_due:
        return (
            f"every arrival came, but {bytes_due[0]} of the bytes that expect_tx announced never do: more bytes are "
            "announced than the copies bring, or a copy signals another barrier. The other waits follow from this one."
        )
    if barriers and all(missing for missing, _, _ in barriers):
        return (
            "each barrier waits for arrivals, none for bytes alone: these warps wait for each other. Whoever should "
            "arrive first waits for the wrong parity, or for an arrival that nobody makes. A producer's first wait for "
            "an empty stage must pass at once: parity 1 of a fresh mbarrier counts as complete, parity 0 does not."
        )
    return ""


def _own(finding: SanitizerFinding) -> tuple[Place, ...]:
    return ((finding.file, finding.line),) if finding.line is not None else ()


def _helpers(finding: SanitizerFinding) -> tuple[Place, ...]:
    """The innermost lines that are inlined at the finding's line and at those that its words name."""
    inlined = [each[-1] for each in (finding.inlined, *(other.inlined for other in finding.named)) if each]
    inside = [_INSIDE.search(helper) for helper in inlined]
    return tuple((match[1], int(match[2])) for match in inside if match)


def _base(file: str) -> str:
    return file.rpartition("/")[2]
