"""A verdict as the text that a model reads: the status first, then what to mend or to improve; it judges nothing.

Pure: equal verdicts and contexts give equal texts.
"""

from __future__ import annotations

from collections.abc import Iterator

from ptxbench.agent.feedback.advice import family
from ptxbench.agent.feedback.context import TurnContext
from ptxbench.agent.feedback.failures import compiler_errors, numbers, reason, refused
from ptxbench.agent.feedback.findings import found, milder
from ptxbench.agent.feedback.listing import Listings
from ptxbench.agent.feedback.passed import precision, resources, speed, target
from ptxbench.agent.feedback.progress import outcome, progress
from ptxbench.agent.feedback.section import Section, fit
from ptxbench.schema.verdict import StageName, State, Verdict


def render_feedback(verdict: Verdict | None, context: TurnContext) -> str:
    """What a model is told about one turn.

    Status and turns left always stand; between them as many sections as the budget allows, the most useful first.
    Nothing of hidden workloads is in it, and what the candidate itself may have chosen (names, messages, source) stays
    within backticks or behind the gutter of a listing.

    Args:
        verdict: The turn's verdict; None when no kernel was extracted.
        context: The turn.
    """
    head = f"Turn {context.index + 1} of {context.turns}: {_status(verdict, context)}."
    return fit(head, _sections(verdict, context), _foot(context), context.budget)


def _status(verdict: Verdict | None, context: TurnContext) -> str:
    if verdict is None:
        note = " ".join(context.extraction_note.split()).rstrip(".")
        return f"no kernel was found in the answer{f': {note}' if note else ''}"
    status = verdict.status
    where = "on the emulator" if verdict.environment.device == "emulator" else "on the GPU"
    if status.state is State.INCONCLUSIVE and status.stage is StageName.TIME:
        return f"the kernel is correct {where}, but its time does not count ({outcome(verdict)})"
    if status.state is State.PASSED:
        return f"the kernel is {outcome(verdict)} {where}{_but(verdict)}"
    return f"the kernel {_not(verdict)}"


def _but(verdict: Verdict) -> str:
    """What a right kernel lacks of its target."""
    if verdict.layers.target.executed.state == "no":
        return ", but executes none of its target's instructions"
    shown = [family(each.family) for each in verdict.stages.profile.needs if each.necessity.state == "no"]
    return f", but nothing needs its {' and '.join(shown)}" if shown else ""


def _not(verdict: Verdict) -> str:
    """`failed at check (hang)`, `was refused at policy (foreign_cubin)`, `could not be judged ...`."""
    text = outcome(verdict)
    if verdict.status.state is State.INCONCLUSIVE:
        return text.replace("not decided", "could not be judged", 1)
    return text if verdict.status.state is State.FAILED else f"was {text}"


def _sections(verdict: Verdict | None, context: TurnContext) -> Iterator[Section]:
    if verdict is None:
        yield progress(None, context)
        return
    listings = Listings(context.candidate)
    if verdict.status.state is not State.PASSED:
        yield refused(verdict, listings)
        yield compiler_errors(verdict, listings)
        yield found(verdict, listings)
        if verdict.status.stage is not StageName.TIME:
            yield numbers(verdict)
        yield reason(verdict)
        yield progress(verdict, context)
        yield milder(verdict, listings)
        yield resources(verdict)
        return
    yield speed(verdict, context.target_speedup)
    yield target(verdict)
    yield progress(verdict, context)
    yield milder(verdict, listings)
    yield resources(verdict)
    yield precision(verdict)


def _foot(context: TurnContext) -> str:
    if not context.left:
        return "This was the last turn."
    turns = "1 turn is" if context.left == 1 else f"{context.left} turns are"
    return f"{turns} left. Answer with the complete kernel, in one code block."
