"""`ptxbench run`: opens the run, its model and its evaluator, has it carried on, says what came out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ptxbench.agent.estimate import ASSUMPTIONS, Estimate, estimate, packs_by_task
from ptxbench.agent.own_models import is_own, open_own_model
from ptxbench.agent.plans import Wish, make_plan, problems_of
from ptxbench.agent.session import Session, Watch, carry_all_on
from ptxbench.cli.run_progress import RunProgress
from ptxbench.cli.showing import show_run
from ptxbench.cli.wishes import device_for
from ptxbench.errors import CommandError, ProviderError, PtxbenchError
from ptxbench.evaluate.local import LocalEvaluator
from ptxbench.evaluate.pipeline import EvaluationRequest
from ptxbench.records.read import read_run
from ptxbench.schema.evaluator import Evaluator
from ptxbench.schema.turn import UNFINISHED, RunPlan, StopReason
from ptxbench.schema.values import ToolVersion


@dataclass(frozen=True)
class RunOrder:
    """What the user asked for, as typed.

    Attributes:
        wish: What decides the plan.
        device: `auto`, `cuda:N` or `emulator`.
        output: The run's folder; None: named by the time.
        resume: A run to go on with, by its own plan.
        dry_run: Print the plan and its estimate, and end.
        parallel: Trajectories at once.
        retries: Of a request that failed for a passing reason.
        base_url: Of the provider, where it is another than usual.
    """

    wish: Wish
    device: str = "auto"
    output: Path | None = None
    resume: Path | None = None
    dry_run: bool = False
    parallel: int = 4
    retries: int = 8
    base_url: str | None = None


def run_benchmark(order: RunOrder) -> int:
    """Carry a run on to its end, and print what it gave.

    Raises:
        PtxbenchError: The order cannot be carried out, or something has to be resumed.
    """
    if order.parallel < 1:
        raise CommandError(f"--parallel is {order.parallel}.", "Give at least 1.")
    if order.dry_run:
        return _print_plan(order)
    with _session(order) as session:
        assert session.store is not None
        folder = session.store.folder
        if session.open_keys():
            try:
                _carry_on(session, order)
            except KeyboardInterrupt:
                _say_how_to_go_on(folder.root)
                raise
    return _report(folder.root)


@contextmanager
def _session(order: RunOrder) -> Iterator[Session]:
    if order.resume is not None:
        if order.output is not None:
            raise CommandError("--resume and -o name a run each.", "Give one of them.")
        plan = read_run(order.resume).run.plan
        session = Session.open(plan, problems_of(plan), order.resume)
    else:
        if not order.wish.model:
            raise CommandError("No model was named.", "Give --model PROVIDER/MODEL, replay/FILE or smollm2/local.")
        plan, problems = make_plan(order.wish, device_for(order.wish.target, order.device, planned=order.dry_run))
        folder = order.output or Path("runs") / time.strftime("%Y%m%d-%H%M%S")
        session = Session.open(plan, problems, folder, (ToolVersion(name="ptxbench", version=version("ptxbench")),))
    with closing(session):
        yield session


def _carry_on(session: Session, order: RunOrder) -> None:
    """Open the model first: a wrong name or a missing key is found before the device is touched."""
    plan = session.run.plan
    carry_on = _carrier(session, order)
    targets = {key.target for key in plan.keys}
    evaluator = LocalEvaluator.open(EvaluationRequest(target=targets.pop(), device=plan.device))
    with closing(evaluator), RunProgress(session, order.parallel) as progress:
        carry_on(evaluator, progress.show)


def _carrier(session: Session, order: RunOrder) -> Callable[[Evaluator, Watch], None]:
    """What carries the run on with an evaluator; our own models need no Inspect AI."""
    plan = session.run.plan
    if is_own(plan.model):
        model = open_own_model(plan.model, plan.max_output_tokens, plan.temperature)
        return lambda evaluator, watch: asyncio.run(carry_all_on(session, model, evaluator, order.parallel, watch))
    try:
        from ptxbench.agent import inspect_model, inspect_task  # noqa: PLC0415  (an extra)
    except ImportError:
        what = f"The model {plan.model!r} needs Inspect AI, which is not installed."
        raise ProviderError(what, "Install it with `pip install 'ptxbench[agent]'`.") from None
    opened = inspect_model.open_model(plan.model, plan, order.base_url, order.retries)

    def carry_on(evaluator: Evaluator, watch: Watch) -> None:
        assert session.store is not None
        faults: list[PtxbenchError] = []
        made = inspect_task.make_task(session, evaluator, watch, faults.append)
        inspect_task.run_task(made, opened, session.store.folder.logs, order.parallel)
        if faults:
            raise faults[0]

    return carry_on


def _report(folder: Path) -> int:
    """Print the rates; a fault that stopped trajectories is named, and makes the exit code."""
    show_run(folder)
    stopped = [each for each in read_run(folder).trajectories() if each.stop in UNFINISHED]
    if not stopped:
        return 0
    if any(each.stop is StopReason.INTERRUPTED for each in stopped):
        raise KeyboardInterrupt  # Inspect ends a run that was interrupted as any other
    first = stopped[0]
    what = f"{len(stopped)} of the trajectories stopped before their end; {first.key.name}: {first.stop_note}"
    raise ProviderError(what, f"Remove the cause, then `ptxbench run --resume {folder}`: nothing is paid twice.")


def _say_how_to_go_on(folder: Path) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"next: ptxbench run --resume {folder}", markup=False)


def _print_plan(order: RunOrder) -> int:
    plan, problems = make_plan(order.wish, device_for(order.wish.target, order.device, planned=order.dry_run))
    forecast = estimate(Session.open(plan, problems, None), plan.keys, order.parallel)
    console = Console(highlight=False, soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("problem", "sizes", "packs"):
        table.add_column(heading, header_style="dim", overflow="fold")
    for name, packs in packs_by_task(plan, problems).items():
        workload = problems[name].workload(next(key.workload for key in plan.keys if key.problem == name))
        assert workload is not None
        sizes = " ".join(f"{axis}={value}" for axis, value in problems[name].axis_values(workload).items())
        table.add_row(name, sizes, ", ".join(packs))
    console.print(table)
    for line in _plan_lines(plan, forecast):
        console.print(line)
    return 0


def _plan_lines(plan: RunPlan, forecast: Estimate) -> Iterator[str]:
    goal = f"until a speedup of {plan.target_speedup:g}" if plan.target_speedup else "to the last turn"
    if plan.target_speedup and plan.device == "emulator":
        goal = "until correct by the target's own instructions"
    of = f"{forecast.trajectories} trajectories x {plan.turns} turns, {goal}"
    yield f"\n{of}, with {plan.model or 'no model yet'} on {plan.device}, context {plan.context}"
    usage = forecast.usage
    yield f"at most about {usage.input_tokens / 1e6:,.1f}M tokens in, {usage.output_tokens / 1e6:,.1f}M tokens out"
    cost = "unknown without --price IN/OUT" if forecast.cost is None else f"about US$ {forecast.cost:,.0f}"
    yield f"cost: {cost}; time: about {forecast.seconds / 3600:,.1f} h"
    yield f"assumed: {ASSUMPTIONS}"
