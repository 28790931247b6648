# ruff: noqa: E402  (what needs torch is imported once it is known to be there)
"""The judge on a real GPU: libraries against oracles, an honest candidate from start to end, a hang, the budget."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ptxbench.schema import Candidate, Target
from ptxbench.schema.problem import Role
from ptxbench.schema.stages import Outcome
from ptxbench.settings import Settings
from ptxbench.suite import load_problem, pick_workload, problem_names
from ptxbench.toolchain.build import build
from ptxbench.toolchain.elf import cubins
from ptxbench.toolchain.toolkit import find_toolkit

torch = pytest.importorskip("torch", reason="the judge needs torch, which is an extra")
if not torch.cuda.is_available():
    pytest.skip("torch sees no CUDA device here", allow_module_level=True)

from ptxbench.evaluate.child import oracle
from ptxbench.evaluate.child.gpu_desk import GpuDesk, hello
from ptxbench.evaluate.child.judge import warm_up
from ptxbench.evaluate.child.measuring import measure
from ptxbench.evaluate.child.preparing import Baselines, draw_workload, prepare
from ptxbench.evaluate.child.protocol import CandidateFiles, Measure
from ptxbench.evaluate.child.tensors import TORCH
from ptxbench.evaluate.outputs import check_output

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
GEMM = "gemm_n7168_k5120"


@pytest.fixture(scope="module")
def desk() -> Iterator[GpuDesk]:
    made = GpuDesk(0, Settings.load())
    warm_up(made)
    yield made
    torch.cuda.synchronize()


def test_the_judge_says_what_it_found(desk: GpuDesk) -> None:
    greeting = hello(desk)
    assert greeting.gpu_uuid.startswith("GPU-")
    assert greeting.driver
    assert greeting.sm_count > 50
    assert 1e12 < greeting.memory_bandwidth < 2e13
    assert {tool.name for tool in greeting.baselines} >= {"cublas", "cudnn"}
    assert {"torch", "nvml", "cupti"} <= {tool.name for tool in greeting.tools}


@pytest.mark.parametrize("role", ["paper", "neighbour"])
@pytest.mark.parametrize("name", problem_names())
def test_the_library_itself_passes_both_rules(desk: GpuDesk, name: str, role: str) -> None:
    problem = load_problem(name)
    workload = pick_workload(problem, role)
    draws = draw_workload(problem, workload, ("normal", "spiky"), desk.device.generator(11))
    baselines = Baselines.find(problem).usable_on(draws[0])
    if baselines.reference is None:
        pytest.skip("; ".join(reason.message for reason in baselines.missing))
    for prepared in prepare(baselines, draws):
        got = baselines.reference.bind(problem, prepared.draw.inputs)()
        for key, held in prepared.expected.items():
            check = check_output(TORCH, key, got[key].contiguous(), held)
            print(name, role, prepared.draw.recipe, key, check.block)
            assert check.published, check
            assert check.contract, check


@pytest.mark.parametrize("name", [GEMM, "mha_with_lse_d128_causal", "mha_bwd_d128"])
def test_fp8_inputs_fail_the_contract(desk: GpuDesk, name: str) -> None:
    problem = load_problem(name)
    draws = draw_workload(problem, pick_workload(problem, "neighbour"), ("normal",), desk.device.generator(3))
    (prepared,) = prepare(Baselines.find(problem).usable_on(draws[0]), draws)
    rough = {
        key: value.to(torch.float8_e4m3fn).to(value.dtype) if value.dtype is torch.bfloat16 else value
        for key, value in draws[0].inputs.items()
    }
    got = oracle.oracle(problem, rough)
    for spec in problem.outputs:
        if spec.name != "LSE":
            result = got[spec.name].to(torch.bfloat16)
            assert check_output(TORCH, spec.name, result, prepared.expected[spec.name]).contract is False


@pytest.mark.parametrize("name", ["mha_with_lse_d128", "mha_bwd_d128"])
def test_the_oracle_of_the_paper_size_keeps_to_its_memory(desk: GpuDesk, name: str) -> None:
    problem = load_problem(name)
    (draw,) = draw_workload(problem, pick_workload(problem, "paper"), ("normal",), desk.device.generator(1))
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    exact = oracle.oracle(problem, draw.inputs)
    kept = sum(tensor.nbytes for tensor in exact.values())
    assert torch.cuda.max_memory_allocated() - before - kept < 4 * 2**30


def files(path: Path, settings: Settings) -> CandidateFiles:
    built = build(Candidate.from_source(path.read_text()), Target.SM_90A, settings)
    assert built.library is not None, built.stage.log
    found = cubins(built.library, find_toolkit(settings))
    return CandidateFiles(
        library=built.library,
        symbol="run",
        kernels=tuple(name for cubin in found for name in cubin.kernels),
        cubin_hashes=tuple(cubin.sha256 for cubin in found),
    )


def request(path: Path, **update: Any) -> Measure:
    problem = load_problem(GEMM)
    fields: dict[str, Any] = {
        "problem": problem,
        "workload": pick_workload(problem, "paper"),
        "seed": 42,
        "candidate": files(path, Settings.load()),
        "time": True,
        "deadline": 5.0,
    }
    return Measure(**(fields | update))


@pytest.mark.skipif(
    torch.cuda.get_device_capability() != (9, 0), reason="the reference kernel runs on compute capability 9.0 alone"
)
def test_the_reference_gemm_is_right_and_its_time_is_believed_within_the_budget(desk: GpuDesk) -> None:
    path = ROOT / "reference" / GEMM / "sm_90a.cu"
    measured: Any = None
    for _ in range(2):  # the second candidate meets a warm judge
        measured = measure(desk, request(path))
    print(measured.held, measured.time.witnesses, measured.time.baselines)
    assert measured.check.outcome is Outcome.PASSED, measured.check.reason
    assert measured.check.contract.state == "yes", measured.check.contract.reason
    assert measured.time.outcome is Outcome.PASSED, measured.time.reason
    assert measured.time.outputs_checked == 25
    assert 0.3 < measured.time.baselines[0].speedup < 1.5
    assert sum(measured.held.values()) <= 0.6


@pytest.mark.skipif(
    torch.cuda.get_device_capability() != (9, 0), reason="the reference kernel runs on compute capability 9.0 alone"
)
def test_after_a_hang_the_next_candidate_is_judged_as_ever(desk: GpuDesk) -> None:
    hung = measure(desk, request(ROOT / "tests" / "kernels" / "wrong" / "hang.cu", deadline=2.0))
    assert hung.check.reason is not None
    assert hung.check.reason.code == "hang"
    assert hung.fatal == ""
    neighbours = tuple(w for w in load_problem(GEMM).workloads if w.role is Role.NEIGHBOUR)
    path = ROOT / "reference" / GEMM / "sm_90a.cu"
    measured = measure(desk, request(path, time=False, neighbours=neighbours))
    assert measured.check.outcome is Outcome.PASSED, measured.check.reason
    assert measured.check.generalises.state == "yes", measured.check.generalises.reason
