"""How long a build takes: one plain nvcc call with the real headers against ours, cold and resubmitted; no GPU is used.

Run `python benchmarks/build.py [--repeat N] [SOURCE.cu ...]`. Both sides compile the same source with the same flags
for the same target, in turn, each time from nothing; resubmission is the same source built again in one process.
"""

from __future__ import annotations

import argparse
import dataclasses
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
    """Median seconds of one source."""

    source: Path
    headers: str
    plain: float
    cold: float
    again: float


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


def our_seconds(source: Path, settings: Settings) -> tuple[float, float, str]:
    """A cold build and a resubmission of it: seconds of each, and the headers that served."""
    candidate = Candidate.from_source(source.read_text())
    shutil.rmtree(settings.cache / "builds", ignore_errors=True)
    times = []
    for _ in range(2):
        began = time.perf_counter()
        built = build(candidate, TARGET, settings)
        times.append(time.perf_counter() - began)
        if built.library is None:
            raise SystemExit(f"The build fails on {source}:\n{built.stage.log}")
    return times[0], times[1], built.stage.headers


def measure(source: Path, repeat: int, settings: Settings) -> Row:
    """Medians over `repeat` rounds, the two sides in turn."""
    plain, cold, again, headers = [], [], [], ""
    for _ in range(repeat):
        plain.append(plain_seconds(source, settings))
        first, second, headers = our_seconds(source, settings)
        cold.append(first)
        again.append(second)
    return Row(source, headers, statistics.median(plain), statistics.median(cold), statistics.median(again))


def table(rows: list[Row]) -> Table:
    """The rows with their ratios, those that miss a goal in red."""
    result = Table(title=f"Seconds to build for {TARGET.value} (medians)")
    for heading in ("source", "headers", "plain nvcc", "cold", "faster", "again", "faster"):
        result.add_column(heading, justify="left" if heading in ("source", "headers") else "right")
    for row in rows:
        ratios = [
            f"[{'green' if ratio >= goal else 'red'}]{ratio:.1f}x[/]"
            for ratio, goal in ((row.plain / row.cold, COLD_GOAL), (row.plain / row.again, AGAIN_GOAL))
        ]
        name = str(row.source.relative_to(ROOT) if row.source.is_relative_to(ROOT) else row.source)
        seconds = f"{row.plain:.2f}", f"{row.cold:.2f}", f"{row.again:.4f}"
        result.add_row(name, row.headers, seconds[0], seconds[1], ratios[0], seconds[2], ratios[1])
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
