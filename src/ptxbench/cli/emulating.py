"""`ptxbench emulate`: one call of a kernel on the emulator, with a timeline if wanted; `eval` judges the numbers."""

from __future__ import annotations

import dataclasses
import json as encoder
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ptxbench.cli.kernel_file import read_candidate
from ptxbench.emulator.device import Ran
from ptxbench.emulator.launch import Policy
from ptxbench.emulator.trace import MOST
from ptxbench.errors import CommandError, RecordError
from ptxbench.evaluate.emulated_run import Call, Emulation, Program
from ptxbench.evaluate.gpu import Plan
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.suite import draw_inputs, load_problem, pick_workload
from ptxbench.toolchain.build import build

_LEFT_OUT = re.compile(rb'"left_out":(\d{1,12})')

LINES = 12
"""Rows of the table of executed instructions; --json has them all."""


@dataclass(frozen=True)
class EmulationOrder:
    """What the user asked for, as typed."""

    kernel: Path
    task: str
    workload: str = "small"
    schedules: tuple[str, ...] = ("late",)
    numerics: str = "fast"
    trace: Path | None = None
    json: bool = False
    races: bool = False


def emulate_kernel(order: EmulationOrder) -> int:
    """Call the kernel once on normal inputs of seed 0 and print what it did; 0 when nothing is wrong with the call.

    Raises:
        PtxbenchError: The order cannot be carried out, or the kernel does not compile.
    """
    call = _call(order, Settings.load())
    if order.trace is not None:
        try:
            order.trace.write_bytes(call.timeline)
        except OSError as error:
            raise RecordError(f"{order.trace} cannot be written: {error.strerror}.", "Name another file.") from None
    if order.json:
        sys.stdout.write(encoder.dumps(_document(call), indent=2) + "\n")
    else:
        Console(highlight=False).print(*_report(call, order), sep="\n")
    return 0 if call.fault is None and all(each.result.ok for each in call.ran) else 1


def _policy(order: EmulationOrder, settings: Settings) -> Policy:
    for name in order.schedules:
        word, _, number = name.partition(" ")
        if name not in ("late", "eager") and not (word == "seed" and number.isdigit()):
            raise CommandError(f"{name!r} is not a schedule.", "Use late, eager, or 'seed N'.")
    if order.numerics not in ("fast", "exact"):
        raise CommandError(f"{order.numerics!r} is no way of computing.", "Use fast or exact.")
    how = Policy(schedules=order.schedules, numerics=order.numerics, races=order.races)
    return replace(how, others=0, seconds=settings.device_timeout)


def _call(order: EmulationOrder, settings: Settings) -> Call:
    policy = _policy(order, settings)
    problem = load_problem(order.task)
    workload = pick_workload(problem, order.workload)
    candidate = read_candidate(order.kernel)
    target = next((each for each in Target if each.value == order.kernel.stem), Target.SM_90A)
    built = build(candidate, target, settings)
    if built.library is None or built.ptx is None:
        reason = built.stage.reason
        raise CommandError(reason.message if reason else "The kernel does not compile.", "Correct the source.")
    plan = Plan(candidate, problem, workload, target, built.library)
    with Program.load(plan, built.ptx, settings) as program:
        inputs = draw_inputs(problem, workload, 0)
        return Emulation(program, workload).call(inputs, policy, "trace" if order.trace else "")


def _document(call: Call) -> dict[str, object]:
    launches = [{"kernel": each.kernel, **dataclasses.asdict(each.result)} for each in call.ran]
    return {"fault": call.fault.model_dump() if call.fault else None, "launches": launches}


def _report(call: Call, order: EmulationOrder) -> Iterator[Text | Table]:
    fault = call.fault
    if fault is not None:
        yield Text(f"{fault.code}: {fault.message}", "bold red")
    for each in call.ran:
        result = each.result
        yield Text(f"{each.kernel}: {result.warp_instructions:,} warp instructions", "bold")
        yield Text("  " + ", ".join(f"{got.schedule} {got.clusters} of {got.of} clusters" for got in result.coverage))
        for finding in result.findings:
            place = f", {finding.place}" if finding.place else ""
            yield Text(f"  {finding.severity} {finding.rule}: {finding.message}{place}")
        yield _counts(each)
    if order.trace is not None:
        yield Text(f"open {order.trace} in Perfetto or chrome://tracing (one unit is one warp instruction, not time)")
        yield from _left_out(call.timeline)


def _left_out(timeline: bytes) -> Iterator[Text]:
    """What the file does not show; its head says so, the rest is megabytes."""
    found = _LEFT_OUT.search(timeline, 0, 100)
    if found and int(found[1]):
        events = f"the first {MOST:,} events; {int(found[1]):,} later ones are left out"
        yield Text(f"it has {events}: a smaller workload shows all", "yellow")


def _counts(ran: Ran) -> Table:
    table = Table(box=None, padding=(0, 2))
    for heading in ("warps", "threads", "PTX line"):
        table.add_column(heading, justify="right", header_style="dim")
    table.add_column("instruction", header_style="dim")
    busiest: Sequence[tuple[int, int, int, str]] = sorted(
        ((line.warps, line.threads, line.line, line.name) for line in ran.result.counts), reverse=True
    )
    for warps, threads, number, name in busiest[:LINES]:
        table.add_row(f"{warps:,}", f"{threads:,}", str(number), name)
    return table
