"""What a person reads of a verdict: the reason first, the layers, the stages, what to do next."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from ptxbench.evaluate.render import evidence, render_verdict, status_sentence
from ptxbench.schema.stages import (
    BaselineTime,
    BlockError,
    BuildStage,
    CheckStage,
    Diagnostic,
    DrawCheck,
    ExecutedFamily,
    InspectStage,
    KernelProfile,
    Outcome,
    OutputCheck,
    PolicyFinding,
    PolicyStage,
    ProfileStage,
    Reason,
    Samples,
    SanitizerFinding,
    SanitizerRun,
    SanitizeStage,
    TimeStage,
    WorkShare,
    WorstElement,
)
from ptxbench.schema.values import Layer, Target, ToolVersion
from ptxbench.schema.verdict import Environment, Stages, Verdict

OUTPUT = OutputCheck(
    name="C",
    published=True,
    contract=True,
    failing=0,
    total=58_720_256,
    max_abs=0.25,
    max_rel=0.004,
    block=BlockError(block=3, rms_relative_error=0.0017, bound=0.0034),
)


def stages(**changes: Any) -> Stages:
    """A kernel that passes everything on a GPU, with `changes` to it."""
    samples = Samples(milliseconds=(0.81, 0.82), median=0.815)
    profiled = KernelProfile(
        name="gemm",
        own=True,
        families=(ExecutedFamily(family="GMMA", warp_instructions=1_146_880, thread_instructions_true=36_700_160),),
    )
    base: dict[str, Any] = {
        "policy": PolicyStage(outcome=Outcome.PASSED, seconds=0.01),
        "build": BuildStage(
            outcome=Outcome.PASSED, seconds=1.04, instrument=ToolVersion(name="nvcc", version="13.0.88")
        ),
        "inspect": InspectStage(outcome=Outcome.PASSED, seconds=0.38, families={"GMMA": 16, "TMA": 4}),
        "check": CheckStage(
            outcome=Outcome.PASSED,
            seconds=0.31,
            draws=(DrawCheck(workload="w", recipe="normal", outputs=(OUTPUT,)),),
            published=Layer.yes_or_no(True),
            published_reference="cublas 13.1.0",
            contract=Layer.yes_or_no(True),
        ),
        "sanitize": SanitizeStage(outcome=Outcome.PASSED, seconds=1.9),
        "profile": ProfileStage(
            outcome=Outcome.PASSED,
            seconds=2.1,
            kernels=(profiled,),
            executed=Layer.yes_or_no(True),
            work=WorkShare(target_mma=1.0, tma=1.4, other_mma=0.0, excessive=False),
        ),
        "time": TimeStage(
            outcome=Outcome.PASSED,
            seconds=0.2,
            candidate=samples,
            tflops=738.0,
            roofline_share=0.76,
            baselines=(
                BaselineTime(
                    name="cublas",
                    version="13.1.0",
                    published_version="13.1.0",
                    samples=samples,
                    speedup=0.97,
                    interval=(0.965, 0.976),
                ),
            ),
        ),
    }
    return Stages(**(base | changes))


def verdict(device: str = "cuda:0", host_code: str = "replayed", **changes: Any) -> Verdict:
    return Verdict(
        candidate="8be4c0ffee" + "0" * 54,
        candidate_name="sm_90a",
        problem="gemm_n7168_k5120",
        problem_hash="0" * 64,
        workload="94920358",
        axes={"M": 8192, "N": 7168, "K": 5120},
        target=Target.SM_90A,
        environment=Environment(
            device=device, device_name="NVIDIA H200" if device != "none" else "", host_code=host_code
        ),
        stages=stages(**changes),
        families=("GMMA", "TMA"),
        created=0.0,
    )


def shown(value: Verdict, width: int = 80) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(render_verdict(value))
    return captured.get()


def failing_check(output: OutputCheck) -> CheckStage:
    return CheckStage(
        outcome=Outcome.FAILED,
        reason=Reason(code="wrong_numbers", message="C is wrong in 1 of 3 draws.", hint="Look at tile (1, 0)."),
        draws=(DrawCheck(workload="w", recipe="normal", outputs=(output,)),),
        published=Layer.yes_or_no(False),
    )


def test_the_report_says_whether_host_code_ran_beside_the_clock() -> None:
    assert "host code replayed" in shown(verdict())
    live = shown(verdict(host_code="live: the host code reads device data on the host"))
    assert "host code live: the host code reads device data on the host" in live


WRONG = OUTPUT.model_copy(
    update={
        "published": False,
        "failing": 16384,
        "worst": WorstElement(index=(128, 7), got=0.0, expected=1.3125),
        "pattern": "tiles of 128x128 at (1, 0)",
    }
)
NOT_RUN: dict[str, Any] = {"profile": ProfileStage(outcome=Outcome.NOT_RUN), "time": TimeStage(outcome=Outcome.NOT_RUN)}


def test_a_pass_begins_with_the_three_answers() -> None:
    first = shown(verdict()).splitlines()[0]
    assert first.startswith("passed  correct, the target's instructions executed, 0.97x cublas")


def test_a_failure_begins_with_its_reason_and_shows_the_worst_element_and_the_pattern() -> None:
    lines = shown(verdict(check=failing_check(WRONG), **NOT_RUN)).splitlines()
    assert lines[0].startswith("failed  at check: C is wrong in 1 of 3 draws.")
    text = " ".join(" ".join(lines).split())
    assert "16,384 of 58,720,256 elements miss the published rule" in text
    assert "C[128, 7] is 0, expected 1.3125" in text
    assert "tiles of 128x128 at (1, 0)" in text
    assert "next: Look at tile (1, 0)." in text


def test_a_build_failure_shows_the_first_errors_with_their_lines_and_counts_the_rest() -> None:
    errors = tuple(Diagnostic(severity="error", message=f"no {n}", file="k.cu", line=n) for n in range(1, 7))
    build = BuildStage(
        outcome=Outcome.FAILED, reason=Reason(code="compile_error", message="It does not compile."), diagnostics=errors
    )
    value = verdict(build=build, check=CheckStage(outcome=Outcome.NOT_RUN), **NOT_RUN)
    assert evidence(value)[0] == "k.cu:1: error: no 1"
    assert evidence(value)[-1] == "and 2 more in the verdict (--json)"


def test_what_the_reason_already_says_is_not_said_again() -> None:
    errors = tuple(Diagnostic(severity="error", message=f"no {name}") for name in ("apples", "pears"))
    reason = Reason(code="compile_error", message="k.cu:3: no apples")
    build = BuildStage(outcome=Outcome.FAILED, reason=reason, diagnostics=errors)
    assert evidence(verdict(build=build)) == ("error: no pears",)


def test_a_broken_rule_is_shown_with_its_evidence() -> None:
    finding = PolicyFinding(rule="forbidden_needed", place="binary", evidence="libcublas.so.13")
    policy = PolicyStage(
        outcome=Outcome.CHEATED, reason=Reason(code="forbidden_needed", message="It uses cuBLAS."), findings=(finding,)
    )
    value = verdict(policy=policy)
    assert shown(value).startswith("cheated  at policy: It uses cuBLAS.")
    assert evidence(value) == ("forbidden_needed (binary): libcublas.so.13",)


def test_a_sanitizer_report_names_tool_kernel_and_line() -> None:
    finding = SanitizerFinding(kind="oob", message="Invalid write of 4 bytes", kernel="gemm", file="k.cu", line=12)
    run = SanitizerRun(tool="memcheck", outcome=Outcome.FAILED, errors=1, findings=(finding,))
    reason = Reason(code="memcheck", message="It writes out of bounds.")
    value = verdict(sanitize=SanitizeStage(outcome=Outcome.FAILED, reason=reason, runs=(run,)))
    assert evidence(value) == ("memcheck: Invalid write of 4 bytes in gemm, k.cu:12",)


def test_without_a_device_the_text_says_that_nothing_ran_and_what_to_do() -> None:
    reason = Reason(code="ended_early", message="Nothing ran on a device: no device was asked for.")
    value = verdict(
        device="none",
        check=CheckStage(outcome=Outcome.NOT_RUN, reason=reason),
        sanitize=SanitizeStage(outcome=Outcome.NOT_RUN),
        **NOT_RUN,
    )
    text = " ".join(shown(value).split())
    assert text.startswith("inconclusive check was not run: Nothing ran on a device: no device was asked for.")
    assert "next: Give the same command on a machine with a Hopper GPU" in text


def test_a_target_that_never_executes_is_no_failure_but_the_next_thing_to_mend() -> None:
    profile = ProfileStage(outcome=Outcome.PASSED, executed=Layer.yes_or_no(False, "GMMA 0, TMA 0"))
    value = verdict(profile=profile)
    text = " ".join(shown(value).split())
    assert status_sentence(value) == "correct, but none of the target's instructions executed, 0.97x cublas"
    assert "next: The instructions of GMMA, TMA are in the code but never run" in text


def test_an_unavailable_instrument_is_named_with_its_reason_and_where_the_remedy_is() -> None:
    reason = Reason(code="no_counters", message="ncu may not read counters (ERR_NVGPUCTRPERM).")
    text = shown(verdict(profile=ProfileStage(outcome=Outcome.UNAVAILABLE, reason=reason)))
    assert "ERR_NVGPUCTRPERM" in text
    assert "ptxbench doctor" in text


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = shown(verdict(check=failing_check(WRONG), **NOT_RUN), width).splitlines()
    assert max(len(line) for line in lines) <= width


def test_square_brackets_of_a_candidate_are_text_and_not_markup() -> None:
    reason = Reason(code="compile_error", message="expected [bold red] before [/nothing]")
    build = BuildStage(outcome=Outcome.FAILED, reason=reason)
    assert "[bold red] before [/nothing]" in shown(verdict(build=build))
