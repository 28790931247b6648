"""Records on a GPU what the evaluator says of every kernel of the repository; the tests compare without a GPU.

    python tests/gpu/record.py --out tests/data/gpu [--only 'wrong.*'] [--repeat 10]

Writes one verdict per kernel to OUT/verdicts/, and OUT/repeat.json with the speedups of `--repeat` evaluations of the
reference GEMM. A kernel marked `again` in tests/kernels/expected.toml is judged once more without the policy stage.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ptxbench.errors import PtxbenchError
from ptxbench.evaluate.devices import list_gpus
from ptxbench.evaluate.gpu import GpuEvaluator
from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
from ptxbench.evaluate.statistics import coefficient_of_variation
from ptxbench.schema import Candidate, Target, Verdict
from ptxbench.schema.verdict import StageName
from ptxbench.settings import Settings
from ptxbench.suite import load_problem, pick_workload

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "tests" / "kernels"
GEMM = "gemm_n7168_k5120"


def source_path(group: str, name: str) -> Path:
    """Where a kernel of expected.toml lies."""
    return ROOT / "reference" / name / "sm_90a.cu" if group == "reference" else KERNELS / group / f"{name}.cu"


def judge(gpu: GpuEvaluator, path: Path, task: str, skip: frozenset[StageName]) -> Verdict:
    """The verdict on one file at its problem's paper workload."""
    problem = load_problem(task)
    request = EvaluationRequest(target=Target.SM_90A, skip=skip, settings=gpu.settings)
    candidate = Candidate.from_source(path.read_text(), name=f"{path.parent.name}/{path.stem}")
    return evaluate(candidate, problem, pick_workload(problem, None), request, gpu)


def write(folder: Path, name: str, verdict: Verdict) -> None:
    """Store a verdict; the compiler's log is left out, for it is long and the same everywhere."""
    build = verdict.stages.build.model_copy(update={"log": "", "command": ()})
    kept = verdict.model_copy(update={"stages": verdict.stages.model_copy(update={"build": build})})
    (folder / f"{name}.json").write_text(kept.model_dump_json(indent=1) + "\n")


def line(name: str, verdict: Verdict, seconds: float) -> str:
    """One line for the log."""
    status, layers = verdict.status, verdict.layers
    reason = f"{status.stage} {status.reason.code if status.reason else ''}" if status.stage else ""
    work, speed = layers.target.work_share, layers.speed
    return (
        f"{seconds:6.1f}s {name:40} {status.state.value:12} {reason:28} static {layers.target.static.state} "
        f"executed {layers.target.executed.state} work {work.value} speed {speed.value} {speed.interval}"
        + (f"\n        {status.reason.message[:300]}" if status.reason else "")
    )


def record_all(gpu: GpuEvaluator, folder: Path, only: list[str]) -> None:
    """Judge every kernel that matches one of the patterns."""
    expected: dict[str, dict[str, dict[str, Any]]] = tomllib.loads((KERNELS / "expected.toml").read_text())
    for group, entries in expected.items():
        for name, entry in entries.items():
            if not any(fnmatchcase(f"{group}.{name}", pattern) for pattern in only):
                continue
            runs = [(f"{group}-{name}", frozenset[StageName]())]
            if entry.get("again"):
                runs.append((f"{group}-{name}-without-policy", frozenset({StageName.POLICY})))
            for label, skip in runs:
                started = time.time()
                try:
                    verdict = judge(gpu, source_path(group, name), entry.get("task", GEMM), skip)
                except PtxbenchError as error:
                    print(f"{label}: {type(error).__name__}: {error}", flush=True)
                    continue
                write(folder, label, verdict)
                print(line(label, verdict, time.time() - started), flush=True)


def record_repeats(gpu: GpuEvaluator, out: Path, repeat: int) -> None:
    """The speedup of one kernel, evaluated again and again."""
    skip = frozenset({StageName.SANITIZE, StageName.PROFILE})
    verdicts = [judge(gpu, source_path("reference", GEMM), GEMM, skip) for _ in range(repeat)]
    speedups = [verdict.layers.speed.value for verdict in verdicts]
    clocks = [[state.model_dump() for state in verdict.stages.time.states] for verdict in verdicts]
    known = [value for value in speedups if value is not None]
    spread = coefficient_of_variation(known) if known else None
    document = {"speedups": speedups, "coefficient_of_variation": spread, "states": clocks}
    (out / "repeat.json").write_text(json.dumps(document, indent=1) + "\n")
    print(f"{repeat} evaluations: speedups {speedups}, CoV {spread}", flush=True)


def main() -> int:
    """Parse the arguments and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "data" / "gpu")
    parser.add_argument("--only", nargs="*", default=["*"], help="patterns of GROUP.NAME")
    parser.add_argument("--repeat", type=int, default=0)
    arguments = parser.parse_args()
    verdicts = arguments.out / "verdicts"
    verdicts.mkdir(parents=True, exist_ok=True)
    settings = Settings.load()
    gpus = list_gpus(settings)
    if not gpus:
        print("error: no GPU on this machine\nremedy: run this where nvidia-smi lists a Hopper GPU", file=sys.stderr)
        return 2
    with GpuEvaluator.start(gpus[0], settings) as gpu:
        record_all(gpu, verdicts, arguments.only)
        if arguments.repeat:
            record_repeats(gpu, arguments.out, arguments.repeat)
    return 0


if __name__ == "__main__":
    sys.exit(main())
