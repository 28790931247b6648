"""Why a kernel was refused, does not compile, does not run or is wrong: sections from the verdict's records.

Only what belongs to the workload that the model was told about is read: draws of other workloads are hidden ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxbench.agent.feedback.advice import ADVICE, RULES
from ptxbench.agent.feedback.listing import Listings
from ptxbench.agent.feedback.quoting import plain, quoted
from ptxbench.agent.feedback.section import Section
from ptxbench.schema.stages import Diagnostic, DrawCheck, OutputCheck, Reason
from ptxbench.schema.verdict import StageName, Verdict

STOPPED = frozenset({"hang", "cuda_error"})
"""Codes that a finding explains better than their message does."""
COMPARED = frozenset({"wrong_numbers", "imprecise", "nan_output"})
"""Codes whose message says what the outputs' own records say."""
OWN_WORDS = COMPARED | {"missing_output", "changed_input", "out_of_bounds_write"}
"""Codes whose message is the comparison's, of names and numbers of the problem alone."""

RULES_NAMED = 8
ERRORS = 12
"""Compiler errors with their lines; of more, the last ones are shown too."""
LAST = 3
PLACES = 6
"""Lines of one compiler error that occurs on several."""


def refused(verdict: Verdict, listings: Listings) -> Section:
    """Rules that the kernel breaks, each with its evidence."""
    lines: list[str] = []
    for each in verdict.stages.policy.findings[:RULES_NAMED]:
        what = f": {RULES[each.rule]}" if each.rule in RULES else ""
        lines.append(f"- {plain(each.rule, 40)}{what}; found in the {each.place}: {quoted(each.evidence)}")
        if each.line is not None and each.place == "source":
            lines += listings.of(((_file(each.evidence), each.line),), around=1)
    more = len(verdict.stages.policy.findings) - RULES_NAMED
    return Section("Rules that the kernel breaks", (*lines, *([f"- and {more} more"] if more > 0 else [])))


def compiler_errors(verdict: Verdict, listings: Listings) -> Section:
    """Each error once with the lines on which it occurs; of many, the first and the last ones."""
    places: dict[str, list[Diagnostic]] = {}
    for each in verdict.stages.build.diagnostics:
        if each.severity == "error":
            places.setdefault(plain(each.message), []).append(each)
    blocks = [_error(found, listings) for found in places.values()]
    shown = blocks if len(blocks) <= ERRORS + LAST else [*blocks[:ERRORS], *blocks[-LAST:]]
    left = len(blocks) - len(shown)
    if left:
        shown.insert(ERRORS, (f"[{left} more errors left out]",))
    tail = sum(len(block) for block in shown[-LAST:]) if left else 0
    title = "Compiler errors" if len(blocks) < 2 else f"Compiler errors ({len(blocks)} different ones)"
    return Section(title, tuple(line for block in shown for line in block), tail)


def reason(verdict: Verdict) -> Section:
    """The status's reason in words, where no other section has it, and what to do about it."""
    found = verdict.status.reason
    if found is None:
        return Section("Reason", ())
    lines = [] if _said_elsewhere(verdict, found) else [f"- {_message(found)}"]
    if found.code in ADVICE and not (found.code in STOPPED and _errors(verdict)):
        lines.append(f"- To do: {ADVICE[found.code]}")
    return Section("Reason", tuple(lines))


def numbers(verdict: Verdict) -> Section:
    """Each output that is wrong, on the first inputs where it is: how many elements, which one most, where."""
    wrong: dict[str, tuple[OutputCheck, DrawCheck]] = {}
    for draw in own_draws(verdict):
        for output in draw.outputs:
            if output.contract is False or not (output.published or output.contract):
                wrong.setdefault(output.name, (output, draw))
    return Section("Results", tuple(line for output, draw in wrong.values() for line in _output(output, draw)))


def own_draws(verdict: Verdict) -> tuple[DrawCheck, ...]:
    """Draws of the workload that the model knows."""
    return tuple(draw for draw in verdict.stages.check.draws if draw.workload == verdict.workload)


def _said_elsewhere(verdict: Verdict, found: Reason) -> bool:
    """Whether another section holds what the message says: rules, errors, findings, numbers."""
    held = {
        StageName.POLICY: bool(verdict.stages.policy.findings),
        StageName.BUILD: any(each.severity == "error" for each in verdict.stages.build.diagnostics),
        StageName.CHECK: (found.code in STOPPED and _errors(verdict))
        or (found.code in COMPARED and bool(numbers(verdict).lines)),
        StageName.SANITIZE: _errors(verdict),
    }
    stage = verdict.status.stage
    return stage is not None and held.get(stage, False)


def _errors(verdict: Verdict) -> bool:
    return any(each.severity == "error" for run in verdict.stages.sanitize.runs for each in run.findings)


def _message(found: Reason) -> str:
    return plain(found.message) if found.code in OWN_WORDS else quoted(found.message)


def _error(found: list[Diagnostic], listings: Listings) -> tuple[str, ...]:
    lines = list(dict.fromkeys(each.line for each in found if each.line is not None))
    file = found[0].file.rpartition("/")[2]
    at = f"{quoted(f'{file}:{lines[0]}')}: " if lines else ""
    word = "line" if len(lines) == 2 else "lines"
    others = f" (also on {word} {', '.join(map(str, lines[1:PLACES]))})" if len(lines) > 1 else ""
    message = f"- {at}{quoted(found[0].message)}{others}"
    return (message, *listings.of(((file, line) for line in lines[:1]), around=1))


def _output(output: OutputCheck, draw: DrawCheck) -> Iterator[str]:
    name = plain(output.name, 40)
    kind = "ordinary inputs" if draw.recipe == "normal" else "inputs with a few large values"
    where = f"; where: {plain(output.pattern)}" if output.pattern else ""
    if output.failing:
        share = f" ({100 * output.failing / output.total:.3g} %)" if output.total else ""
        yield f"- {name}: {output.failing:,} of {output.total:,} elements{share} are wrong on {kind}{where}"
    else:
        yield f"- {name}: every element is within the tolerance on {kind}, but together they are too imprecise{where}"
    if output.worst is not None:
        index, worst = ", ".join(map(str, output.worst.index)), output.worst
        yield f"  - worst element: {name}[{index}] is {worst.got:.6g}, expected {worst.expected:.6g}"
    if output.block is not None and output.contract is False:
        error, bound = output.block.rms_relative_error, output.block.bound
        yield f"  - worst block of rows: RMS-relative error {error:.3g}, allowed are {bound:.3g}"


def _file(evidence: str) -> str:
    """The source's name, with which the evidence of a forbidden include begins."""
    return evidence.partition(":")[0]
