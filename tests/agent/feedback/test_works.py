"""The feedback works: a model that mends what the text names reaches a right kernel; without the text it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.agent.feedback.mending import mend

from ptxbench.agent.feedback import TurnContext, render_feedback
from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem
from ptxbench.schema.verdict import StageName, State, Verdict
from ptxbench.suite import load_problem, make_gemm, pick_workload, write_problem

RIGHT = (Path(__file__).parents[3] / "reference" / "demo" / "gemm.cu").read_text()
TURNS = 12

PLAIN = """
extern "C" __global__ void plain(const uint16_t* a, const uint16_t* b, uint16_t* c, int columns, int depth) {
  const int row = blockIdx.x, column = threadIdx.x;
  float sum = 0;
  for (int k = 0; k < depth; ++k) {
    sum += __uint_as_float((uint32_t)a[row * depth + k] << 16) * __uint_as_float((uint32_t)b[column * depth + k] << 16);
  }
  uint16_t rounded;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(rounded) : "f"(sum));
  c[row * columns + column] = rounded;
}

constexpr bool kTensorCores = true;

void run("""
"""A kernel without the target's instructions, and the switch that launches it instead."""

PLAIN_LAUNCH = """  if constexpr (!kTensorCores) {
    plain<<<m, n, 0, stream>>>(static_cast<uint16_t*>(A.data_ptr()), static_cast<uint16_t*>(B.data_ptr()),
                               static_cast<uint16_t*>(C.data_ptr()), n, k);
    return;
  }
  cudaFuncSetAttribute("""

WAIT = '    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");\n'
RELEASE = "    if (threadIdx.x % 128 == 0) barrier_arrive(ring.empty(stage));\n"
FENCE = '    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'

DEFECTS = {
    "forbidden include": ("<cstdint>\n\nnamespace", "<cstdint>\n#include <cublas_v2.h>\n\nnamespace"),
    "compile error": ("blockIdx.x * kTile + threadIdx.x / 32", "blockIdx.x * kTyle + threadIdx.x / 32"),
    "target missing": ("kTensorCores = true", "kTensorCores = false"),
    "no barrier behind the initialisation": ("  }\n  __syncthreads();\n", "  }\n"),
    "wrong byte count": (
        "barrier_expect(ring.full(stage), expected);",
        "barrier_expect(ring.full(stage), expected + (k == slices - 1) * 128);",
    ),
    "wrong parity": ("kStages), k / kStages & 1);", "kStages), (k / kStages & 1) ^ 1);"),
    "wrong swizzle": ("(uint64_t)1 << 62", "(uint64_t)2 << 62"),
    "early release": (WAIT + RELEASE, RELEASE + WAIT),
    "missing fence": (FENCE, ""),
    "out of bounds": ("if (y < rows && x < columns) c[", "c["),
    "skipped step along K in one tile": (
        "threadIdx.x / 128;\n  for (int k = 0; k < slices; ++k)",
        "threadIdx.x / 128;\n  for (int k = 0; k < slices - group; ++k)",
    ),
}
"""What is right, and what stands there instead."""


def changed(source: str, before: str, after: str) -> str:
    assert source.count(before) == 1, before
    return source.replace(before, after)


def broken() -> str:
    """The demo's kernel with all defects at once, and a plain one that is launched instead of it."""
    source = changed(changed(RIGHT, "\nvoid run(", PLAIN), "  cudaFuncSetAttribute(", PLAIN_LAUNCH)
    for right, wrong in DEFECTS.values():
        source = changed(source, right, wrong)
    return source


def left(source: str) -> set[str]:
    """The defects that a source still has."""
    return {name for name, (right, _) in DEFECTS.items() if right not in source}


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """C[M, 120] = A[M, 256] B[120, 256]^T: one tile, ragged."""
    return load_problem(write_problem(make_gemm(120, 256), tmp_path_factory.mktemp("problem")))


def judged(source: str, problem: Problem) -> Verdict:
    request = EvaluationRequest(device="emulator", until=StageName.PROFILE)
    return evaluate(Candidate.from_source(source), problem, pick_workload(problem, "small"), request)


def reached(verdict: Verdict) -> bool:
    """Whether a kernel is right, and its target's instructions executed."""
    return verdict.status.state is State.PASSED and verdict.layers.target.executed.state == "yes"


def test_a_model_that_mends_what_the_text_names_reaches_a_right_kernel(problem: Problem) -> None:
    source = broken()
    assert left(source) == set(DEFECTS)
    assert len(DEFECTS) >= 8
    for index in range(TURNS):
        verdict = judged(source, problem)
        if reached(verdict):
            break
        text = render_feedback(verdict, TurnContext(Candidate.from_source(source), index, TURNS))
        following = mend(source, text)
        assert left(following) < left(source), text
        source = following
    assert reached(verdict)
    assert not left(source)


def test_without_the_text_it_does_not(problem: Problem) -> None:
    source = broken()
    for _ in range(TURNS):
        assert not reached(judged(source, problem))
        source = mend(source, "")
    assert left(source) == set(DEFECTS)


def test_the_status_alone_is_not_enough() -> None:
    for status in ("failed at check (hang)", "failed at check (wrong_numbers)", "failed at sanitize (emulator_error)"):
        assert mend(broken(), f"Turn 1 of 8: the kernel {status}.") == broken()
