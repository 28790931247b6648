"""How fast the reference kernels are on the GPU at hand, as one table; it judges them as `ptxbench eval` does.

    python benchmarks/reference.py                                   # judge them on the first GPU
    python benchmarks/reference.py --stored tests/data/gpu/verdicts  # print what was recorded, with no GPU

Columns: the candidate's median and TFLOP/s by the required operations, the speedup over each library with its 95 %
interval, the share of the roofline, and the target family's executed operations over the required ones.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from ptxbench.errors import PtxbenchError
from ptxbench.evaluate.devices import list_gpus
from ptxbench.evaluate.gpu import GpuEvaluator
from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
from ptxbench.schema import Candidate, Target, Verdict
from ptxbench.schema.stages import BaselineTime
from ptxbench.settings import Settings
from ptxbench.suite import load_problem, pick_workload, problem_names

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = {
    "gemm_n7168_k5120": 0.976,
    "mha_with_lse_d128": 0.839,
    "mha_with_lse_d128_causal": 0.806,
    "mha_bwd_d128": 0.607,
    "mha_bwd_d128_causal": 0.639,
}
"""Best result of a model over the first library, on an H100 (arXiv 2608.17379)."""


def judged() -> Iterator[Verdict]:
    """The verdict on each reference kernel at its problem's paper workload.

    Raises:
        PtxbenchError: There is no GPU, or it fails.
    """
    settings = Settings.load()
    gpus = list_gpus(settings)
    if not gpus:
        raise PtxbenchError("There is no GPU.", "Run this on a Hopper GPU, or print stored verdicts with --stored.")
    with GpuEvaluator.start(gpus[0], settings) as gpu:
        for name in problem_names():
            problem = load_problem(name)
            source = (ROOT / "reference" / name / "sm_90a.cu").read_text()
            candidate = Candidate.from_source(source, name=f"{name}/sm_90a")
            request = EvaluationRequest(target=Target.SM_90A, settings=settings)
            yield evaluate(candidate, problem, pick_workload(problem, None), request, gpu)


def stored(folder: Path) -> Iterator[Verdict]:
    """The recorded verdicts.

    Raises:
        PtxbenchError: One is not there.
    """
    for name in problem_names():
        path = folder / f"reference-{name}.json"
        if not path.is_file():
            raise PtxbenchError(f"{path} is missing.", "Record it with tests/gpu/record.py.")
        yield Verdict.model_validate_json(path.read_text())


def against(baseline: BaselineTime) -> str:
    """One library's column, e.g. `1.019 [1.018, 1.021] x cublas 13.1.0`."""
    low, high = baseline.interval
    return f"{baseline.speedup:.3f} [{low:.3f}, {high:.3f}] x {baseline.name} {baseline.version}"


def row(verdict: Verdict) -> str:
    """One line of the table."""
    time, state = verdict.stages.time, verdict.status.state.value
    if time.candidate is None or time.tflops is None:
        return f"| {verdict.problem} | {state} | | | | | |"
    speed = "; ".join(against(baseline) for baseline in time.baselines)
    roofline = "" if time.roofline_share is None else f"{time.roofline_share:.2f}"
    work = verdict.layers.target.work_share.value
    return (
        f"| {verdict.problem} | {time.candidate.median:.3f} | {time.tflops:.0f} | {speed} | {roofline} "
        f"| {'' if work is None else f'{work:.2f}'} | {PUBLISHED.get(verdict.problem, '')} |"
    )


def print_table(verdicts: Iterable[Verdict]) -> bool:
    """Print it in Markdown; whether all passed."""
    print("| problem | ms | TFLOP/s | speedup [95 %] | roofline | work share | best published model (H100) |")
    print("|---|---|---|---|---|---|---|")
    last, passed = None, True
    for verdict in verdicts:
        print(row(verdict), flush=True)
        last, passed = verdict, passed and verdict.status.state.value == "passed"
    if last is not None:
        seen, day = last.environment, datetime.fromtimestamp(last.created, UTC).date()
        print(f"\n{seen.device_name}, driver {seen.driver}, {day}, host code {seen.host_code}")
    return passed


def main() -> int:
    """Parse the arguments and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stored", type=Path, help="folder of recorded verdicts")
    arguments = parser.parse_args()
    try:
        return 0 if print_table(stored(arguments.stored) if arguments.stored else judged()) else 1
    except PtxbenchError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
