"""Runs for the tests of reports: real folders, made by the loop with a scripted model and a scripted evaluator."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.agent.scripted import ScriptedModel, WordEvaluator, open_session, plan_of, said

from ptxbench.agent.loop import Means
from ptxbench.schema.turn import Answer


async def _no_pause(seconds: float) -> None:
    """Waits for nobody."""


def make_run(folder: Path, *answers: str | Answer, trajectories: int = 2, device: str = "cuda:0") -> Path:
    """A run of which every trajectory has these answers, told by the words that the scripted evaluator knows."""
    plan = plan_of(trajectories, turns=len(answers), device=device, target_speedup=0.0)
    model = ScriptedModel(*(said(each) if isinstance(each, str) else each for each in answers))
    session = open_session(plan, folder)
    try:
        means = Means(model, WordEvaluator(device=device), session.records, session.purse, pause=_no_pause)
        for key in plan.keys:
            asyncio.run(session.carry_on(key, means))
    finally:
        session.close()
    return folder
