"""What a profile says of a candidate: the published tag, the work share, and every way of not knowing."""

from __future__ import annotations

import stat
from collections.abc import Mapping
from pathlib import Path

import pytest

from ptxbench.evaluate.profiler import ncu_command, print_command, profile_stage, profile_unavailable, read_report
from ptxbench.sass import ncu
from ptxbench.schema.stages import Outcome
from ptxbench.schema.values import Target, Unavailable
from ptxbench.suite import compulsory_bytes, load_problem, required_flops

DATA = Path(__file__).parent.parent / "data" / "ncu"
SOURCE_PAGE, RAW_PAGE = (DATA / "source_page.csv").read_text(), (DATA / "raw_page.csv").read_text()
REAL = ncu.read_launches(SOURCE_PAGE, RAW_PAGE)

GEMM = load_problem("gemm_n7168_k5120")
SMALL = GEMM.workloads[-1]
REQUIRED = required_flops(GEMM, SMALL)
COMPULSORY = compulsory_bytes(GEMM, SMALL)
HGMMA, HGMMA_FLOPS = "HGMMA.64x256x16.F32.BF16", 2 * 64 * 256 * 16
COUNTER = "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32.sum"
ALL_HGMMA = 128 * REQUIRED // HGMMA_FLOPS
"""Predicate-true thread instructions of the HGMMA that do exactly the required work."""


def launch(
    name: str, lines: Mapping[str, int | None], counters: Mapping[str, float] | None = None, warps: int = 1
) -> ncu.Launch:
    rows = [ncu.ExecutedLine(16 * i, opcode, "", warps, true) for i, (opcode, true) in enumerate(lines.items())]
    return ncu.Launch(name, tuple(rows), counters or {})


def test_real_wgmma_gives_the_tag_and_its_exact_work() -> None:
    own = ("_Z11known_hgmmaPfi", "_Z11dead_branchPfi", "_Z4spinx")
    stage = profile_stage(REAL, own, GEMM, SMALL, Target.SM_90A)
    assert stage.outcome is Outcome.PASSED
    assert stage.executed.state == "yes"
    assert stage.work is not None
    assert stage.work.target_mma == pytest.approx(13107200 / REQUIRED)
    assert (stage.work.other_mma, stage.work.tma, stage.work.excessive) == (0, 0, False)
    assert [kernel.own for kernel in stage.kernels] == [True, True, True]
    assert stage.kernels[0].counter_mma_flops == stage.kernels[0].target_mma_flops == 13107200
    assert stage.kernels[2].gpu_time_ms == pytest.approx(1.001568)


def test_a_real_wgmma_in_a_branch_that_no_thread_takes_gives_no_tag() -> None:
    stage = profile_stage(REAL[1:2], ("_Z11dead_branchPfi",), GEMM, SMALL, Target.SM_90A)
    assert stage.executed.state == "no"
    assert "GMMA" in (stage.executed.reason or "")
    assert stage.outcome is Outcome.PASSED
    assert stage.work is not None
    assert stage.work.target_mma == 0


def test_a_predicated_off_instruction_gives_no_tag_however_often_warps_pass_it() -> None:
    stage = profile_stage([launch("k", {HGMMA: 0}, warps=1000)], ("k",), GEMM, SMALL, Target.SM_90A)
    assert stage.executed.state == "no"


def test_target_instructions_of_another_cubin_earn_nothing() -> None:
    foreign = launch("cutlass_kernel", {HGMMA: ALL_HGMMA}, {COUNTER: REQUIRED})
    stage = profile_stage([foreign, launch("k", {"FFMA": 32})], ("k",), GEMM, SMALL, Target.SM_90A)
    assert stage.executed.state == "no"
    assert stage.work is not None
    assert stage.work.target_mma == 0
    assert [kernel.own for kernel in stage.kernels] == [False, True]


def test_a_plain_c_name_is_not_taken_for_a_mangled_one() -> None:
    stage = profile_stage([launch("gemm", {HGMMA: 128})], ("_Z4gemmPf",), GEMM, SMALL, Target.SM_90A)
    assert not stage.kernels[0].own
    assert stage.executed.reason == "None of the candidate's own kernels ran."


def test_a_token_instruction_earns_the_tag_but_no_work_share() -> None:
    kernel = launch("k", {HGMMA: 128, "HMMA.16816.F32.BF16": 32 * REQUIRED // 4096}, {COUNTER: HGMMA_FLOPS})
    stage = profile_stage([kernel], ("k",), GEMM, SMALL, Target.SM_90A)
    assert stage.executed.state == "yes"
    assert stage.work is not None
    assert stage.work.target_mma < 0.01
    assert stage.work.other_mma == pytest.approx(1, rel=1e-6)
    assert not stage.work.excessive


def test_doing_the_work_twice_over_again_is_flagged() -> None:
    counters = {COUNTER: 3.0 * REQUIRED}
    stage = profile_stage([launch("k", {HGMMA: 3 * ALL_HGMMA}, counters)], ("k",), GEMM, SMALL, Target.SM_90A)
    assert stage.work is not None
    assert stage.work.excessive


def test_bytes_moved_by_tma_are_set_against_the_compulsory_ones() -> None:
    counters = {COUNTER: float(REQUIRED), ncu.TMA_BYTES: 1.5 * COMPULSORY, ncu.DRAM_READ: 5.0, ncu.DRAM_WRITTEN: 2.0}
    kernel = launch("k", {HGMMA: ALL_HGMMA, "UTMALDG.2D": 3}, counters)
    stage = profile_stage([kernel], ("k",), GEMM, SMALL, Target.SM_90A)
    assert stage.work is not None
    assert stage.work.tma == pytest.approx(1.5)
    assert stage.work.target_mma == pytest.approx(1, rel=1e-3)
    assert stage.kernels[0].dram_bytes == 7


def test_a_counter_that_was_not_read_is_not_zero() -> None:
    stage = profile_stage([launch("k", {HGMMA: ALL_HGMMA})], ("k",), GEMM, SMALL, Target.SM_90A)
    (kernel,) = stage.kernels
    assert (kernel.tma_bytes, kernel.dram_bytes, kernel.gpu_time_ms, kernel.counter_mma_flops) == (None,) * 4
    assert stage.work is not None
    assert stage.work.tma is None


def test_lines_without_executed_counts_decide_nothing() -> None:
    stage = profile_stage([launch("k", {HGMMA: None})], ("k",), GEMM, SMALL, Target.SM_90A)
    assert stage.outcome is Outcome.UNAVAILABLE
    assert stage.executed.state == "unavailable"
    assert stage.work is None


def test_two_readings_of_the_work_that_differ_are_not_believed() -> None:
    stage = profile_stage(
        [launch("k", {HGMMA: ALL_HGMMA}, {COUNTER: 0.5 * REQUIRED})], ("k",), GEMM, SMALL, Target.SM_90A
    )
    assert stage.outcome is Outcome.INCONCLUSIVE
    assert stage.reason is not None
    assert stage.reason.code == "counters_disagree"
    assert stage.work is None
    assert stage.executed.state == "yes"


def test_tcgen05_work_comes_from_its_counter_alone() -> None:
    counter = "sm__ops_path_tensor_op_utchmma_src_bf16_dst_fp32_sparsity_off.sum"
    counted = launch("k", {"UTCHMMA.2CTA": 4}, {counter: float(REQUIRED)})
    stage = profile_stage([counted], ("k",), GEMM, SMALL, Target.SM_100A)
    assert stage.work is not None
    assert stage.work.target_mma == 1
    for counters in ({}, {counter: 0.0}):
        stage = profile_stage([launch("k", {"UTCHMMA.2CTA": 4}, counters)], ("k",), GEMM, SMALL, Target.SM_100A)
        assert stage.executed.state == "yes"
        assert stage.work is None
        assert stage.outcome is Outcome.UNAVAILABLE


def test_a_tensor_memory_instruction_alone_gives_blackwells_tag() -> None:
    stage = profile_stage([launch("k", {"UTCATOMSWS.AND": 1})], ("k",), GEMM, SMALL, Target.SM_100A)
    assert stage.executed.state == "yes"
    assert profile_stage([launch("k", {"UTMALDG.2D": 1})], ("k",), GEMM, SMALL, Target.SM_100A).executed.state == "no"


@pytest.mark.parametrize("outputs_right", [False, None])
def test_a_profiled_call_with_other_results_proves_nothing(outputs_right: bool | None) -> None:
    own = ("_Z11known_hgmmaPfi",)
    stage = profile_stage(REAL[:1], own, GEMM, SMALL, Target.SM_90A, outputs_right)
    assert stage.outcome is Outcome.INCONCLUSIVE
    assert stage.executed.state == "unavailable"
    assert stage.work is None


def test_the_command_keeps_clocks_and_caches_and_the_profilers_messages_apart(tmp_path: Path) -> None:
    command = ncu_command(Path("/opt/ncu"), tmp_path / "r", tmp_path / "log", Target.SM_90A)
    assert command[0] == "/opt/ncu"
    options = dict(zip(command[1::2], command[2::2], strict=False))
    assert options["--clock-control"] == options["--cache-control"] == options["--set"] == "none"
    assert options["--target-processes"] == "all"
    assert options["--log-file"] == str(tmp_path / "log")
    assert {"inst_executed", "thread_inst_executed_true", "gpu__time_duration.sum", COUNTER} <= set(
        options["--metrics"].split(",")
    )
    assert command[-2:] == ("--export", str(tmp_path / "r"))
    assert "sass" in print_command(Path("ncu"), tmp_path, "source")
    assert "--print-source" not in print_command(Path("ncu"), tmp_path, "raw")


def fake_ncu(folder: Path, body: str) -> Path:
    """A program that answers as the profiler does when it prints a stored report."""
    (folder / "source.csv").write_text(SOURCE_PAGE)
    (folder / "raw.csv").write_text(RAW_PAGE)
    program = folder / "ncu"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return program


def test_a_stored_report_is_printed_and_read(tmp_path: Path) -> None:
    tool = fake_ncu(
        tmp_path, f'case "$*" in *"--page source"*) cat {tmp_path}/source.csv;; *) cat {tmp_path}/raw.csv;; esac'
    )
    (tmp_path / "report.ncu-rep").write_bytes(b"x")
    assert read_report(tool, tmp_path / "report", tmp_path / "log", 20) == REAL


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("exit 1", "status 1"),
        ("echo nothing", "no table of counters"),
        ("exec sleep 20", "timeout"),
        ("echo '==ERROR== bad file'; exit 2", "bad file"),
    ],
)
def test_a_report_that_cannot_be_printed_is_unavailable(tmp_path: Path, body: str, says: str) -> None:
    (tmp_path / "report").write_bytes(b"x")
    found = read_report(fake_ncu(tmp_path, body), tmp_path / "report", tmp_path / "log", 0.5)
    assert isinstance(found, Unavailable)
    assert says in found.reason


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        (None, "left no report"),
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\n", "ERR_NVGPUCTRPERM"),
        ("==WARNING== No kernels were profiled.\n", "no kernel was launched"),
    ],
)
def test_a_run_that_left_no_report_says_why(tmp_path: Path, messages: str | None, says: str) -> None:
    log = tmp_path / "log"
    if messages is not None:
        log.write_text(messages)
    found = read_report(Path("/nonexistent/ncu"), tmp_path / "report", log, 1)
    assert isinstance(found, Unavailable)
    assert says in found.reason
    stage = profile_unavailable(found)
    assert stage.outcome is Outcome.UNAVAILABLE
    assert stage.executed.state == "unavailable"
    assert stage.reason is not None
    assert stage.reason.hint == found.remedy


def test_a_profiler_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "report").write_bytes(b"x")
    found = read_report(Path("/nonexistent/ncu"), tmp_path / "report", tmp_path / "log", 1)
    assert isinstance(found, Unavailable)
