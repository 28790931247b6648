"""The sanitize stage (E8): compute-sanitizer's command line and what its XML report says; it starts no candidate.

Clean means: the tool ended with status 0, left a whole report without an error, and the candidate's call returned.
Everything else that is not a finding is `unavailable`, never clean.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from ptxbench.evaluate.child.protocol import WrappedRun
from ptxbench.schema.stages import Outcome, Reason, SanitizerFinding, SanitizerRun, SanitizeStage
from ptxbench.schema.values import Unavailable

Tool = Literal["memcheck", "racecheck", "synccheck", "initcheck"]
TOOLS: tuple[Tool, ...] = get_args(Tool)

ERROR_EXIT = 97
"""What the tool ends with when it found errors; no candidate process of ours ends so by itself."""

FINDINGS = 20
"""How many errors a run records; the first few of a kind say it all."""

_ROOT = "ComputeSanitizerOutput"

_NO_ERRORS = frozenset({"Api", "SyncLog"})
"""Kinds of records that are no memory or synchronisation error: a call of the CUDA API that was answered with an error
(the driver probes for entry points that it does not have, and the candidate's own calls are its own business), and the
log of synchronisations."""

_REMEDY = "Run `ptxbench doctor`: it shows compute-sanitizer's version and whether it works on this machine."


def sanitizer_command(tool: Path, check: Tool, report: Path, log: Path) -> tuple[str, ...]:
    """The words to put before the candidate process's command line.

    The candidate's own exit code counts for nothing here (it is known from its messages), so that a status other than
    0 is the tool's. All processes are followed, for the candidate's lies behind its sandbox.
    """
    return (
        str(tool),
        *("--tool", check),
        *("--xml", "--save", str(report)),
        *("--log-file", str(log)),
        *("--error-exitcode", str(ERROR_EXIT)),
        *("--check-exit-code", "no"),
        *("--report-api-errors", "no"),
        *("--leak-check", "no"),
        *("--print-limit", str(FINDINGS)),
        *("--show-backtrace", "no"),
        *("--demangle", "simple"),
        *("--target-processes", "all"),
        *("--launch-timeout", "60"),
    )


def sanitizer_run(check: Tool, run: WrappedRun, report: Path) -> SanitizerRun:
    """What one run under the tool found.

    Args:
        check: The tool that ran.
        run: What its process left.
        report: The XML file of `sanitizer_command`.
    """
    findings, whole = _findings(report)
    if findings:
        outcome = Outcome.FAILED
    elif whole and run.returncode == 0 and run.called and run.outputs_right is not False:
        outcome = Outcome.PASSED
    else:
        outcome = Outcome.UNAVAILABLE
        findings = (SanitizerFinding(kind="no_result", message=_why_no_result(run, whole)),)
    return SanitizerRun(
        tool=check,
        outcome=outcome,
        errors=len(findings) if outcome is Outcome.FAILED else 0,
        findings=findings,
        seconds=run.seconds,
    )


def sanitizer_missing(check: Tool, tool: Unavailable) -> SanitizerRun:
    """The run that could not be made because the tool is not there."""
    finding = SanitizerFinding(kind="no_result", message=f"{tool.reason} {tool.remedy}".strip())
    return SanitizerRun(tool=check, outcome=Outcome.UNAVAILABLE, findings=(finding,))


def sanitize_stage(runs: Iterable[SanitizerRun]) -> SanitizeStage:
    """The stage that all runs make up: an error anywhere fails; otherwise a run without a result leaves it open."""
    runs = tuple(runs)
    failed = next((run for run in runs if run.outcome is Outcome.FAILED), None)
    if failed is not None:
        first = failed.findings[0]
        place = f" in {first.kernel}" if first.kernel else ""
        line = f" ({first.file}:{first.line})" if first.file and first.line else ""
        reason = Reason(
            code=f"{failed.tool}_error",
            message=f"{failed.tool}: {first.message}{place}{line}.",
            hint="The candidate reads or writes where it must not; the finding names the kernel.",
        )
        return SanitizeStage(outcome=Outcome.FAILED, reason=reason, runs=runs)
    open_run = next((run for run in runs if run.outcome is not Outcome.PASSED), None)
    if open_run is not None or not runs:
        message = open_run.findings[0].message if open_run and open_run.findings else "No sanitizer was asked for."
        reason = Reason(code="sanitizer_unavailable", message=message, hint=_REMEDY)
        return SanitizeStage(outcome=Outcome.UNAVAILABLE, reason=reason, runs=runs)
    return SanitizeStage(outcome=Outcome.PASSED, runs=runs)


def _findings(report: Path) -> tuple[tuple[SanitizerFinding, ...], bool]:
    """(errors, whether the report is whole). A report cut off in the middle still shows the errors before the cut."""
    records: list[ET.Element] = []
    root_seen = False
    try:
        for event, element in ET.iterparse(report, events=("start", "end")):  # noqa: S314  (the tool wrote it)
            if event == "start" and not root_seen:
                root_seen = True
                if element.tag != _ROOT:
                    return (), False
            elif event == "end" and element.tag == "record":
                records.append(element)
        whole = root_seen
    except (ET.ParseError, OSError):
        whole = False
    errors = [record for record in records if (record.findtext("kind") or "") not in _NO_ERRORS]
    return tuple(_finding(record) for record in errors), whole


def _finding(record: ET.Element) -> SanitizerFinding:
    kind = record.findtext("what/error") or record.findtext("kind") or "unknown"
    path, line = record.findtext("where/path") or "", record.findtext("where/line") or ""
    return SanitizerFinding(
        kind=kind.strip().lower().replace(" ", "_"),
        message=" ".join((record.findtext("what/text") or kind).split()),
        kernel=(record.findtext("where/func") or "").strip(),
        file=PurePosixPath(path.strip()).name,
        line=int(line) if line.strip().isdigit() else None,
    )


def _why_no_result(run: WrappedRun, whole: bool) -> str:
    """One sentence that says what is missing for a clean bill."""
    if run.returncode is None:
        return "The run under compute-sanitizer was killed at its deadline."
    if not run.called:
        return "The candidate's call did not come to its end under compute-sanitizer."
    if run.returncode == ERROR_EXIT:
        return "compute-sanitizer ended as if it had found errors, but recorded none."
    if run.returncode != 0:
        return f"compute-sanitizer ended with status {run.returncode}."
    if not whole:
        return "compute-sanitizer left no whole report."
    return "The call under compute-sanitizer wrote other results than the call that was checked."
