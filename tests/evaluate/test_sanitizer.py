"""What compute-sanitizer's report says of a candidate; only a whole, error-free report of a finished call is clean."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.evaluate.child.protocol import WrappedRun
from ptxbench.evaluate.sanitizer import (
    ERROR_EXIT,
    TOOLS,
    sanitize_stage,
    sanitizer_command,
    sanitizer_missing,
    sanitizer_run,
)
from ptxbench.schema.stages import Outcome
from ptxbench.schema.values import Unavailable

DATA = Path(__file__).parent.parent / "data" / "sanitizer"
CLEAN, BAD = DATA / "memcheck_ok.xml", DATA / "memcheck_bad.xml"


def ended(
    returncode: int | None = 0, called: bool = True, outputs_right: bool | None = True, stdout: str = ""
) -> WrappedRun:
    return WrappedRun(
        returncode=returncode, stdout=stdout, stderr="", called=called, outputs_right=outputs_right, seconds=1.0
    )


def report(folder: Path, *records: str) -> Path:
    path = folder / "report.xml"
    path.write_text(
        f'<?xml version="1.0" encoding="utf-8"?>\n<ComputeSanitizerOutput>{"".join(records)}</ComputeSanitizerOutput>'
    )
    return path


API_PROBE = """<record><kind>Api</kind><level>Error</level>
<what><text>Program hit CUDA_ERROR_NOT_FOUND on CUDA API call to cuGetProcAddress_v2</text></what>
<hostStack><saveLocation>error</saveLocation></hostStack></record>"""
HAZARD = """<record><kind>Analysis</kind><level>Error</level>
<what><text>Race reported between Write access and Read access</text></what>
<where><func>gemm</func><path>/tmp/x/kernel.cu</path><line>12</line></where></record>"""


def test_a_real_clean_report_of_a_finished_call_is_clean() -> None:
    run = sanitizer_run("memcheck", ended(), CLEAN)
    assert (run.outcome, run.errors, run.findings) == (Outcome.PASSED, 0, ())
    assert sanitize_stage([run]).outcome is Outcome.PASSED


def test_a_real_out_of_bounds_write_is_found_with_its_place() -> None:
    run = sanitizer_run("memcheck", ended(ERROR_EXIT, called=False), BAD)
    assert run.outcome is Outcome.FAILED
    assert run.errors == 20
    first = run.findings[0]
    assert (first.kind, first.kernel, first.file, first.line) == ("out_of_bounds", "oob", "known.cu", 24)
    assert first.message == "Invalid __global__ write of size 4 bytes is out of bounds"
    stage = sanitize_stage([run])
    assert stage.outcome is Outcome.FAILED
    assert stage.reason is not None
    assert stage.reason.code == "memcheck_error"
    assert "oob (known.cu:24)" in stage.reason.message


@pytest.mark.parametrize(
    ("run", "says"),
    [
        (ended(None), "deadline"),
        (ended(called=False), "did not come to its end"),
        (ended(ERROR_EXIT), "recorded none"),
        (ended(1), "status 1"),
        (ended(-11), "status -11"),
        (ended(255), "status 255"),
        (ended(outputs_right=False), "other results"),
    ],
)
def test_an_empty_report_of_a_call_that_went_wrong_is_not_clean(run: WrappedRun, says: str) -> None:
    found = sanitizer_run("memcheck", run, CLEAN)
    assert found.outcome is Outcome.UNAVAILABLE
    assert says in found.findings[0].message
    stage = sanitize_stage([found])
    assert stage.outcome is Outcome.UNAVAILABLE
    assert stage.reason is not None
    assert says in stage.reason.message


@pytest.mark.parametrize("text", [None, "", "<ComputeSanitizerOutput>", "<other/>", "ERROR SUMMARY: 0 errors", "\0"])
def test_a_missing_or_broken_report_is_not_clean(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "report.xml"
    if text is not None:
        path.write_text(text)
    found = sanitizer_run("memcheck", ended(stdout="ERROR SUMMARY: 0 errors"), path)
    assert found.outcome is Outcome.UNAVAILABLE
    assert "whole report" in found.findings[0].message


@given(cut=st.integers(0, 36_000))
def test_a_report_cut_off_anywhere_is_never_clean(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "report.xml"
    path.write_bytes(BAD.read_bytes()[:cut])
    assert sanitizer_run("memcheck", ended(), path).outcome in (Outcome.UNAVAILABLE, Outcome.FAILED)


def test_errors_before_a_cut_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "report.xml"
    path.write_bytes(BAD.read_bytes()[:6000])
    run = sanitizer_run("memcheck", ended(None), path)
    assert run.outcome is Outcome.FAILED
    assert 1 <= run.errors < 20


def test_the_drivers_probes_and_errors_of_api_calls_are_no_memory_errors(tmp_path: Path) -> None:
    path = report(tmp_path, API_PROBE, API_PROBE)
    assert sanitizer_run("memcheck", ended(), path).outcome is Outcome.PASSED


def test_a_hazard_between_api_errors_is_found(tmp_path: Path) -> None:
    run = sanitizer_run("racecheck", ended(ERROR_EXIT), report(tmp_path, API_PROBE, HAZARD))
    assert run.outcome is Outcome.FAILED
    assert (run.errors, run.findings[0].kind, run.findings[0].line) == (1, "analysis", 12)


def test_a_record_of_an_unknown_kind_counts_as_an_error(tmp_path: Path) -> None:
    run = sanitizer_run("memcheck", ended(), report(tmp_path, "<record><kind>Novel</kind></record>", "<record/>"))
    assert run.outcome is Outcome.FAILED
    assert run.errors == 2


def test_a_missing_tool_is_unavailable_with_its_remedy() -> None:
    missing = Unavailable(name="compute-sanitizer", reason="It is not here.", remedy="Install it.")
    stage = sanitize_stage([sanitizer_missing("memcheck", missing)])
    assert stage.outcome is Outcome.UNAVAILABLE
    assert stage.reason is not None
    assert stage.reason.message == "It is not here. Install it."


def test_one_error_fails_the_stage_whatever_the_other_tools_say(tmp_path: Path) -> None:
    clean = sanitizer_run("memcheck", ended(), CLEAN)
    lost = sanitizer_run("synccheck", ended(None), CLEAN)
    hazard = sanitizer_run("racecheck", ended(ERROR_EXIT), report(tmp_path, HAZARD))
    assert sanitize_stage([clean, lost, hazard]).outcome is Outcome.FAILED
    assert sanitize_stage([clean, lost]).outcome is Outcome.UNAVAILABLE
    assert sanitize_stage([]).outcome is Outcome.UNAVAILABLE


@pytest.mark.parametrize("tool", TOOLS)
def test_the_command_asks_for_a_report_that_a_program_can_read(tmp_path: Path, tool: str) -> None:
    check = next(name for name in TOOLS if name == tool)
    command = sanitizer_command(Path("/opt/compute-sanitizer"), check, tmp_path / "r.xml", tmp_path / "log")
    assert command[:3] == ("/opt/compute-sanitizer", "--tool", tool)
    assert command[3:6] == ("--xml", "--save", str(tmp_path / "r.xml"))
    options = dict(zip(command[6::2], command[7::2], strict=True))
    assert options["--error-exitcode"] == str(ERROR_EXIT)
    assert options["--report-api-errors"] == options["--leak-check"] == options["--check-exit-code"] == "no"
