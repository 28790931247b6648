"""`ptxbench eval`: reads the order, asks the evaluator, prints and keeps its verdict."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TypeVar, cast, get_args

from rich.console import Console

from ptxbench.cli.kernel_file import read_candidate
from ptxbench.cli.progress import Progress
from ptxbench.cli.result_folder import VERDICT, prepare_folder, write_files
from ptxbench.errors import CommandError
from ptxbench.evaluate.devices import list_gpus
from ptxbench.evaluate.emulated import estimate_seconds
from ptxbench.evaluate.pipeline import EvaluationRequest, choose, evaluate
from ptxbench.evaluate.recording import HostMode
from ptxbench.evaluate.render import render_verdict
from ptxbench.schema.problem import Problem, Role, Workload
from ptxbench.schema.values import Target
from ptxbench.schema.verdict import StageName, Verdict
from ptxbench.settings import Settings
from ptxbench.suite import load_problem, pick_workload

REPORT_WIDTH = 100

Name = TypeVar("Name", StageName, Target)


@dataclass(frozen=True)
class Order:
    """What the user asked for, as typed."""

    kernel: Path
    task: str
    target: str | None = None
    device: str = "auto"
    workload: str | None = None
    until: str | None = None
    json: bool = False
    output: Path | None = None
    thorough: bool = False
    host: str = "auto"


def judge_kernel(order: Order) -> int:
    """Judge one kernel, print the verdict and give the exit code of its status.

    Raises:
        PtxbenchError: The order cannot be carried out.
    """
    verdict = _judge(order)
    if order.json:
        sys.stdout.write(verdict.model_dump_json(indent=2) + "\n")
    else:
        Console().print(render_verdict(verdict))
    return verdict.status.exit_code


def _judge(order: Order) -> Verdict:
    settings = Settings.load()
    problem = load_problem(order.task)
    candidate = read_candidate(order.kernel)
    if order.output is not None:
        prepare_folder(order.output)
    until = _member(StageName, order.until, "stage") if order.until else None
    target = _member(Target, order.target, "target") if order.target else _usual_target(order, settings)
    with Progress() as progress:
        request = EvaluationRequest(
            target=target,
            device=order.device,
            until=until,
            progress=progress.show,
            thoroughness="thorough" if order.thorough else "quick",
            host=_host(order.host),
            settings=settings,
        )
        workload = _workload(problem, order, choose(request).emulated, progress)
        verdict = evaluate(candidate, problem, workload, request)
    if order.output is not None:
        keep(verdict, order.output)
    return verdict


def _workload(problem: Problem, order: Order, emulated: bool, progress: Progress) -> Workload:
    """The workload asked for, else the paper's; the emulator takes the small one, which it runs in seconds."""
    if order.workload is None and emulated and any(each.role is Role.SMALL for each in problem.workloads):
        return pick_workload(problem, Role.SMALL.value)
    workload = pick_workload(problem, order.workload)
    minutes = estimate_seconds(problem, workload) / 60
    if emulated and minutes > 1:
        where = f"about {minutes:,.0f} minutes for one call of a tensor-core kernel of this size"
        progress.show(StageName.CHECK, f"the emulator needs {where}; `--workload small` takes seconds")
    return workload


def keep(verdict: Verdict, folder: Path) -> None:
    """Write the build log, the report for people and, last, the verdict document.

    Raises:
        RecordError: The folder cannot be written to; what was there before is still there.
    """
    report = Console(file=StringIO(), width=REPORT_WIDTH, color_system=None)
    with report.capture() as captured:
        report.print(render_verdict(verdict))
    files = {
        "build.log": verdict.stages.build.log,
        "report.txt": captured.get(),
        VERDICT: verdict.model_dump_json(indent=2) + "\n",
    }
    write_files(folder, files)


def _usual_target(order: Order, settings: Settings) -> Target:
    """The target in the file's name (`sm_90a.cu`), else that of the device asked for, else Hopper."""
    named = [target for target in Target if target.value == order.kernel.stem]
    if named:
        return named[0]
    gpus = () if order.device == "none" else list_gpus(settings)
    for gpu in gpus:
        for target in Target:
            fits = gpu.compute_capability == target.compute_capability
            if fits and order.device in ("auto", f"cuda:{gpu.ordinal}"):
                return target
    return Target.SM_90A


def _host(text: str) -> HostMode:
    for mode in get_args(HostMode):
        if text == mode:
            return cast(HostMode, mode)
    raise CommandError(f"{text!r} is not a way to treat host code.", f"Use one of: {', '.join(get_args(HostMode))}.")


def _member(kind: type[Name], text: str, what: str) -> Name:
    try:
        return kind(text)
    except ValueError:
        raise CommandError(f"{text!r} is not a {what}.", f"Use one of: {', '.join(kind)}.") from None
