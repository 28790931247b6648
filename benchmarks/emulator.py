"""How fast the emulator is: seconds and warp instructions per second of kernels against the budgets; no GPU is used.

Run `python benchmarks/emulator.py [--rows WORD ...] [--checks] [--profile]`. Each row builds a candidate (from the
cache if it was built before), records its host code once, and carries the record out on a fresh emulated device in a
process of its own, so that its peak memory is its own. `first` is the wall time of the launches, making functions of
the PTX included, `again` that of the same launches once more; `cpu` is the processor time of `first` and `again`, which
other work on the machine stretches less. The budgets of the suite's small workloads hold for `first`, the others for
`again`.
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
SIZES = "constexpr int kN = 7168, kK = 5120;"
FORWARD, BACKWARD = "mha_with_lse_d128", "mha_bwd_d128"


@dataclass(frozen=True)
class Row:
    """One measurement: a kernel file and its sizes; `budget` in seconds, 0 for none."""

    name: str
    source: str
    task: str = "gemm"
    axes: dict[str, int] = field(default_factory=dict)
    n: int = 0
    k: int = 0
    budget: float = 0.0


@dataclass(frozen=True)
class Measured:
    """What a row took."""

    first: float
    again: float
    cpu: tuple[float, float]
    instructions: int
    megabytes: float
    trouble: str


def rows() -> Iterator[Row]:
    """The Hopper rows of the speed table, the suite's small workloads, and growth."""
    yield Row("GEMM 512^3", GEMM, axes={"M": 512}, n=512, k=512, budget=0.2)
    for task, budget in ((FORWARD, 0.1), (BACKWARD, 0.3)):
        yield Row(f"{task} S256 H2", f"reference/{task}/sm_90a.cu", task, {"H": 2, "S": 256}, budget=budget)
    for task in (FORWARD, f"{FORWARD}_causal", BACKWARD, f"{BACKWARD}_causal"):
        yield Row(f"small {task}", f"reference/{task}/sm_90a.cu", task, budget=6.0)
    yield Row("small gemm_n7168_k5120", GEMM, "gemm_n7168_k5120", budget=8.0)
    for size in (256, 512, 1024, 2048):
        yield Row(f"growth GEMM {size}^3", SIMPLE, axes={"M": size}, n=size, k=size)


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
    built = build(Candidate.from_source(text), Target.SM_90A, settings)
    assert built.library is not None, built.stage.log
    assert built.ptx is not None
    workload = pick_workload(problem, "small")
    workload = workload.model_copy(update={"axes": {**workload.axes, **row.axes}})
    inputs = draw_inputs(problem, workload, seed=1)
    device = Device(parse(built.ptx.read_text()), kernels_of(built.library, settings), Policy(checks=checks))
    arguments = []
    for spec in problem.arguments:
        shape = problem.shape(spec, workload)
        argument = TensorArgument(address=0, shape=shape, dtype=spec.dtype)
        address = device.memory.allocate(argument.size)
        if spec.name in inputs:
            device.memory.write(address, inputs[spec.name].tobytes())
        arguments.append(argument.model_copy(update={"address": address}))
    told = record(built.library, "run", arguments, settings)
    profiler, walls, cpus = cProfile.Profile(), [], []
    for _ in range(2):
        start, cpu = time.perf_counter(), time.process_time()
        if profile:
            profiler.enable()
        device.replay(told.operations)
        profiler.disable()
        walls.append(time.perf_counter() - start)
        cpus.append(time.process_time() - cpu)
        if profile:
            pstats.Stats(profiler).sort_stats("tottime").print_stats(15)
            profiler = cProfile.Profile()
    trouble = device.refused or " ".join(
        each.result.error or each.result.unsupported or each.result.findings[0].rule
        for each in device.ran
        if not each.result.ok
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    done = sum(each.result.warp_instructions for each in device.ran) // 2
    return Measured(walls[0], walls[1], (cpus[0], cpus[1]), done, peak, trouble[:60])


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
    parser.add_argument("--checks", action="store_true", help="look for hazards, as an evaluation does")
    parser.add_argument("--profile", action="store_true", help="print the hot spots of each row")
    options = parser.parse_args()
    one, two, five = os.getloadavg()
    print(f"load {one:.1f} {two:.1f} {five:.1f}, {os.cpu_count()} cores, checks {'on' if options.checks else 'off'}")
    print(f"{'':34}{'first':>8}{'again':>8}{'cpu':>16}{'budget':>8}{'warp instr':>12}{'per cpu s':>11}{'MiB':>6}")
    total = 0.0
    for row in rows():
        if not any(word in row.name for word in options.rows):
            continue
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            got = pool.apply(measure, (row, options.checks, options.profile))
        small = row.name.startswith("small")
        total += got.cpu[0] if small else 0.0
        over = "over" if row.budget and got.cpu[0 if small else 1] > row.budget else ""
        print(
            f"{row.name:34}{got.first:8.2f}{got.again:8.2f}{got.cpu[0]:8.2f}{got.cpu[1]:8.2f}{row.budget or '':>8}"
            f"{got.instructions:12,}{got.instructions / got.cpu[1]:11,.0f}{got.megabytes:6.0f} {over} {got.trouble}",
            flush=True,
        )
    print(f"the suite's small workloads: {total:.1f} s of processor time, budget 30")


if __name__ == "__main__":
    os.environ["OPENBLAS_NUM_THREADS"] = "1"  # for the processes of the rows
    main()
