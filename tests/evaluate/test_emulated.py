"""Verdicts made on the emulator: the small GEMM of the demo, right and broken, and hostile host code around it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.evaluate.emulating import GEMM, KERNELS, ROOT, changed, judged, small_product, verdict_on

from ptxbench.emulator.apart.running import Limits
from ptxbench.emulator.host import memory as host_memory
from ptxbench.emulator.launch import Executed
from ptxbench.emulator.machine import memory as device_memory
from ptxbench.evaluate.devices import choose_device
from ptxbench.evaluate.emulated_profile import family_of, operations
from ptxbench.evaluate.pipeline import EvaluationRequest, evaluate
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Problem, Role
from ptxbench.schema.stages import Outcome
from ptxbench.schema.values import Target
from ptxbench.schema.verdict import State, Verdict
from ptxbench.suite import load_problem, make_gemm, pick_workload, required_flops, write_problem

EXPECTED: dict[str, dict[str, dict[str, Any]]] = tomllib.loads((KERNELS / "expected.toml").read_text())
LAUNCH = "  TVM_FFI_ICHECK(cudaGetLastError()"


@pytest.fixture(scope="module")
def problem() -> Problem:
    """A small product."""
    return small_product()


@pytest.fixture(scope="module")
def right() -> Verdict:
    return verdict_on("right")


def test_a_right_kernel_passes_without_a_time(right: Verdict) -> None:
    assert right.status.state is State.PASSED
    assert right.environment.device == "emulator"
    assert right.stages.check.published_reference == "oracle"
    assert right.stages.time.outcome is Outcome.UNAVAILABLE
    assert right.layers.speed.reason == "the emulator measures no time"
    assert {"processes of their own", "memory and time limits"} <= set(right.environment.protections)
    missing = {each.name for each in right.environment.missing_protections}
    assert ("landlock" in right.environment.protections) != ("landlock" in missing)


def test_counts_and_work_shares_are_exact(right: Verdict, problem: Problem) -> None:
    work = right.stages.profile.work
    assert work is not None
    assert work.target_mma == 1.0
    (kernel,) = right.stages.profile.kernels
    assert kernel.target_mma_flops == required_flops(problem, pick_workload(problem, "small"))
    counted = {item.family: item.warp_instructions for item in kernel.families}
    # 2 CTAs, 8 slices of K: 2 warpgroups of 4 warps with 4 wgmma each; 2 copies of 128 x 64 bf16.
    assert counted == {"GMMA": 2 * 8 * 8 * 4, "TMA": 2 * 8 * 2}
    assert kernel.tma_bytes == 2 * 8 * 2 * 128 * 64 * 2


def test_the_record_says_how_much_each_schedule_covered(right: Verdict) -> None:
    (run,) = right.stages.sanitize.runs
    assert {each.schedule: each.clusters for each in run.schedules}["late"] == 2
    assert {each.schedule for each in run.schedules} == {"late", "eager", "seed 1", "seed 2"}


def test_an_output_that_needs_wgmma_and_tma_is_not_decorated(right: Verdict) -> None:
    assert {each.family: each.necessity.state for each in right.stages.profile.needs} == {"GMMA": "yes", "TMA": "yes"}
    assert right.layers.target.necessity.state == "yes"
    assert right.layers.target.necessity.reason is None


@pytest.mark.parametrize("task", ["", "mha_with_lse_d128"])
def test_a_thorough_verdict_covers_all_draws_sizes_and_schedules(task: str, problem: Problem) -> None:
    suite = load_problem(task) if task else problem
    source = (ROOT / "reference" / task / "sm_90a.cu").read_text() if task else GEMM
    workloads = tuple(
        each.model_copy(update={"uuid": f"{place}", "axes": {**each.axes, **({"H": 1} if task else {})}})
        for place, each in enumerate(suite.workloads)
        if each.role is Role.SMALL
    )[:2]
    suite = suite.model_copy(update={"workloads": workloads})
    request = EvaluationRequest(device="emulator", thoroughness="thorough")
    verdict = evaluate(Candidate.from_source(source), suite, workloads[0], request)
    assert verdict.status.state is State.PASSED, verdict.status
    (run,) = verdict.stages.sanitize.runs
    assert {each.schedule for each in run.schedules} == {"late", "eager", "seed 1", "seed 2"}
    assert all(each.clusters == each.of for each in run.schedules)
    assert [each.recipe for each in verdict.stages.check.draws[:3]] == ["normal", "normal", "spiky"]
    assert len(verdict.stages.check.draws) == 3 + len(workloads) - 1
    assert verdict.stages.check.generalises.state == "yes"
    assert all(each.necessity.state == "yes" for each in verdict.stages.profile.needs)


def test_a_deadlock_fails_the_check_and_names_the_wait() -> None:
    verdict = verdict_on("hang")
    assert verdict.status.state is State.FAILED
    assert verdict.stages.check.reason is not None
    assert verdict.stages.check.reason.code == "hang"
    finding = verdict.stages.sanitize.runs[0].findings[0]
    assert finding.kind == "deadlock"
    assert "128 tx-bytes outstanding" in finding.state[0]
    assert finding.line is not None


def test_a_race_fails_although_the_numbers_are_right() -> None:
    verdict = verdict_on("race")
    assert verdict.status.stage == "sanitize"
    assert verdict.stages.sanitize.runs[0].findings[0].kind == "overwrite-before-release"


@pytest.mark.parametrize(
    ("code", "statement"),
    [
        ("crashed", "  abort();\n"),
        ("crashed", "  *static_cast<char *>(C.data_ptr()) = 1;\n"),
        ("raised", '  TVM_FFI_ICHECK(m < 0) << "no";\n'),
    ],
)
def test_host_code_that_ends_badly_is_a_clean_result(code: str, statement: str) -> None:
    verdict = judged(changed(LAUNCH, statement + LAUNCH))
    assert verdict.status.state is State.FAILED
    assert verdict.status.reason is not None
    assert verdict.status.reason.code == code


def test_host_code_that_reads_results_runs_live() -> None:
    reads = "  uint32_t first = 0;\n  cudaMemcpy(&first, C.data_ptr(), 4, cudaMemcpyDeviceToHost);\n"
    check = '  TVM_FFI_ICHECK(first != 0xffffffffu) << "nothing was written";\n'
    verdict = judged(changed(LAUNCH, reads + check + LAUNCH))
    assert verdict.status.state is State.PASSED, verdict.status
    assert verdict.environment.host_code == "live"


def test_a_kernel_without_an_end_is_inconclusive_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXBENCH_DEVICE_TIMEOUT", "0.1")
    endless = 'expected = 2 * kBytes; for (unsigned i = 1; i; i += 2) asm volatile("" ::"r"(i));'
    verdict = judged(changed("expected = 2 * kBytes;", endless))
    assert (verdict.status.state, verdict.status.exit_code) == (State.INCONCLUSIVE, 3)
    assert verdict.status.reason is not None
    assert verdict.status.reason.code == "emulation_limit"
    assert "PTXBENCH_DEVICE_TIMEOUT" in verdict.status.reason.hint
    assert verdict.layers.correct_contract.state == "unavailable"


def test_a_candidate_that_fills_memory_is_inconclusive_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "of_this_machine", classmethod(lambda cls: Limits(400 << 20)))
    fills = "  void *p;\n  cudaMalloc(&p, 1 << 30);\n  cudaMemsetAsync(p, 1, 1 << 30, 0);\n"
    verdict = judged(changed(LAUNCH, fills + LAUNCH))
    assert (verdict.status.state, verdict.status.exit_code) == (State.INCONCLUSIVE, 3)
    assert verdict.status.reason is not None
    assert verdict.status.reason.code == "emulation_limit"
    assert "0.391 GiB of memory" in verdict.status.reason.message


def test_auto_takes_the_emulator_where_no_gpu_fits_and_says_why() -> None:
    choice = choose_device("auto", Target.SM_90A, ())
    assert choice.name == "emulator"
    assert "this machine has no GPU" in choice.reason


def test_what_is_not_there_yet_is_named_with_its_line_and_decides_nothing(tmp_path: Path) -> None:
    suite = load_problem(write_problem(make_gemm(128, 128), tmp_path))
    source = (KERNELS / "simple" / "gemm_plain.cu").read_text()
    begin = source.index("{", source.index("(", source.index("__global__"))) + 1
    video = 'asm volatile("{.reg .b32 a; vadd.s32.s32.s32 a, %0, %0;}" ::"r"(threadIdx.x));'
    candidate = Candidate.from_source(source[:begin] + video + source[begin:])
    request = EvaluationRequest(device="auto", target=Target.SM_100A)
    verdict = evaluate(candidate, suite, pick_workload(suite, "small"), request)
    assert verdict.environment.device == "emulator"
    assert (verdict.status.state, verdict.status.exit_code) == (State.INCONCLUSIVE, 3)
    assert verdict.status.reason is not None
    assert verdict.status.reason.code == "unsupported"
    assert re.search(r"unsupported: vadd\.s32\.s32\.s32 at PTX line \d+", verdict.status.reason.message)


def test_addresses_mean_the_same_to_host_and_kernels() -> None:
    assert host_memory.BASE == device_memory.BASE


@pytest.mark.parametrize(
    ("name", "family", "flops"),
    [
        ("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", "GMMA", 2.0 * 64 * 256 * 16),
        ("wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16", "GMMA", 64.0 * 8 * 32),
        ("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", "OTHER_MMA", 4 * 2.0 * 16 * 8 * 16),
    ],
)
def test_operations_follow_from_the_shape(name: str, family: str, flops: float) -> None:
    assert family_of(name, Target.SM_90A) == family
    assert operations(Executed(1, name, 4, 128), family) == flops


@pytest.mark.parametrize(
    "name", ["wgmma.fence.sync.aligned", "cp.async.bulk.prefetch.tensor.2d.L2.global", "cp.async.bulk.commit_group"]
)
def test_what_only_belongs_to_the_protocol_is_of_no_family(name: str) -> None:
    assert family_of(name, Target.SM_90A) is None


def verdict_of(name: str, task: str | None) -> Verdict:
    """The verdict on a decorated kernel: a GEMM, or attention on a size of its own."""
    if task is None:
        return verdict_on(name)
    suite = load_problem(task)
    workload = pick_workload(suite, "small").model_copy(update={"axes": {"B": 1, "H": 1, "S": 128}})
    source = (KERNELS / "decorative" / f"{name}.cu").read_text()
    return evaluate(Candidate.from_source(source), suite, workload, EvaluationRequest(device="emulator"))


@pytest.mark.parametrize("name", EXPECTED["decorative"])
def test_a_family_that_is_decoration_is_named_and_a_needed_one_beside_it_too(name: str) -> None:
    entry = EXPECTED["decorative"][name]
    verdict = verdict_of(name, entry.get("task"))
    assert verdict.status.state == entry["state"]
    assert verdict.layers.target.executed.state == entry["executed"]
    assert {each.family: each.necessity.state for each in verdict.stages.profile.needs} == entry["necessity"]
    assert verdict.layers.target.necessity.state == "no"
    words = {"GMMA": "wgmma", "TMA": "TMA"}
    for family, needed in entry["necessity"].items():
        said = f"{words[family]} is {'needed' if needed == 'yes' else 'decorative'}"
        assert said in (verdict.layers.target.necessity.reason or "")
