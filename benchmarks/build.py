"""How long a build takes: one plain nvcc call with the real headers against ours, cold and resubmitted; no GPU is used.

Run `python benchmarks/build.py [--repeat N] [SOURCE.cu ...]`. Both sides compile the same source with the same flags
for the same target, in turn, each time from nothing; resubmission is the same source built again in one process.
Seconds are wall time, which other work on the machine stretches; the ratio of processor time stands beside it.
"""

from __future__ import annotations

import argparse
import dataclasses
import resource
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ptxbench.schema.candidate import Candidate
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.build import build
from ptxbench.toolchain.call import run_tool
from ptxbench.toolchain.compile import compile_words
from ptxbench.toolchain.confine import confinement
from ptxbench.toolchain.driver_stub import driver_stub
from ptxbench.toolchain.toolkit import find_toolkit, find_tvm_ffi, host_compiler

ROOT = Path(__file__).parents[1]
SOURCES = (ROOT / "reference/gemm_n7168_k5120/sm_90a.cu", *sorted((ROOT / "tests/kernels/simple").glob("*.cu")))
TARGET = Target.SM_90A

COLD_GOAL, AGAIN_GOAL = 2.5, 10.0
"""What ours must be faster by (E5): a cold build, and a resubmission."""


@dataclasses.dataclass(frozen=True)
class Row:
    """Medians of one source: seconds of wall time, and of processor time (`_cpu`)."""

    source: Path
    headers: str
    plain: float
    cold: float
    again: float
    plain_cpu: float
    cold_cpu: float


def cpu_seconds() -> float:
    """Processor time of all that this process has started and waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def plain_seconds(source: Path, settings: Settings) -> float:
    """One nvcc call as a person would write it."""
    toolkit, ffi = find_toolkit(settings), find_tvm_ffi()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(source, Path(folder) / "kernel.cu")
        libraries = [f"-L{toolkit.library}", "-l:libcudart.so.13", f"-L{ffi.library}", "-ltvm_ffi"]
        words = [*compile_words(TARGET), f"-I{ffi.include}", *libraries, "-o", "kernel.so", "kernel.cu"]
        call = run_tool([toolkit.nvcc, *words], timeout=600, cwd=Path(folder), env={"PATH": settings.path})
    if not call.succeeded:
        raise SystemExit(f"nvcc fails on {source}:\n{call.stderr}")
    return call.seconds


def our_build(source: Path, settings: Settings) -> tuple[float, str]:
    """Seconds of one build of ours, and the headers that served."""
    began = time.perf_counter()
    built = build(Candidate.from_source(source.read_text()), TARGET, settings)
    seconds = time.perf_counter() - began
    if built.library is None:
        raise SystemExit(f"The build fails on {source}:\n{built.stage.log}")
    return seconds, built.stage.headers


def measure(source: Path, repeat: int, settings: Settings) -> Row:
    """Medians over `repeat` rounds, the two sides in turn."""
    rounds, headers = [], ""
    for _ in range(repeat):
        marks = [cpu_seconds()]
        plain = plain_seconds(source, settings)
        marks.append(cpu_seconds())
        shutil.rmtree(settings.cache / "builds", ignore_errors=True)
        cold, headers = our_build(source, settings)
        marks.append(cpu_seconds())
        again, _ = our_build(source, settings)
        rounds.append((plain, cold, again, marks[1] - marks[0], marks[2] - marks[1]))
    return Row(source, headers, *(statistics.median(column) for column in zip(*rounds, strict=True)))


def table(rows: list[Row]) -> Table:
    """The rows with their ratios, those that miss a goal in red."""
    result = Table(title=f"Seconds to build for {TARGET.value} (medians)")
    for heading in ("source", "headers", "plain nvcc", "cold", "faster", "(CPU)", "again", "faster"):
        result.add_column(heading, justify="left" if heading in ("source", "headers") else "right")
    for row in rows:
        ratios = [
            f"[{'green' if ratio >= goal else 'red'}]{ratio:.1f}x[/]"
            for ratio, goal in ((row.plain / row.cold, COLD_GOAL), (row.plain / row.again, AGAIN_GOAL))
        ]
        name = str(row.source.relative_to(ROOT) if row.source.is_relative_to(ROOT) else row.source)
        seconds = f"{row.plain:.2f}", f"{row.cold:.2f}", f"{row.again:.4f}"
        cpu = f"{row.plain_cpu / row.cold_cpu:.1f}x"
        result.add_row(name, row.headers, seconds[0], seconds[1], ratios[0], cpu, seconds[2], ratios[1])
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", type=Path, default=SOURCES)
    parser.add_argument("--repeat", type=int, default=5, help="rounds per source (default 5)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = dataclasses.replace(Settings.load(), cache=Path(folder))
        toolkit = find_toolkit(settings)
        # What a machine makes once is made before the clock starts.
        driver_stub(toolkit, settings)
        confinement(settings)
        rows = [measure(source.resolve(), arguments.repeat, settings) for source in arguments.sources]
    console = Console()
    console.print(table(rows))
    console.print(f"nvcc {toolkit.version} ({toolkit.source}), g++ {host_compiler(settings).version}")


if __name__ == "__main__":
    main()
