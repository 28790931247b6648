"""What a user can get wrong, or a machine lack: one message with its remedy, exit code 2, nothing lost."""

from __future__ import annotations

import contextlib
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from ptxbench.cli.result_folder import write_files
from ptxbench.errors import RecordError

TASK = "gemm_n7168_k5120"


class Ended(Protocol):
    code: int
    out: str
    err: str
    words: str


class Run(Protocol):
    def __call__(self, *arguments: str | Path) -> Ended: ...


def refused(ended: Ended, *expected: str) -> None:
    """The command was refused as it must be, and its message says `expected`."""
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert "Traceback" not in ended.err
    assert ended.words.count("error: ") == 1
    assert "remedy: " in ended.words
    for text in expected:
        assert text in ended.words


def judge(ptxbench: Run, kernel: Path, *more: str | Path) -> Ended:
    return ptxbench("eval", kernel, "--task", TASK, "--device", "none", *more)


# ---- the kernel ----


def test_a_missing_file_is_named(ptxbench: Run, tmp_path: Path) -> None:
    refused(judge(ptxbench, tmp_path / "absent.cu"), "absent.cu: No such file")


def test_an_empty_file_is_named(ptxbench: Run, tmp_path: Path) -> None:
    (tmp_path / "empty.cu").write_text(" \n")
    refused(judge(ptxbench, tmp_path / "empty.cu"), "empty.cu is empty")


@pytest.mark.parametrize("content", [b"\x7fELF\x02\x01\0\0", b"void run() { \xff\xfe }"])
def test_a_binary_file_is_not_taken_for_a_kernel(ptxbench: Run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kernel.cu").write_bytes(content)
    refused(judge(ptxbench, tmp_path / "kernel.cu"), "is not text")


def test_a_file_of_another_kind_is_refused_by_its_name(ptxbench: Run, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("print()")
    refused(judge(ptxbench, tmp_path / "kernel.py"), "ends in .py", ".cu file")


def test_a_pipe_is_refused_instead_of_waited_for(ptxbench: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kernel.cu")
    refused(judge(ptxbench, tmp_path / "kernel.cu"), "no regular file")


def test_a_source_that_is_too_large_is_refused(ptxbench: Run, tmp_path: Path) -> None:
    (tmp_path / "kernel.cu").write_text("// " + "x" * 2**22)
    refused(judge(ptxbench, tmp_path / "kernel.cu"), "larger than")


def test_a_folder_without_a_kernel_is_refused(ptxbench: Run, tmp_path: Path) -> None:
    refused(judge(ptxbench, tmp_path), "it has none")


def test_a_folder_with_two_kernels_needs_one_called_kernel_cu(ptxbench: Run, tmp_path: Path) -> None:
    for name in ("a.cu", "b.cu"):
        (tmp_path / name).write_text("void run() {}")
    refused(judge(ptxbench, tmp_path), "a.cu, b.cu", "kernel.cu")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x"}'])
def test_a_solution_that_cannot_be_read_is_refused(ptxbench: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "solution.json").write_text(text)
    refused(judge(ptxbench, tmp_path / "solution.json"), "solution.json")


# ---- task, workload, target, device, stage ----


def test_an_unknown_task_brings_the_closest_names(ptxbench: Run, kernel: Path) -> None:
    refused(ptxbench("eval", kernel, "--task", "mha_bwd"), "'mha_bwd'", "mha_bwd_d128")


def test_an_unknown_workload_brings_those_there_are(ptxbench: Run, kernel: Path) -> None:
    refused(judge(ptxbench, kernel, "--workload", "huge"), "no workload 'huge'", "paper", "M=8192")


@pytest.fixture
def own_problem(ptxbench: Run, tmp_path: Path) -> Path:
    """A problem folder of the user's own."""
    assert ptxbench("suite", "make", "gemm", "--n", "256", "--k", "512", "-o", tmp_path / "suite").code == 0
    return tmp_path / "suite" / "gemm_n256_k512"


def test_an_unreadable_workload_is_named_with_file_and_line(ptxbench: Run, kernel: Path, own_problem: Path) -> None:
    workloads = own_problem / "workloads.jsonl"
    workloads.write_text(workloads.read_text() + "{ broken\n")
    refused(ptxbench("eval", kernel, "--task", own_problem), "workloads.jsonl:", "not JSON")


def test_a_problem_folder_that_lacks_a_file_is_refused(ptxbench: Run, kernel: Path, own_problem: Path) -> None:
    (own_problem / "problem.toml").unlink()
    refused(ptxbench("eval", kernel, "--task", own_problem), "problem.toml")


def test_a_size_that_no_problem_can_have_is_refused(ptxbench: Run, tmp_path: Path) -> None:
    refused(ptxbench("suite", "make", "gemm", "--n", "7", "--k", "512", "-o", tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_target_brings_the_known_ones(ptxbench: Run, kernel: Path) -> None:
    refused(judge(ptxbench, kernel, "--target", "sm_80"), "'sm_80' is not a target", "sm_90a, sm_100a")


def test_an_unknown_stage_brings_the_known_ones(ptxbench: Run, kernel: Path) -> None:
    refused(judge(ptxbench, kernel, "--until", "link"), "'link' is not a stage", "policy, build, inspect")


def test_an_unknown_way_to_treat_host_code_brings_the_known_ones(ptxbench: Run, kernel: Path) -> None:
    refused(judge(ptxbench, kernel, "--host", "none"), "'none' is not a way to treat host code", "auto, live, replay")


H200 = "0, NVIDIA H200, GPU-1, 9.0, 580.1"


@pytest.fixture
def one_h200(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver's tool that lists one Hopper GPU; nothing here runs on it."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho '{H200}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")


@pytest.mark.usefixtures("one_h200")
def test_a_target_that_the_device_cannot_run_is_refused(ptxbench: Run, kernel: Path) -> None:
    ended = ptxbench("eval", kernel, "--task", TASK, "--device", "cuda:0", "--target", "sm_100a")
    refused(ended, "NVIDIA H200 (sm_90), which cannot run sm_100a", "Blackwell")


@pytest.mark.usefixtures("one_h200")
@pytest.mark.parametrize("device", ["cuda:1", "cuda", "gpu0", "cuda:-1", "tpu"])
def test_a_device_that_is_not_there_is_refused(ptxbench: Run, kernel: Path, device: str) -> None:
    refused(ptxbench("eval", kernel, "--task", TASK, "--device", device), device)


# ---- the machine ----


def test_without_a_compiler_the_package_is_named(
    ptxbench: Run, kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXBENCH_TOOLKIT", "system")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "nowhere"))
    refused(judge(ptxbench, kernel), "nowhere/bin/nvcc", "CUDA_HOME")


def test_without_a_host_compiler_its_package_is_named(
    ptxbench: Run, kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    refused(judge(ptxbench, kernel), "is missing", "Debian package g++")


def test_a_setting_that_means_nothing_is_named(ptxbench: Run, kernel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PTXBENCH_BUILD_TIMEOUT", "soon")
    refused(judge(ptxbench, kernel), "PTXBENCH_BUILD_TIMEOUT is 'soon'")


def test_an_output_folder_that_cannot_be_made_is_refused_before_any_work(
    ptxbench: Run, kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXBENCH_CACHE", str(tmp_path / "cache"))
    (tmp_path / "file").write_text("kept")
    refused(judge(ptxbench, kernel, "-o", tmp_path / "file" / "results"), "cannot be written to", "-o")
    refused(judge(ptxbench, kernel, "-o", tmp_path / "file"), "cannot be written to")
    assert (tmp_path / "file").read_text() == "kept"
    assert not (tmp_path / "cache").exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    yield place
    subprocess.run(["umount", place], check=True)


def fill(place: Path) -> None:
    with (place / "ballast").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


def test_a_full_disk_is_refused_before_any_work(ptxbench: Run, kernel: Path, small_disk: Path) -> None:
    fill(small_disk)
    refused(judge(ptxbench, kernel, "-o", small_disk), "No space left on device", "Free space")


def test_a_full_cache_disk_is_refused(
    ptxbench: Run, kernel: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(small_disk)
    monkeypatch.setenv("PTXBENCH_CACHE", str(small_disk))
    refused(judge(ptxbench, kernel), "PTXBENCH_CACHE")


def test_a_disk_that_fills_up_while_writing_leaves_the_former_result_whole(small_disk: Path) -> None:
    write_files(small_disk, {"build.log": "old log", "verdict.json": "old verdict"})
    with pytest.raises(RecordError, match="No space left"):
        write_files(small_disk, {"build.log": "new log", "verdict.json": "x" * 2**17})
    assert {path.name: path.read_text() for path in small_disk.iterdir()} == {
        "build.log": "old log",
        "verdict.json": "old verdict",
    }


def test_a_limit_on_file_sizes_leaves_the_former_result_whole(tmp_path: Path) -> None:
    write_files(tmp_path, {"verdict.json": "old verdict"})
    program = (
        "import resource, pathlib, sys\n"
        "from ptxbench.cli.result_folder import write_files\n"
        "from ptxbench.errors import RecordError\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (1024, {resource.RLIM_INFINITY}))\n"
        "try:\n"
        "    write_files(pathlib.Path(sys.argv[1]), {'verdict.json': 'x' * 4096})\n"
        "except RecordError as error:\n"
        "    sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, tmp_path], check=False).returncode == 7
    assert [path.name for path in tmp_path.iterdir()] == ["verdict.json"]
    assert (tmp_path / "verdict.json").read_text() == "old verdict"


def test_a_full_standard_output_is_an_error_and_not_silence() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "ptxbench", "tasks", "--json"]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("error: No space left to write to.")
