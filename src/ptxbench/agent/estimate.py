"""What a run would take in tokens and money, before anything is paid; a forecast, and its assumptions said."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ptxbench.agent.context import estimated_tokens
from ptxbench.agent.session import Session
from ptxbench.schema.problem import Problem
from ptxbench.schema.turn import RunPlan, SampleKey, Usage

KERNEL_TOKENS = 6_000
"""Of an answer's text: a kernel of some 400 lines, and a little around it."""
REASONING_TOKENS = 20_000
"""Of a turn: between the medians published for three large models, 17,000 and 31,000 (PTXBench, arXiv 2608.17379)."""
FEEDBACK_TOKENS = 2_000
"""Of one turn's feedback."""
EVALUATION_SECONDS = 15.0
"""Of one candidate: compiling and judging."""
ANSWER_RATE = 60.0
"""Tokens that a provider makes in a second."""

ASSUMPTIONS = (
    f"Every trajectory takes all its turns; an answer has {KERNEL_TOKENS:,} tokens of text and {REASONING_TOKENS:,} of "
    f"reasoning, feedback has {FEEDBACK_TOKENS:,}; reasoning is not sent again; prompts are counted as three bytes a "
    f"token, on the safe side, and a provider's cache is not counted, which makes long conversations cheaper. Time: "
    f"{ANSWER_RATE:.0f} tokens a second and {EVALUATION_SECONDS:.0f} s an evaluation, one of them at a time."
)


@dataclass(frozen=True)
class Estimate:
    """A forecast.

    Attributes:
        trajectories: How many.
        turns: At most.
        usage: Tokens in all.
        cost: US dollars; None without a price.
        seconds: Wall-clock time.
    """

    trajectories: int
    turns: int
    usage: Usage
    cost: float | None
    seconds: float


def estimate(session: Session, keys: tuple[SampleKey, ...], parallel: int) -> Estimate:
    """The forecast for these trajectories from their beginning, so many at once."""
    plan = session.run.plan
    output = min(KERNEL_TOKENS + REASONING_TOKENS, plan.max_output_tokens or KERNEL_TOKENS + REASONING_TOKENS)
    inputs = sum(_input(estimated_tokens(session.begun(key).prompt), plan) for key in keys)
    turns = len(keys) * plan.turns
    usage = Usage(input_tokens=inputs, output_tokens=turns * output)
    asking = 0.0 if plan.recorded else math.ceil(len(keys) / max(1, parallel)) * plan.turns * output / ANSWER_RATE
    return Estimate(
        trajectories=len(keys),
        turns=turns,
        usage=usage,
        cost=plan.price.of(usage) if plan.price is not None else None,
        seconds=max(asking, turns * EVALUATION_SECONDS),
    )


def packs_by_task(plan: RunPlan, problems: Mapping[str, Problem]) -> dict[str, tuple[str, ...]]:
    """The packs that each problem is tried with, in order."""
    return {name: tuple(dict.fromkeys(key.pack for key in plan.keys if key.problem == name)) for name in problems}


def _input(prompt: int, plan: RunPlan) -> int:
    """Tokens in of one trajectory: before turn t stand the prompt and t earlier turns, or one of them."""
    pair = KERNEL_TOKENS + FEEDBACK_TOKENS
    earlier = (min(turn, 1) if plan.context == "latest_pair" else turn for turn in range(plan.turns))
    return plan.turns * prompt + pair * sum(earlier)
