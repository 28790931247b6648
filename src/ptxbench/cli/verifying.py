"""`ptxbench verify`: prints what in a run does not follow; it decides nothing itself. Exit code 1 on any difference."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from ptxbench.agent.plans import problems_of
from ptxbench.errors import RecordError
from ptxbench.evaluate.local import LocalEvaluator
from ptxbench.evaluate.pipeline import EvaluationRequest
from ptxbench.records.read import StoredRun, read_run
from ptxbench.report.audit import audit
from ptxbench.report.judging_again import choose, judge_again
from ptxbench.report.verdict_audit import Difference
from ptxbench.schema.turn import Trajectory

SHOWN = 40


def verify_run(source: Path, again: int, device: str, seed: int) -> int:
    """Audit a run and give the exit code: 0 all follows, 1 something differs.

    Raises:
        RecordError: There is no run.
        DeviceError: Kernels are to be judged again and the device is not there.
    """
    stored = read_run(source)
    if not source.is_dir():
        raise RecordError(f"{source} is a log.", "Name the run's folder: only that holds the journal.")
    console = Console(highlight=False, soft_wrap=True)
    found = audit(stored)
    console.print(
        f"{found.trajectories} trajectories, {found.turns} turns, {found.verdicts} verdicts: "
        "prompts, answers, kernels, statuses, layers, speedups, work shares and feedback recomputed"
    )
    differences = [*found.differences, *_judged_again(stored, again, device, seed, console)]
    for each in differences[:SHOWN]:
        console.print(f"{each.where}: {each.what}: {each.stored}; it should be: {each.follows}", markup=False)
    if len(differences) > SHOWN:
        console.print(f"and {len(differences) - SHOWN} more")
    console.print("no difference" if not differences else f"{len(differences)} differences")
    return 1 if differences else 0


def _judged_again(stored: StoredRun, count: int, device: str, seed: int, console: Console) -> tuple[Difference, ...]:
    if not count:
        return ()
    trajectories = _readable(stored)
    problems = problems_of(stored.run.plan)
    targets = {each.key.target for each in trajectories}
    differences: tuple[Difference, ...] = ()
    for target in sorted(targets):
        evaluator = LocalEvaluator.open(EvaluationRequest(target=target, device=device))
        try:
            here = [each for each in trajectories if each.key.target is target]
            chosen = choose(here, count, evaluator.device, seed)
            console.print(f"judging {len(chosen)} kernels for {target.value} again on {evaluator.device}")
            differences += asyncio.run(judge_again(here, chosen, problems, evaluator))
        finally:
            evaluator.close()
    return differences


def _readable(stored: StoredRun) -> list[Trajectory]:
    """Trajectories up to the first that is damaged, which the audit has named."""
    found: list[Trajectory] = []
    with suppress(RecordError):
        found.extend(stored.trajectories())
    return found
