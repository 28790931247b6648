"""The doctor finds what is there, names the remedy of what is not, and knows what the device at hand needs."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ptxbench.emulator.codegen.lanes import find_core
from ptxbench.evaluate.diagnosis import Check, CheckState, Diagnosis
from ptxbench.evaluate.doctor import counter_right, diagnose, disk_check
from ptxbench.schema.values import Unavailable
from ptxbench.settings import Settings

RESTRICTED = "EnableMSI: 1\nRmProfilingAdminOnly: 1\n"
OPEN = "EnableMSI: 1\nRmProfilingAdminOnly: 0\n"
ROOT = (1 << 41) - 1
UNPRIVILEGED = 0
GPU_LINES = {"hopper": "0, NVIDIA H200, GPU-1, 9.0, 580.1", "ampere": "0, NVIDIA A100, GPU-2, 8.0, 580.1"}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """This environment's tools, with a cache of this module's own but for our compiled programs."""
    usual, cache = Settings.load(), tmp_path_factory.mktemp("cache")
    programs = usual.cache / "native"
    programs.mkdir(parents=True, exist_ok=True)
    (cache / "native").symlink_to(programs.absolute())
    return dataclasses.replace(usual, cache=cache)


def with_gpu(settings: Settings, tmp_path: Path, line: str) -> Settings:
    """The same with a driver's tool that lists one GPU; nothing runs on it."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\necho '{line}'\n")
    tool.chmod(0o755)
    return dataclasses.replace(settings, path=f"{tool.parent}:{settings.path}")


def named(diagnosis: Diagnosis, name: str) -> Check:
    return next(check for check in diagnosis.checks if check.name == name)


def test_every_check_that_is_not_ok_says_why(settings: Settings) -> None:
    for check in diagnose(settings).checks:
        assert check.state is CheckState.OK or check.found


def test_the_compiler_is_found_with_its_version(settings: Settings) -> None:
    nvcc = named(diagnose(settings), "nvcc")
    assert nvcc.state is CheckState.OK
    assert nvcc.found.startswith("13.")


def test_a_machine_without_a_compiler_is_incomplete_and_learns_the_remedy(settings: Settings, tmp_path: Path) -> None:
    diagnosis = diagnose(dataclasses.replace(settings, toolkit="system", cuda_home=tmp_path / "nowhere"))
    assert named(diagnosis, "nvcc").state is CheckState.MISSING
    assert "CUDA_HOME" in named(diagnosis, "nvcc").remedy
    assert diagnosis.exit_code == 2


def test_a_machine_without_a_host_compiler_is_incomplete(settings: Settings, tmp_path: Path) -> None:
    diagnosis = diagnose(dataclasses.replace(settings, path=str(tmp_path)))
    assert named(diagnosis, "g++").state is CheckState.MISSING
    assert "g++" in named(diagnosis, "g++").remedy
    assert not diagnosis.complete


def test_the_emulators_compiled_core_is_named_with_its_place(settings: Settings) -> None:
    (core,) = [check for check in diagnose(settings).checks if check.group == "emulator"]
    assert core.state is CheckState.OK
    assert Path(core.found).exists()


def test_why_there_is_no_compiled_core_is_said_with_a_remedy(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("ptxbench.emulator.codegen.lanes.sysconfig.get_path", lambda _: str(tmp_path))
    found = find_core(settings)
    assert isinstance(found, Unavailable)
    assert "headers" in found.reason
    assert "NumPy" in found.reason
    assert "development files" in found.remedy


def test_torch_is_a_warning_without_a_gpu_and_missing_with_one(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ptxbench.evaluate.doctor.version", _only_what_is_not_torch)
    assert named(diagnose(dataclasses.replace(settings, path=str(tmp_path))), "torch").state is CheckState.WARNING
    diagnosis = diagnose(with_gpu(settings, tmp_path, GPU_LINES["hopper"]))
    assert named(diagnosis, "gpu").state is CheckState.OK
    assert named(diagnosis, "torch").state is CheckState.MISSING
    assert diagnosis.exit_code == 2


def _only_what_is_not_torch(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    if package == "torch":
        raise PackageNotFoundError(package)
    return version(package)


def test_a_gpu_of_another_generation_runs_no_target(settings: Settings, tmp_path: Path) -> None:
    check = named(diagnose(with_gpu(settings, tmp_path, GPU_LINES["ampere"])), "gpu")
    assert check.state is CheckState.MISSING
    assert "runs no target" in check.found
    assert "Hopper" in check.remedy


def test_the_self_test_runs_on_the_gpu_that_runs_a_target(settings: Settings, tmp_path: Path) -> None:
    def self_test(_: Settings, device: str) -> tuple[Check, ...]:
        return (Check(name="counts", group="self-test", state=CheckState.MISSING, found=f"{device} counts NaN"),)

    diagnosis = diagnose(with_gpu(settings, tmp_path, GPU_LINES["hopper"]), self_test)
    assert named(diagnosis, "counts").found == "cuda:0 counts NaN"
    assert not diagnosis.complete


def test_counters_are_open_when_the_driver_says_so() -> None:
    assert counter_right(OPEN, UNPRIVILEGED, CheckState.MISSING).state is CheckState.OK


def test_counters_are_open_to_an_administrator() -> None:
    assert counter_right(RESTRICTED, ROOT, CheckState.MISSING).state is CheckState.OK


@pytest.mark.parametrize("parameters", [RESTRICTED, "EnableMSI: 1\n"])
def test_closed_counters_are_missing_with_the_error_and_three_ways_out(parameters: str) -> None:
    check = counter_right(parameters, UNPRIVILEGED, CheckState.MISSING)
    assert check.state is CheckState.MISSING
    assert "ERR_NVGPUCTRPERM" in check.found
    assert "NVreg_RestrictProfilingToAdminUsers=0" in check.remedy


def test_a_cache_whose_folder_does_not_exist_yet_is_fine(tmp_path: Path) -> None:
    assert disk_check(tmp_path / "a" / "b").state is not CheckState.MISSING


def test_a_cache_in_a_read_only_place_is_missing() -> None:
    check = disk_check(Path("/proc/self/cache"))
    assert check.state is CheckState.MISSING
    assert "PTXBENCH_CACHE" in check.remedy


def test_each_protection_of_this_machine_is_named(settings: Settings) -> None:
    protections = [check for check in diagnose(settings).checks if check.group == "protections"]
    assert "resource_limits" in {check.name for check in protections}
    assert all(check.remedy for check in protections if check.state is not CheckState.OK)
