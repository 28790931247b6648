"""How fast the emulator is: processor time, rates and memory of kernels against its budgets; no GPU is used.

Run `python benchmarks/emulator.py [--rows WORD ...] [--checks on|off|both] [--profile]`. Each row builds a candidate
(from the cache if it was built before), records its host code once, and carries the record out on a fresh emulated
device in a process of its own, so that its peak memory is its own. Seconds are processor time, of helper processes too:
other work on the machine stretches them less than the wall time of `again`, which is beside them. `first` includes
making functions of the PTX; `again` is the same launches once more, the least of several times if they are short. The
budgets of the suite's small workloads hold for `first`, the others for `again`; `of it` is the part of the budget that
was used. `checks` is what the checks cost: the time with them over the time without, and `off` beside the peak memory
that without them; the rows of races have the check for races among them. `ns` is processor time per executed warp
instruction; the rows of growth show whether it stays flat.
"""

from __future__ import annotations

import argparse
import cProfile
import multiprocessing
import os
import pstats
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ptxbench.schema.problem import Problem

ROOT = Path(__file__).parents[1]
GEMM = "reference/gemm_n7168_k5120/sm_90a.cu"
SIMPLE = "tests/kernels/bugs/gemm.cu"
PLAIN = "tests/kernels/simple/mha_with_lse_d128_mma.cu"
BLACKWELL = "reference/gemm_n7168_k5120/sm_100a.cu"
SIZES = "constexpr int kN = 7168, kK = 5120;"
MOST, ENOUGH = 8, 2.0
"""Times and seconds after which a row has been repeated enough."""
FORWARD, BACKWARD = "mha_with_lse_d128", "mha_bwd_d128"


@dataclass(frozen=True)
class Row:
    """One measurement: a kernel file and its sizes; `budget` in seconds, 0 for none; `races`: look for them."""

    name: str
    source: str
    task: str = "gemm"
    axes: dict[str, int] = field(default_factory=dict)
    n: int = 0
    k: int = 0
    budget: float = 0.0
    target: str = "sm_90a"
    races: bool = False

    @property
    def small(self) -> bool:
        """Whether it is one of the suite's small workloads, whose budget includes making functions."""
        return self.name.startswith("small")


@dataclass(frozen=True)
class Measured:
    """What a row took: processor time of the first and of the second time, wall time of the second."""

    first: float
    again: float
    wall: float
    instructions: int
    megabytes: float
    trouble: str


def rows() -> Iterator[Row]:
    """The rows of the speed table, the suite's small workloads, and growth."""
    yield Row("GEMM 512^3", GEMM, axes={"M": 512}, n=512, k=512, budget=0.2)
    yield Row("Blackwell GEMM 512^3", BLACKWELL, axes={"M": 512}, n=512, k=512, budget=0.25, target="sm_100a")
    for task, budget in ((FORWARD, 0.1), (BACKWARD, 0.3)):
        yield Row(f"{task} S256 H2", f"reference/{task}/sm_90a.cu", task, {"H": 2, "S": 256}, budget=budget)
    for task in (FORWARD, f"{FORWARD}_causal", BACKWARD, f"{BACKWARD}_causal"):
        yield Row(f"small {task}", f"reference/{task}/sm_90a.cu", task, budget=6.0)
    yield Row("small gemm_n7168_k5120", GEMM, "gemm_n7168_k5120", budget=8.0)
    for size in (256, 512, 1024, 2048):
        yield Row(f"growth GEMM {size}^3", SIMPLE, axes={"M": size}, n=size, k=size)
    yield Row("races, GEMM 512^3", GEMM, axes={"M": 512}, n=512, k=512, races=True)
    yield Row("races, Blackwell GEMM 512^3", BLACKWELL, axes={"M": 512}, n=512, k=512, target="sm_100a", races=True)
    yield Row(f"races, {FORWARD} S256", f"reference/{FORWARD}/sm_90a.cu", FORWARD, {"H": 2, "S": 256}, races=True)
    yield Row("races, the same by mma.sync", PLAIN, FORWARD, {"H": 2, "S": 256}, races=True)


def measure(row: Row, checks: bool, profile: bool) -> Measured:
    """Run one row in this process."""
    from ptxbench.emulator.device import Device  # noqa: PLC0415  (NumPy must start after the threads are set)
    from ptxbench.emulator.host.kernels import kernels_of  # noqa: PLC0415
    from ptxbench.emulator.host.process import record  # noqa: PLC0415
    from ptxbench.emulator.host.record import TensorArgument  # noqa: PLC0415
    from ptxbench.emulator.launch import Policy  # noqa: PLC0415
    from ptxbench.emulator.ptx.parse import parse  # noqa: PLC0415
    from ptxbench.schema.candidate import Candidate  # noqa: PLC0415
    from ptxbench.schema.values import Target  # noqa: PLC0415
    from ptxbench.settings import Settings  # noqa: PLC0415
    from ptxbench.suite.catalogue import pick_workload  # noqa: PLC0415
    from ptxbench.suite.oracles import draw_inputs  # noqa: PLC0415
    from ptxbench.toolchain.build import build  # noqa: PLC0415

    settings, problem = Settings.load(), problem_of(row)
    text = (ROOT / row.source).read_text()
    if row.n:
        text = text.replace(SIZES, f"constexpr int kN = {row.n}, kK = {row.k};")
    built = build(Candidate.from_source(text), Target(row.target), settings)
    assert built.library is not None, built.stage.log
    assert built.ptx is not None
    workload = pick_workload(problem, "small")
    workload = workload.model_copy(update={"axes": {**workload.axes, **row.axes}})
    inputs = draw_inputs(problem, workload, seed=1)
    how = Policy(checks=checks, races=checks and row.races)
    device = Device(parse(built.ptx.read_text()), kernels_of(built.library, settings), how)
    arguments = []
    for spec in problem.arguments:
        shape = problem.shape(spec, workload)
        argument = TensorArgument(address=0, shape=shape, dtype=spec.dtype)
        address = device.memory.allocate(argument.size)
        if spec.name in inputs:
            device.memory.write(address, inputs[spec.name].tobytes())
        arguments.append(argument.model_copy(update={"address": address}))
    told = record(built.library, "run", arguments, settings)
    times: list[float] = []
    walls: list[float] = []
    while len(times) < MOST and (len(times) < 2 or sum(times) < ENOUGH):
        profiler = cProfile.Profile()
        wall, start = time.perf_counter(), processor_time()
        if profile:
            profiler.enable()
        device.replay(told.operations)
        profiler.disable()
        times.append(processor_time() - start)
        walls.append(time.perf_counter() - wall)
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(15)
    trouble = device.refused or " ".join(
        each.result.error or each.result.unsupported or each.result.findings[0].rule
        for each in device.ran
        if not each.result.ok
    )
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    peak = max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024
    done = sum(each.result.warp_instructions for each in device.ran) // len(times)
    return Measured(times[0], min(times[1:]), min(walls[1:]), done, peak, trouble[:60])


def processor_time() -> float:
    """Seconds of this process and of those that it started and that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(kind) for kind in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def problem_of(row: Row) -> Problem:
    """The suite's problem, or a GEMM of these sizes."""
    from ptxbench.suite.catalogue import load_problem  # noqa: PLC0415
    from ptxbench.suite.make import make_problem  # noqa: PLC0415

    if not row.n:
        return load_problem(row.task)
    with tempfile.TemporaryDirectory() as folder:
        return load_problem(make_problem("gemm", {"n": row.n, "k": row.k}, Path(folder) / "made"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rows", nargs="*", default=[""], help="only rows whose name has one of these words")
    parser.add_argument("--checks", choices=("on", "off", "both"), default="both", help="look for hazards")
    parser.add_argument("--profile", action="store_true", help="print the hot spots of each row")
    options = parser.parse_args()
    one, two, five = os.getloadavg()
    print(f"load {one:.1f} {two:.1f} {five:.1f}, {os.cpu_count()} cores, checks {options.checks}")
    print(HEAD)
    total, growth = 0.0, []
    for row in rows():
        if any(word in row.name for word in options.rows):
            got = [
                separately(row, checks, options.profile) for checks in (True, False) if asked(options.checks, checks)
            ]
            print(line(row, got), flush=True)
            total += got[0].first if row.small else 0.0
            growth += [got[0]] if row.name.startswith("growth") else []
    if total:
        print(f"the suite's small workloads: {total:.1f} s of processor time, budget 30")
    if growth:
        rates = [1e9 * each.again / each.instructions for each in growth]
        print(f"growth: {min(rates):,.0f} to {max(rates):,.0f} ns per warp instruction")


COLUMNS = ("first", "again", "wall", "budget", "of it", "checks")
HEAD = f"{'':32}{''.join(f'{each:>8}' for each in COLUMNS)}{'warp instr':>12}{'ns':>8}{'MiB':>6}{'off':>6}"


def asked(wanted: str, checks: bool) -> bool:
    """Whether runs with (or without) checks are wanted."""
    return wanted in ("both", "on" if checks else "off")


def separately(row: Row, checks: bool, profile: bool) -> Measured:
    """Measure in a fresh process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(measure, (row, checks, profile))


def line(row: Row, got: list[Measured]) -> str:
    """A row's line of the table: the first measurement, and how it compares with the second if there is one."""
    most = got[0]
    used = (most.first if row.small else most.again) / row.budget if row.budget else 0.0
    text = f"{row.name:32}{most.first:8.2f}{most.again:8.2f}{most.wall:8.2f}{row.budget or '':>8}"
    text += f"{f'{used:.0%}' if used else '':>8}{f'x {most.again / got[1].again:.2f}' if len(got) > 1 else '':>8}"
    text += f"{most.instructions:12,}{1e9 * most.again / most.instructions:8,.0f}{most.megabytes:6.0f}"
    text += f"{got[1].megabytes:6.0f}" if len(got) > 1 else f"{'':6}"
    return f"{text} {'over' if used > 1 else ''} {most.trouble}".rstrip()


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the processes of the rows
    main()
