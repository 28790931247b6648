"""The commands as a shell sees them: output, exit codes, files, and what `--help` costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest

from ptxbench.cli import judging
from ptxbench.cli.reference import reference_kernel
from ptxbench.schema.values import Target
from ptxbench.schema.verdict import Verdict

TASK = "gemm_n7168_k5120"


class Ended(Protocol):
    code: int
    out: str
    err: str
    words: str


class Run(Protocol):
    def __call__(self, *arguments: str | Path) -> Ended: ...


@pytest.fixture
def inspected(ptxbench: Run, kernel: Path, tmp_path: Path) -> Ended:
    """A kernel judged without a device, its result kept."""
    return ptxbench("eval", kernel, "--task", TASK, "--device", "none", "--json", "-o", tmp_path / "kept")


def test_json_prints_the_verdict_document_and_nothing_else(inspected: Ended) -> None:
    assert inspected.code == 3
    document = json.loads(inspected.out)
    assert document["problem"] == TASK
    assert document["status"]["state"] == "inconclusive"
    assert document["stages"]["build"]["outcome"] == "passed"
    assert document["environment"]["device"] == "none"
    assert "build: " in inspected.err


def test_output_keeps_verdict_build_log_and_report(inspected: Ended, tmp_path: Path) -> None:
    assert {path.name for path in (tmp_path / "kept").iterdir()} == {"verdict.json", "build.log", "report.txt"}
    assert (tmp_path / "kept" / "verdict.json").read_text() == inspected.out
    assert (tmp_path / "kept" / "report.txt").read_text().startswith("inconclusive")


def test_a_kernel_that_does_not_compile_fails_with_exit_code_1_and_its_error(ptxbench: Run, tmp_path: Path) -> None:
    (tmp_path / "broken.cu").write_text("void run() { not C++ }\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);\n")
    ended = ptxbench("eval", tmp_path / "broken.cu", "--task", TASK, "--device", "none")
    assert ended.code == 1
    assert ended.out.startswith("failed  at build")
    assert "kernel.cu:1: error:" in ended.out


def test_until_ends_after_the_stage(ptxbench: Run, kernel: Path) -> None:
    ended = ptxbench("eval", kernel, "--task", TASK, "--until", "build", "--json", "--device", "none")
    stages = json.loads(ended.out)["stages"]
    assert (stages["build"]["outcome"], stages["inspect"]["outcome"]) == ("passed", "not_run")


def test_a_file_called_like_a_target_is_built_for_it(ptxbench: Run, kernel: Path, tmp_path: Path) -> None:
    path = kernel.rename(tmp_path / "sm_100a.cu")
    ended = ptxbench("eval", path, "--task", TASK, "--until", "policy", "--json", "--device", "none")
    assert json.loads(ended.out)["target"] == "sm_100a"


def test_a_folder_with_one_kernel_and_its_headers_is_one_candidate(ptxbench: Run, kernel: Path, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "own.h").write_text("#define NOTHING\n")
    (folder / "gemm.cu").write_text('#include "own.h"\n' + kernel.read_text())
    ended = ptxbench("eval", folder, "--task", TASK, "--until", "build", "--json", "--device", "none")
    assert json.loads(ended.out)["stages"]["build"]["outcome"] == "passed"


def test_an_interrupted_evaluation_ends_with_130_and_keeps_what_was_written(
    ptxbench: Run, kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "verdict.json").write_text("former")

    def interrupted(*_: object) -> Verdict:
        raise KeyboardInterrupt

    monkeypatch.setattr(judging, "evaluate", interrupted)
    ended = ptxbench("eval", kernel, "--task", TASK, "--device", "none", "-o", kept)
    assert ended.code == 130
    assert "Traceback" not in ended.err
    assert [path.read_text() for path in kept.iterdir()] == ["former"]


def test_a_fault_of_ours_asks_for_a_report_and_shows_its_traceback_only_when_debugging(
    ptxbench: Run, kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*_: object) -> Verdict:
        raise ZeroDivisionError("by accident")

    monkeypatch.setattr(judging, "evaluate", faulty)
    quiet = ptxbench("eval", kernel, "--task", TASK, "--device", "none")
    assert quiet.code == 2
    assert "A fault in ptxbench itself: ZeroDivisionError: by accident" in quiet.words
    assert "Report it" in quiet.words
    assert "Traceback" not in quiet.err
    monkeypatch.setenv("PTXBENCH_DEBUG", "1")
    assert "Traceback" in ptxbench("eval", kernel, "--task", TASK, "--device", "none").err


def test_tasks_lists_the_problems(ptxbench: Run) -> None:
    names = [problem["name"] for problem in json.loads(ptxbench("tasks", "--json").out)]
    assert TASK in names
    assert all(name in ptxbench("tasks").out for name in names)


def test_tasks_show_tells_arguments_sizes_and_reference(ptxbench: Run) -> None:
    ended = ptxbench("tasks", "show", TASK)
    assert ended.code == 0
    for text in ("bfloat16", "M=8192", "torch.matmul", "GMMA"):
        assert text in ended.out


def test_a_made_problem_can_be_evaluated(ptxbench: Run, kernel: Path, tmp_path: Path) -> None:
    made = ptxbench("suite", "make", "attention", "--head-dim", "64", "--causal", "-o", tmp_path / "suite")
    assert made.code == 0
    (folder,) = (tmp_path / "suite").iterdir()
    assert str(folder) in made.out
    ended = ptxbench("eval", kernel, "--task", folder, "--until", "policy", "--json", "--device", "none")
    assert json.loads(ended.out)["problem"] == folder.name


def test_the_demo_says_what_is_computed_and_finds_each_mistake_with_its_line(ptxbench: Run) -> None:
    ended = ptxbench("demo")
    assert ended.code == 0
    assert ended.out.startswith("Judging six Hopper kernels and one for Blackwell here and now")
    for text in (
        "done by tcgen05",
        "overwrite-before-release",
        "The three answers are recorded",
        "the kernel failed at check (hang, deadlock)",
        "layout-mismatch",
        "Turn 3 of 3: the kernel is correct on the emulator",
        "7 of 7 verdicts",
    ):
        assert text in " ".join(ended.out.split())


def test_the_reference_kernel_is_found() -> None:
    assert "wgmma" in reference_kernel(TASK, Target.SM_90A).read_text()


def test_doctor_prints_its_diagnosis_as_json(ptxbench: Run) -> None:
    ended = ptxbench("doctor", "--json")
    document = json.loads(ended.out)
    assert ended.code == (0 if document["complete"] else 2)
    assert {"python", "nvcc", "gpu", "counters"} <= {check["name"] for check in document["checks"]}


def test_doctor_shows_the_remedy_of_what_is_missing(
    ptxbench: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXBENCH_TOOLKIT", "system")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
    ended = ptxbench("doctor")
    assert ended.code == 2
    assert "remedy: Set CUDA_HOME" in " ".join(ended.out.split())
    assert ended.out.splitlines()[-1].startswith("missing: nvcc")


def test_the_version_is_that_of_the_package(ptxbench: Run) -> None:
    from importlib.metadata import version

    assert ptxbench("--version").out == f"ptxbench {version('ptxbench')}\n"


@pytest.mark.parametrize("option", ["--nonsense", "evaluate"])
def test_a_wrong_option_or_command_ends_with_2(ptxbench: Run, option: str) -> None:
    assert ptxbench(option).code == 2


def test_help_imports_nothing_heavy() -> None:
    heavy = "{'pydantic', 'numpy', 'rich', 'jinja2', 'httpx'}"
    program = (
        "import sys\nfrom ptxbench.cli.main import run\ncode = run(['--help'])\n"
        f"sys.exit(code or ', '.join({heavy} & set(sys.modules)) or 0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr


def test_a_reader_that_goes_away_ends_the_command_quietly() -> None:
    command = f"{sys.executable} -m ptxbench tasks show {TASK} | true"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert ended.returncode == 141
    assert ended.stderr == ""


def test_emulate_shows_counts_and_writes_a_timeline(ptxbench: Run, tmp_path: Path) -> None:
    kernel = reference_kernel("mha_with_lse_d128", Target.SM_90A)
    trace = tmp_path / "trace.json"
    ended = ptxbench("emulate", kernel, "--task", "mha_with_lse_d128", "--trace", trace, "--json")
    assert ended.code == 0
    (launch,) = json.loads(ended.out)["launches"]
    assert sum(line["warps"] for line in launch["counts"] if line["name"].startswith("wgmma.mma_async")) == 1024
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert "run" in names
    assert any(name.startswith("wait: ") for name in names)


def test_emulate_refuses_a_schedule_that_is_none(ptxbench: Run, kernel: Path) -> None:
    ended = ptxbench("emulate", kernel, "--task", TASK, "--schedule", "never")
    assert ended.code == 2
    assert "is not a schedule" in ended.err
