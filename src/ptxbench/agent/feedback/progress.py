"""Where a trajectory stands: the best turn so far, what changed since the last one, turns left; judges nothing."""

from __future__ import annotations

from collections.abc import Iterator

from ptxbench.agent.feedback.context import TurnContext
from ptxbench.agent.feedback.quoting import plain
from ptxbench.agent.feedback.section import Section
from ptxbench.schema.stages import Reason
from ptxbench.schema.verdict import State, Verdict

WORDS = {
    State.PASSED: "correct",
    State.FAILED: "failed",
    State.CHEATED: "refused",
    State.INCONCLUSIVE: "not decided",
}


def progress(verdict: Verdict | None, context: TurnContext) -> Section:
    """Best so far, and this turn against the one before."""
    lines = (*_best(verdict, context), *_since(verdict, context))
    return Section("Progress", tuple(f"- {line}" for line in lines))


def outcome(verdict: Verdict) -> str:
    """`failed at check (hang)`, `correct, 0.83x`."""
    status = verdict.status
    speed = verdict.layers.speed.value
    where = f" at {status.stage.value}" if status.stage else ""
    why = f" ({_why(verdict, status.reason)})" if status.reason else ""
    fast = f", {speed:.3f}x" if speed is not None and status.state is State.PASSED else ""
    return f"{WORDS[status.state]}{where}{why}{fast}"


def _why(verdict: Verdict, reason: Reason) -> str:
    """The reason's code, with the kind of the first error that was found: `hang, deadlock`."""
    kinds = (each.kind for run in verdict.stages.sanitize.runs for each in run.findings if each.severity == "error")
    first = next(kinds, "")
    return plain(f"{reason.code}, {first}" if first and first not in reason.code else reason.code, 80)


def _best(verdict: Verdict | None, context: TurnContext) -> Iterator[str]:
    best = context.best
    speed = verdict.layers.speed.value if verdict and verdict.status.state is State.PASSED else None
    if best is None:
        return
    before = f" ({best.speedup:.3f}x)" if best.speedup is not None else ""
    if speed is not None and best.speedup is not None:
        if speed > best.speedup:
            yield f"this is the best so far; before it was turn {best.index + 1}{before}"
        else:
            yield f"slower than the best so far, turn {best.index + 1}{before}"
        return
    yield f"the best so far is turn {best.index + 1}{before}"


def _since(verdict: Verdict | None, context: TurnContext) -> Iterator[str]:
    before = context.previous
    if verdict is None or before is None:
        return
    if verdict.candidate == before.candidate:
        yield "this is the same kernel as in the turn before, to the byte"
        return
    yield f"the turn before: {outcome(before)}"
    both = (before, verdict)
    if all(each.status.state is State.PASSED for each in both):
        registers, spills = ([_most(each, what) for each in both] for what in ("registers", "spills"))
        if registers[0] != registers[1]:
            yield f"registers a thread: {registers[0]} before, {registers[1]} now"
        if spills[0] != spills[1]:
            yield f"bytes of spills: {spills[0]} before, {spills[1]} now"
        shares = [each.layers.target.work_share.value for each in both]
        if shares[0] is not None and shares[1] is not None and abs(shares[0] - shares[1]) >= 0.01:
            yield f"work of the target's tensor cores: {shares[0]:.0%} before, {shares[1]:.0%} now"


def _most(verdict: Verdict, what: str) -> int:
    """The most registers, or bytes of spills, of one kernel."""
    kernels = verdict.stages.build.kernels
    if what == "registers":
        return max((kernel.registers for kernel in kernels), default=0)
    return max((kernel.spill_store_bytes + kernel.spill_load_bytes for kernel in kernels), default=0)
