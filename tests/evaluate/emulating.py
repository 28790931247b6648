"""Verdicts of the emulator that several tests read, each made once: the demo's small GEMM, right and broken."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem
from ptxbench.schema.verdict import Verdict
from ptxbench.suite import load_problem, make_gemm, pick_workload, write_problem

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "tests" / "kernels"
GEMM = (ROOT / "reference" / "demo" / "gemm.cu").read_text()

_WAIT = '    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");\n'
_RELEASE = "    if (threadIdx.x % 128 == 0) barrier_arrive(ring.empty(stage));\n"
_CHANGES = {
    "right": ("", ""),
    "hang": ("expected = 2 * kBytes;", "expected = 2 * kBytes + 128;"),
    "race": (_WAIT + _RELEASE, _RELEASE + _WAIT),
}


@functools.cache
def small_product() -> Problem:
    """C[M, 256] = A[M, 512] B[256, 512]^T."""
    with tempfile.TemporaryDirectory() as folder:
        return load_problem(write_problem(make_gemm(256, 512), Path(folder)))


def changed(before: str, after: str) -> str:
    """The demo's kernel with one text replaced."""
    assert not before or GEMM.count(before) == 1
    return GEMM.replace(before, after) if before else GEMM


def judged(source: str) -> Verdict:
    """The verdict on a GEMM."""
    problem = small_product()
    request = EvaluationRequest(device="emulator")
    return evaluate(Candidate.from_source(source), problem, pick_workload(problem, "small"), request)


@functools.cache
def verdict_on(name: str) -> Verdict:
    """The verdict on `right`, `hang`, `race`, or a GEMM of tests/kernels/decorative."""
    if name in _CHANGES:
        return judged(changed(*_CHANGES[name]))
    return judged((KERNELS / "decorative" / f"{name}.cu").read_text())
