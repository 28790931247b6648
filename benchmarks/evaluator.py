"""How long one evaluation holds the GPU, beside flashinfer-bench's runner on the same kernel; not how fast kernels are.

    python benchmarks/evaluator.py --kernel reference/gemm_n7168_k5120/sm_90a.cu --repeat 6
    python benchmarks/evaluator.py --repeat 6 --flashinfer-bench      # where its wheel is installed
    python benchmarks/evaluator.py --repeat 2 --full                  # with memcheck and ncu too

Each repetition is a source of its own (a comment differs), so nothing is answered from a record. Builds are done before
the GPU is taken, as in production; flashinfer-bench compiles while it holds its worker.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from ptxbench.evaluate.devices import list_gpus
from ptxbench.evaluate.gpu import GpuEvaluator
from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
from ptxbench.schema import Candidate, Target, Verdict
from ptxbench.schema.trace import definition_of
from ptxbench.schema.verdict import StageName
from ptxbench.settings import Settings
from ptxbench.suite import load_problem, pick_workload


def distinct_sources(kernel: Path, repeat: int) -> list[str]:
    """The kernel's text `repeat` times, each with another comment at its end."""
    text = kernel.read_text()
    return [f"{text}\n// variant {time.time_ns()} {index}\n" for index in range(repeat)]


def measure_ours(kernel: Path, task: str, repeat: int, full: bool) -> list[Verdict]:
    """Verdicts of `repeat` new sources from one warm evaluator."""
    settings = Settings.load()
    problem = load_problem(task)
    workload = pick_workload(problem, None)
    skip: frozenset[StageName] = frozenset() if full else frozenset({StageName.SANITIZE, StageName.PROFILE})
    request = EvaluationRequest(target=Target.SM_90A, skip=skip, settings=settings)
    verdicts = []
    with GpuEvaluator.start(list_gpus(settings)[0], settings) as gpu:
        for source in distinct_sources(kernel, repeat):
            candidate = Candidate.from_source(source, name=kernel.stem)
            verdicts.append(evaluate(candidate, problem, workload, request, gpu))
    return verdicts


def held_for_check_and_time(row: dict[str, float]) -> float:
    """Seconds of GPU hold for what the original does too; checking other sizes (`neighbours`) comes on top."""
    return sum(seconds for phase, seconds in row.items() if phase != "neighbours")


def print_ours(verdicts: list[Verdict]) -> None:
    """One line per verdict with the split of the held time, then the medians."""
    rows = [verdict.stages.time.held for verdict in verdicts]
    phases = list(dict.fromkeys(phase for row in rows for phase in row))
    print("ours, seconds of GPU hold by phase")
    for verdict, row in zip(verdicts, rows, strict=True):
        parts = "  ".join(f"{phase} {row.get(phase, 0.0):.3f}" for phase in phases)
        extra = f"  sanitize {verdict.stages.sanitize.seconds:.2f}  profile {verdict.stages.profile.seconds:.2f}"
        print(
            f"  total {held_for_check_and_time(row):.3f}  {parts}{extra}  "
            f"{verdict.status.state.value} {verdict.layers.speed.value}"
        )
    medians = {phase: statistics.median(row.get(phase, 0.0) for row in rows) for phase in phases}
    total = statistics.median(held_for_check_and_time(row) for row in rows)
    worst = max(medians, key=lambda phase: medians[phase])
    print(f"  median total {total:.3f} s; bounded by {worst} ({medians[worst]:.3f} s)")


def measure_flashinfer_bench(kernel: Path, task: str, repeat: int) -> list[tuple[float, str, float]]:
    """Seconds, status and speedup of each new source under flashinfer-bench's persistent runner, baseline excluded."""
    from flashinfer_bench.bench.config import BenchmarkConfig  # noqa: PLC0415
    from flashinfer_bench.bench.runner import PersistentRunner  # noqa: PLC0415
    from flashinfer_bench.data import Definition, Solution, Workload  # noqa: PLC0415

    problem = load_problem(task)
    paper = pick_workload(problem, None)
    definition = Definition.model_validate_json(definition_of(problem).model_dump_json(exclude_unset=True))
    names = [tensor.name for tensor in problem.inputs]
    workload = Workload(axes=dict(paper.axes), inputs={name: {"type": "random"} for name in names}, uuid=paper.uuid)
    config = BenchmarkConfig(warmup_runs=10, iterations=50, num_trials=3, timeout_seconds=300)
    rows: list[tuple[float, str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        runner = PersistentRunner(folder)
        for index, source in enumerate(distinct_sources(kernel, repeat + 1)):
            solution: dict[str, Any] = {
                "name": f"candidate_{index}",
                "definition": problem.name,
                "author": "ptxbench",
                "spec": {"language": "cuda", "target_hardware": ["cuda"], "entry_point": "kernel.cu::run"},
                "sources": [{"path": "kernel.cu", "content": source}],
            }
            started = time.perf_counter()
            results = runner.run_workload(definition, workload, [Solution(**solution)], config, Path(folder))
            seconds = time.perf_counter() - started
            result = next(iter(results.values()))
            speedup = result.performance.speedup_factor if result.performance else 0.0
            rows.append((seconds, str(result.status.value), speedup))
        runner.close()
    return rows[1:]  # the first one also starts the worker and measures the baseline


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernel", type=Path, default=Path("reference/gemm_n7168_k5120/sm_90a.cu"))
    parser.add_argument("--task", default="gemm_n7168_k5120")
    parser.add_argument("--repeat", type=int, default=6)
    parser.add_argument("--full", action="store_true", help="run memcheck and ncu too")
    parser.add_argument("--flashinfer-bench", action="store_true", help="run its persistent runner beside ours")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    verdicts = measure_ours(arguments.kernel, arguments.task, arguments.repeat, arguments.full)
    print_ours(verdicts)
    document: dict[str, Any] = {"ours": [verdict.stages.time.held for verdict in verdicts]}
    if arguments.flashinfer_bench:
        rows = measure_flashinfer_bench(arguments.kernel, arguments.task, arguments.repeat)
        document["flashinfer_bench"] = rows
        print("flashinfer-bench's persistent runner, seconds per new source (it compiles inside)")
        for seconds, status, speedup in rows:
            print(f"  total {seconds:.3f}  {status} {speedup:.3f}")
        theirs = statistics.median(seconds for seconds, _, _ in rows)
        ours = statistics.median(held_for_check_and_time(row) for row in document["ours"])
        print(f"  median {theirs:.3f} s; ours holds the GPU {theirs / ours:.1f}x shorter")
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
