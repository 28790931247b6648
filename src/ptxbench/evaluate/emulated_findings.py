"""The sanitize stage on the emulator: its findings of all calls as one run of the tool `emulator`; runs nothing.

An error makes results undefined and fails; a warning may, and a lint is against the rules without effect: both are
listed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ptxbench.emulator.device import Ran
from ptxbench.emulator.report import Finding
from ptxbench.evaluate.emulated_run import UNDECIDED, sentence
from ptxbench.schema.stages import (
    Outcome,
    Reason,
    SanitizerFinding,
    SanitizerRun,
    SanitizeStage,
    ScheduleCoverage,
    SourceLine,
)

MOST = 40
"""Findings that a run records; the first few say it all."""

_ORDER = ("error", "warning", "lint")
_OWN_LIMITS = frozenset({"too-long"})
"""Findings that say more about the emulator's patience than about the kernel."""


def findings_stage(ran: Sequence[Ran], fault: Reason | None) -> SanitizeStage:
    """What the launches of all calls were found to do.

    Args:
        ran: Every launch of every call.
        fault: Why a call did not come to its end.
    """
    found = _distinct(ran)
    errors = [each for each in found if each.severity == "error"]
    undecided = fault is not None and fault.code in UNDECIDED
    if errors:
        outcome = Outcome.FAILED
    elif not ran or undecided:
        outcome = Outcome.UNAVAILABLE
    else:
        outcome = Outcome.PASSED
    run = SanitizerRun(
        tool="emulator",
        outcome=outcome,
        errors=len(errors),
        findings=tuple(found[:MOST]),
        schedules=tuple(_coverage(ran)),
    )
    return SanitizeStage(outcome=outcome, reason=_reason(run, fault), runs=(run,))


def _reason(run: SanitizerRun, fault: Reason | None) -> Reason | None:
    if run.outcome is Outcome.PASSED:
        return None
    if run.outcome is Outcome.UNAVAILABLE:
        message = fault.message if fault else "No kernel was launched."
        return Reason(code="sanitizer_unavailable", message=message, hint=fault.hint if fault else "")
    first = run.findings[0]
    place = f", {first.place}" if first.place else ""
    kind = "" if first.message.startswith(first.kind) else f"{first.kind}: "
    message = f"{kind}{first.message}{place}."
    return Reason(code="emulator_error", message=message, hint=sentence(first.hint))


def _distinct(ran: Iterable[Ran]) -> list[SanitizerFinding]:
    """Each finding once per kernel, rule and line, errors first; the order of the runs otherwise."""
    seen: dict[tuple[str, str, int], SanitizerFinding] = {}
    for each in ran:
        for finding in each.result.findings:
            if finding.rule not in _OWN_LIMITS:
                seen.setdefault((each.kernel, finding.rule, finding.line), _value(each.kernel, finding))
    return sorted(seen.values(), key=lambda finding: _ORDER.index(finding.severity))


def _value(kernel: str, finding: Finding) -> SanitizerFinding:
    place = finding.place
    return SanitizerFinding(
        kind=finding.rule,
        message=finding.message,
        kernel=kernel,
        file=place.file if place else "",
        line=place.line if place else None,
        inlined=place.inlined if place else (),
        severity=finding.severity,
        ptx_line=finding.line or None,
        named=tuple(
            SourceLine(ptx_line=each.line, file=each.place.file, line=each.place.line, inlined=each.place.inlined)
            for each in finding.named
        ),
        warps=finding.warps,
        state=finding.state,
        hint=finding.hint,
    )


def _coverage(ran: Iterable[Ran]) -> Iterable[ScheduleCoverage]:
    """The most that one launch of each kernel ran in each schedule."""
    most: dict[tuple[str, str], ScheduleCoverage] = {}
    for each in ran:
        for covered in each.result.coverage:
            key = (each.kernel, covered.schedule)
            if key not in most or most[key].clusters < covered.clusters:
                most[key] = ScheduleCoverage(
                    kernel=each.kernel, schedule=covered.schedule, clusters=covered.clusters, of=covered.of
                )
    return most.values()
