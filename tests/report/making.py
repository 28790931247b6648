"""Runs for the tests of reports: real folders, made by the loop with a scripted model and a scripted evaluator."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.agent.scripted import USAGE, ScriptedModel, WordEvaluator, open_session, plan_of, said

from ptxbench.agent.loop import Means
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem, Workload
from ptxbench.schema.turn import Answer, SampleKey
from ptxbench.schema.values import Target
from ptxbench.schema.verdict import Verdict


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


VERDICTS = Path(__file__).parents[1] / "data" / "gpu" / "verdicts"
KERNELS = Path(__file__).parents[1] / "kernels"
REFERENCE = Path(__file__).parents[2] / "reference"
GEMM = "gemm_n7168_k5120"


class StoredVerdicts:
    """Gives the verdict that an H200 gave on the kernel of that source."""

    def __init__(self, by_source: dict[str, Verdict]) -> None:
        self.by_source = by_source

    async def evaluate(self, problem: Problem, workload: Workload, candidate: Candidate) -> Verdict:
        verdict = self.by_source[candidate.entry_source.strip()]
        return verdict.model_copy(update={"candidate": candidate.id, "candidate_name": candidate.name})


def source_of(name: str) -> str:
    """The source of a kernel by its verdict's name: `wrong-skipped_k`, `reference-gemm_n7168_k5120`."""
    kind, _, rest = name.partition("-")
    path = REFERENCE / rest / "sm_90a.cu" if kind == "reference" else KERNELS / kind / f"{rest}.cu"
    return path.read_text()


def stored_verdict(name: str) -> Verdict:
    """What an H200 gave on that kernel."""
    return Verdict.model_validate_json((VERDICTS / f"{name}.json").read_text())


def make_recorded_run(folder: Path, *names: str, trajectories: int = 1) -> Path:
    """A run whose answers are kernels of ours and whose verdicts are those of an H200, measured before."""
    verdicts = {name: stored_verdict(name) for name in names}
    sources = {name: source_of(name) for name in names}
    workload = next(iter(verdicts.values())).workload
    keys = tuple(
        SampleKey(problem=GEMM, workload=workload, target=Target.SM_90A, pack="none", number=number)
        for number in range(trajectories)
    )
    plan = plan_of(keys=keys, turns=len(names), device="cuda:0", target_speedup=0.0)
    answers = [Answer(text=f"Turn of {name}.\n\n```cuda\n{sources[name]}\n```\n", usage=USAGE) for name in names]
    evaluator = StoredVerdicts({sources[name].strip(): verdicts[name] for name in names})
    session = open_session(plan, folder)
    try:
        means = Means(ScriptedModel(*answers), evaluator, session.records, session.purse, pause=_no_pause)
        for key in plan.keys:
            asyncio.run(session.carry_on(key, means))
    finally:
        session.close()
    return folder
