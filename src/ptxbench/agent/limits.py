"""When a trajectory ends: turns, target, tokens, money, time; what is asked and judged is not decided here."""

from __future__ import annotations

from dataclasses import dataclass

from ptxbench.schema.turn import RunPlan, StopReason, Trajectory, Turn, Usage
from ptxbench.schema.verdict import Verdict

WORK_SHARE = 0.5
"""Share of the required operations that the target's instructions must do, where no time decides."""


@dataclass
class Purse:
    """What a whole run has spent, in US dollars; the one thing that its trajectories share."""

    spent: float = 0.0

    def pay(self, usage: Usage, plan: RunPlan) -> None:
        """Count an answer."""
        self.spent += cost_of(usage, plan) or 0.0


def cost_of(usage: Usage, plan: RunPlan) -> float | None:
    """US dollars of an answer: as its provider says, else by the plan's price; None where neither says."""
    if usage.cost is not None:
        return usage.cost
    return plan.price.of(usage) if plan.price is not None else None


def ended(trajectory: Trajectory, plan: RunPlan, purse: Purse) -> StopReason | None:
    """Why no further turn is asked for; None while one is."""
    turns = trajectory.turns
    if turns and reached(turns[-1], plan.target_speedup):
        return StopReason.TARGET_REACHED
    if len(turns) >= plan.turns:
        return StopReason.TURN_LIMIT
    if plan.token_limit is not None and sum(turn.answer.usage.tokens for turn in turns) >= plan.token_limit:
        return StopReason.TOKEN_LIMIT
    if plan.cost_limit is not None and purse.spent >= plan.cost_limit:
        return StopReason.COST_LIMIT
    seconds = sum(turn.answer.seconds + turn.evaluation_seconds for turn in turns)
    if plan.time_limit is not None and seconds >= plan.time_limit:
        return StopReason.TIME_LIMIT
    return None


def reached(turn: Turn, target_speedup: float) -> bool:
    """Whether a turn does what is wanted: correct and fast enough; on the emulator correct by the target's own work."""
    if target_speedup == 0 or not turn.correct or turn.verdict is None:
        return False
    if turn.verdict.environment.device == "emulator":
        return _by_own_work(turn.verdict)
    return turn.speedup is not None and turn.speedup >= target_speedup


def _by_own_work(verdict: Verdict) -> bool:
    target = verdict.layers.target
    return target.executed.state == "yes" and (target.work_share.value or 0.0) >= WORK_SHARE
