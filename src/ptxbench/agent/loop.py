"""One trajectory: generate, extract, evaluate, feed back, until a limit; it knows no provider and no evaluator."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ptxbench.agent.ask import Asker, ContextFullError, Generate, Records
from ptxbench.agent.context import estimated_tokens, messages_for, prompt_hash
from ptxbench.agent.extraction import extract
from ptxbench.agent.feedback import Best, TurnContext, render_feedback
from ptxbench.agent.limits import Purse, ended
from ptxbench.errors import ProviderError, PtxbenchError
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.evaluator import Evaluator
from ptxbench.schema.journal import Fault
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.turn import RunPlan, StopReason, Trajectory, Turn
from ptxbench.schema.verdict import Verdict

ATTEMPTS = 3
"""How often an evaluation is tried whose infrastructure fails."""
BACKOFF = 5.0
"""Seconds before the second attempt; doubled before each further one."""


@dataclass(frozen=True)
class Means:
    """What a trajectory is made with.

    Attributes:
        generate: The model.
        evaluator: Judges candidates.
        records: Where turns and paid answers are kept.
        purse: What the whole run has spent.
        feedback: Words for the model about a turn.
        pause: Waits so many seconds.
        watch: Called when a trajectory has another turn, or ends.
    """

    generate: Generate
    evaluator: Evaluator
    records: Records
    purse: Purse = field(default_factory=Purse)
    feedback: Callable[[Verdict | None, TurnContext], str] = render_feedback
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    watch: Callable[[Trajectory], None] = lambda trajectory: None


async def run_trajectory(
    plan: RunPlan, problem: Problem, workload: Workload, begun: Trajectory, means: Means
) -> Trajectory:
    """Carry a trajectory on to its end; everything that was paid or judged is on record when a turn is over.

    What stops it without its end (`UNFINISHED`) is on record too, and the same call carries it on.

    Raises:
        RecordError: The journal does not fit the trajectory, or nothing more can be written.
    """
    run = _Trajectory(plan, problem, workload, means)
    asker = Asker(means.generate, means.records, begun.key, 0 if plan.recorded else plan.continuations)
    trajectory = run.keep(begun.model_copy(update={"stop": None, "stop_note": ""}))
    try:
        while (stop := ended(trajectory, plan, means.purse)) is None:
            trajectory = run.keep(await run.with_next_turn(trajectory, asker))
    except asyncio.CancelledError:
        run.stopped(trajectory, StopReason.INTERRUPTED)
        raise
    except ContextFullError as fault:
        return run.stopped(trajectory, StopReason.CONTEXT_FULL, fault.what)
    except ProviderError as fault:
        run.note(trajectory, fault, 0)
        return run.stopped(trajectory, StopReason.PROVIDER_ERROR, str(fault))
    except EvaluationError as fault:
        return run.stopped(trajectory, StopReason.HARNESS_ERROR, str(fault))
    return run.stopped(trajectory, stop)


class EvaluationError(PtxbenchError):
    """The infrastructure of an evaluation failed too often."""


@dataclass(frozen=True)
class _Trajectory:
    plan: RunPlan
    problem: Problem
    workload: Workload
    means: Means

    async def with_next_turn(self, trajectory: Trajectory, asker: Asker) -> Trajectory:
        index = len(trajectory.turns)
        messages = messages_for(trajectory, self.plan.context)
        limit = self.plan.context_limit
        if limit is not None and estimated_tokens(messages) > limit:
            raise ContextFullError(f"The prompt of turn {index} has more than {limit:,} tokens.")
        answer = await asker.ask(index, messages)
        self.means.purse.pay(answer.usage, self.plan)
        answered, started = time.time(), time.monotonic()
        found = extract(answer, name=f"{trajectory.key.name} turn {index}")
        verdict = await self.judged(found.candidate, trajectory) if found.candidate is not None else None
        turn = Turn(
            index=index,
            prompt_hash=prompt_hash(messages),
            answer=answer,
            extracted=found.found,
            extraction_note=found.note,
            candidate=found.candidate,
            verdict=verdict,
            evaluation_seconds=time.monotonic() - started,
            created=answered,
        )
        longer = trajectory.model_copy(update={"turns": (*trajectory.turns, turn)})
        if ended(longer, self.plan, self.means.purse) is not None:
            return longer
        told = turn.model_copy(
            update={"feedback": self.means.feedback(verdict, turn_context(self.plan, trajectory, turn))}
        )
        return trajectory.model_copy(update={"turns": (*trajectory.turns, told)})

    async def judged(self, candidate: Candidate, trajectory: Trajectory) -> Verdict:
        """The verdict; faults of the infrastructure are tried again, and the model never hears of them."""
        for attempt in range(ATTEMPTS):
            try:
                return await self.means.evaluator.evaluate(self.problem, self.workload, candidate)
            except PtxbenchError as fault:
                self.note(trajectory, fault, attempt)
                last = fault
            if attempt + 1 < ATTEMPTS:
                await self.means.pause(BACKOFF * 2**attempt)
        raise EvaluationError(last.what, last.remedy)

    def note(self, trajectory: Trajectory, fault: PtxbenchError, attempt: int) -> None:
        self.means.records.record_fault(
            Fault(
                sample=trajectory.key.name,
                turn=len(trajectory.turns),
                boundary="provider" if isinstance(fault, ProviderError) else "evaluator",
                error=type(fault).__name__,
                message=fault.what,
                remedy=fault.remedy,
                attempt=attempt,
                created=time.time(),
            )
        )

    def keep(self, trajectory: Trajectory) -> Trajectory:
        self.means.records.save(trajectory)
        self.means.watch(trajectory)
        return trajectory

    def stopped(self, trajectory: Trajectory, stop: StopReason, note: str = "") -> Trajectory:
        return self.keep(trajectory.model_copy(update={"stop": stop, "stop_note": note}))


def turn_context(plan: RunPlan, before: Trajectory, turn: Turn) -> TurnContext:
    """What the feedback about a turn may know besides its verdict.

    Args:
        plan: The run's plan.
        before: The trajectory up to the turn, without it.
        turn: The turn.
    """
    verdicts = [each.verdict for each in before.turns if each.verdict is not None]
    return TurnContext(
        candidate=turn.candidate,
        extraction_note=turn.extraction_note,
        index=turn.index,
        turns=plan.turns,
        target_speedup=plan.target_speedup,
        best=_best(before),
        previous=verdicts[-1] if verdicts else None,
    )


def _best(trajectory: Trajectory) -> Best | None:
    """The fastest correct turn; the first correct one where no time was measured."""
    correct = [turn for turn in trajectory.turns if turn.correct]
    if not correct:
        return None
    best = max(correct, key=lambda turn: turn.speedup or 0.0)
    return Best(best.index, best.speedup)
