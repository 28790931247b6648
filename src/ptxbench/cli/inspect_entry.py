"""What Inspect AI finds of ptxbench: `inspect eval ptxbench/suite`, and our own models; it runs nothing itself.

The options of the task are those of `ptxbench run`; `-T output=RUN` keeps the run in a folder, so that
`inspect eval-retry` pays nothing twice.
"""

from __future__ import annotations

from pathlib import Path

from ptxbench.agent.inspect_model import register_own_models
from ptxbench.agent.inspect_task import InspectTask, make_task, model_name, task
from ptxbench.agent.plans import make_plan
from ptxbench.agent.session import Session
from ptxbench.cli.wishes import device_for, wish_of
from ptxbench.errors import PtxbenchError
from ptxbench.evaluate.local import LocalEvaluator
from ptxbench.evaluate.pipeline import EvaluationRequest
from ptxbench.schema.turn import Trajectory

register_own_models()


@task
def suite(  # noqa: PLR0913, PLR0917  (each is an option of the command line)
    tasks: str | list[str] | None = None,
    target: str = "sm_90a",
    pack: str | list[str] | None = None,
    trajectories: int | None = None,
    turns: int | None = None,
    target_speedup: float | None = None,
    preset: str = "",
    device: str = "auto",
    workload: str | None = None,
    context: str | None = None,
    output: str | None = None,
) -> InspectTask:
    """Kernels with an architecture's own PTX, turn by turn; without options the whole suite.

    Raises:
        PtxbenchError: An option means nothing, or the device is not there.
    """
    options = dict(locals()) | {"tasks": _listed(tasks), "pack": _listed(pack), "model": model_name()}
    wish = wish_of(options)
    plan, problems = make_plan(wish, device_for(wish.target, device))
    session = Session.open(plan, problems, Path(output) if output else None)
    evaluator = LocalEvaluator.open(EvaluationRequest(target=wish.target, device=plan.device))
    return make_task(session, evaluator, _unwatched, _given_up)


def _listed(names: str | list[str] | None) -> str | None:
    """Inspect makes a list of what has commas."""
    return ",".join(names) if isinstance(names, list) else names


def _unwatched(trajectory: Trajectory) -> None:
    """Inspect shows progress."""


def _given_up(fault: PtxbenchError) -> None:
    """Inspect shows the sample's error."""
