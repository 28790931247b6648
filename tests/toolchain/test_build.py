"""A source becomes a library or a typed failure that is the source's own; the machine's failures are exceptions."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ptxbench.errors import CandidateError, ToolError
from ptxbench.schema.candidate import Candidate, SourceFile
from ptxbench.schema.stages import Outcome
from ptxbench.schema.values import Target, Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.build import Built, build, build_key
from ptxbench.toolchain.compile import compile_words
from ptxbench.toolchain.confine import confinement
from ptxbench.toolchain.elf import read_shared_object
from ptxbench.toolchain.phases import split_phases
from ptxbench.toolchain.toolkit import Toolkit

from .conftest import KERNEL

FAILS = "#include <tvm/ffi/c_api.h>\nint run() { return missing; }\n"


def _build(source: str, settings: Settings) -> Built:
    return build(Candidate.from_source(source), Target.SM_90A, settings)


def test_a_kernel_becomes_a_library_with_its_resources(built: Built) -> None:
    stage = built.stage
    assert stage.outcome is Outcome.PASSED
    assert stage.reason is None
    assert (stage.headers, stage.from_cache) == ("slim", False)
    assert stage.instrument is not None
    assert stage.instrument.name == "nvcc"
    (kernel,) = stage.kernels
    assert kernel.name == "_ZN21_GLOBAL__N__candidate5scaleEPfi"
    assert kernel.registers > 0
    assert (kernel.static_shared_bytes, kernel.barriers) == (128, 1)
    assert built.library is not None
    assert built.library.stat().st_size > 1000


def test_the_record_names_no_folder_of_this_machine(built: Built, settings: Settings) -> None:
    text = built.stage.model_copy(update={"instrument": None}).model_dump_json()
    assert str(settings.cache) not in text
    assert str(settings.wheel_root) not in text
    assert built.stage.command[0] == "<cuda>/bin/nvcc"


def test_the_same_source_again_comes_from_the_cache(built: Built, settings: Settings) -> None:
    again = _build(KERNEL, settings)
    assert again.stage.from_cache
    assert again.library == built.library
    assert again.stage.kernels == built.stage.kernels


def test_a_changed_library_in_the_cache_is_built_again(settings: Settings, tmp_path: Path, built: Built) -> None:
    assert built.library is not None
    own = dataclasses.replace(settings, cache=tmp_path)
    shutil.copytree(settings.cache, tmp_path, dirs_exist_ok=True)
    copy = tmp_path / built.library.relative_to(settings.cache)
    copy.write_bytes(copy.read_bytes()[:-1] + b"!")
    again = _build(KERNEL, own)
    assert not again.stage.from_cache
    assert again.library == copy
    assert read_shared_object(copy).exported


def test_target_source_and_entry_point_are_part_of_the_key(settings: Settings) -> None:
    candidate = Candidate.from_source(KERNEL)
    others = [Candidate.from_source(KERNEL + " "), candidate.model_copy(update={"entry_symbol": "go"})]
    keys = [build_key(candidate, target, settings) for target in Target]
    keys += [build_key(other, Target.SM_90A, settings) for other in others]
    assert len(set(keys)) == 4


def test_one_target_is_compiled_and_no_ptx_is_kept() -> None:
    assert compile_words(Target.SM_100A)[:2] == ("-gencode", "arch=compute_100a,code=sm_100a")


def test_a_source_with_an_error_fails_with_its_line_and_is_remembered(settings: Settings) -> None:
    failed = _build(FAILS, settings)
    assert failed.library is None
    assert failed.stage.outcome is Outcome.FAILED
    assert failed.stage.reason is not None
    assert failed.stage.reason.code == "compile_error"
    assert failed.stage.reason.message == 'kernel.cu:2: identifier "missing" is undefined'
    assert failed.stage.headers == "full"
    assert "return missing" in failed.stage.log
    again = _build(FAILS, settings)
    assert again.stage.from_cache
    assert again.stage.diagnostics == failed.stage.diagnostics


def test_an_error_in_inline_ptx_names_the_line_of_the_source_and_is_not_tried_twice(settings: Settings) -> None:
    failed = _build('__global__ void k() {\n  asm volatile("mbarrier.nonsense;");\n}\n', settings)
    assert failed.stage.reason is not None
    assert failed.stage.reason.code == "compile_error"
    assert (failed.stage.diagnostics[0].file, failed.stage.diagnostics[0].line) == ("kernel.cu", 2)
    assert failed.stage.headers == "slim"


def test_headers_beside_the_entry_file_are_found_and_the_driver_is_needed_by_name(settings: Settings) -> None:
    sources = (
        SourceFile(path="src/main.cpp", content='#include "parts/k.h"\nextern "C" int go() { return cuInit(0); }\n'),
        SourceFile(path="src/parts/k.h", content="#include <cuda.h>\n__global__ void k() {}\n"),
    )
    done = build(Candidate(sources=sources, entry_file="src/main.cpp"), Target.SM_100A, settings)
    assert done.library is not None, done.stage.log
    assert [kernel.name for kernel in done.stage.kernels] == ["_Z1kv"]
    assert "libcuda.so.1" in read_shared_object(done.library).needed


def test_a_source_that_does_not_end_is_the_candidates_timeout(settings: Settings, tmp_path: Path) -> None:
    bomb = (
        "template <long A, long B> struct F { static constexpr long v = F<A - 1, B + 1>::v + F<A - 1, B * 2>::v; };\n"
        "template <long B> struct F<0, B> { static constexpr long v = B; };\n"
        "long f() { return F<40, 1>::v; }\n"
    )
    slow = dataclasses.replace(settings, build_timeout=2.0)
    began = time.monotonic()
    failed = _build(bomb, slow)
    assert time.monotonic() - began < 60
    assert failed.stage.reason is not None
    assert failed.stage.reason.code == "compile_timeout"
    assert not _build(bomb, slow).stage.from_cache


@pytest.fixture
def unconfined(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a kernel without Landlock."""
    missing = Unavailable(name="compiler confinement", reason="taken away by this test")
    monkeypatch.setattr("ptxbench.toolchain.compile.confinement", lambda _: missing)


def _with_cicc(toolkit: Toolkit, settings: Settings, root: Path, script: str) -> Settings:
    """Settings of a toolkit that is the real one, by links that lead out of it, but for its device compiler."""
    (root / "bin").mkdir(parents=True)
    real = toolkit.nvcc.parent.parent
    for name in ("nvcc", "nvcc.profile"):
        shutil.copy(real / "bin" / name, root / "bin" / name)
    for path in (real / "bin").iterdir():
        if not (root / "bin" / path.name).exists():
            (root / "bin" / path.name).symlink_to(path)
    (root / "nvvm/bin").mkdir(parents=True)
    (root / "nvvm/libdevice").symlink_to(real / "nvvm/libdevice")
    (root / "nvvm/bin/cicc").write_text(f"#!/bin/sh\n{script}\n")
    (root / "nvvm/bin/cicc").chmod(0o755)
    (root / "include").symlink_to(real / "include")
    (root / "lib").symlink_to(real / "lib")
    return dataclasses.replace(settings, toolkit="system", cuda_home=root, cache=root / "cache")


@pytest.mark.usefixtures("unconfined")
def test_a_compiler_that_is_killed_from_outside_is_the_machines_fault(
    settings: Settings, toolkit: Toolkit, tmp_path: Path
) -> None:
    with pytest.raises(ToolError, match="memory"):
        _build("__global__ void k() {}\n", _with_cicc(toolkit, settings, tmp_path, "kill -KILL $$"))


@pytest.mark.usefixtures("unconfined")
def test_a_compiler_that_crashes_on_a_source_is_the_candidates_failure(
    settings: Settings, toolkit: Toolkit, tmp_path: Path
) -> None:
    crashing = _with_cicc(toolkit, settings, tmp_path, "kill -SEGV $$")
    failed = _build("__global__ void k() {}\n", crashing)
    assert failed.stage.reason is not None
    assert failed.stage.reason.code == "compiler_crash"
    assert not _build("__global__ void k() {}\n", crashing).stage.from_cache


def test_a_machine_without_a_host_compiler_is_told_the_package(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"Debian package g\+\+"):
        _build(KERNEL, dataclasses.replace(settings, path=str(tmp_path)))


def test_a_hostile_file_name_never_reaches_a_shell(settings: Settings, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    with pytest.raises(CandidateError, match="cannot be given to a compiler"):
        build(Candidate.from_source(KERNEL, path=f'a";touch {mark};".cu'), Target.SM_90A, settings)
    assert not mark.exists()


SECRET = "s3cret"
HOSTILE = {
    "include": '#include "{file}"\n',
    "macro": '#define F "{file}"\n#include F\n',
    "quoted line": 'void f();\n#line 1 "{file}"\n#warning look\nvoid f() {{ asm volatile("nop" : : "q_"(3)); }}\n',
    "assembler": 'void f() {{ asm(".include \\"{file}\\""); }}\n',
    "assembler in pieces": 'void f() {{ asm(".inc" "lude \\"{file}\\""); }}\n',
}


@pytest.mark.usefixtures("unconfined")
@pytest.mark.parametrize("way", HOSTILE)
def test_no_way_of_naming_a_file_of_the_machine_brings_it_into_the_log(
    settings: Settings, tmp_path: Path, way: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(f"{SECRET} {SECRET}:\n" * 3)
    failed = _build(HOSTILE[way].format(file=secret), settings)
    assert failed.stage.outcome is Outcome.FAILED
    assert SECRET not in failed.stage.model_dump_json()


def test_the_confined_compiler_cannot_read_what_the_early_check_lets_through(
    settings: Settings, tmp_path: Path
) -> None:
    if isinstance(confinement(settings), Unavailable):
        pytest.skip("this kernel has no Landlock")
    (tmp_path / "secret").write_text("int x;\n")
    failed = _build(HOSTILE["assembler in pieces"].format(file=tmp_path / "secret"), settings)
    assert failed.stage.outcome is Outcome.FAILED
    assert "can't open" in failed.stage.log


def test_the_passes_side_by_side_make_what_nvcc_alone_makes(
    settings: Settings, tmp_path: Path, built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ptxbench.toolchain.compile.split_phases", lambda *_: None)
    alone = _build(KERNEL, dataclasses.replace(settings, cache=tmp_path))
    assert alone.library is not None
    assert built.library is not None
    assert read_shared_object(alone.library).needed == read_shared_object(built.library).needed
    (theirs,), (ours,) = alone.stage.kernels, built.stage.kernels
    assert theirs.model_copy(update={"name": ""}) == ours.model_copy(update={"name": ""})
    assert re.fullmatch(r"_ZN\d+_GLOBAL__N__\w+5scaleEPfi", theirs.name)


@pytest.mark.parametrize("dryrun", ["", "#$ gcc -c x.cpp \n", "#$ _SPACE_= \n#$ cudafe++ x \n#$ gcc y \n", "\0#$"])
def test_steps_that_are_not_known_are_left_to_nvcc(dryrun: str) -> None:
    assert split_phases(dryrun, "_unit", "scratch") is None


def test_eight_builders_of_one_source_make_it_once(settings: Settings, tmp_path: Path) -> None:
    script = (
        "import dataclasses, sys; from pathlib import Path\n"
        "from ptxbench.schema.candidate import Candidate; from ptxbench.schema.values import Target\n"
        "from ptxbench.settings import Settings; from ptxbench.toolchain.build import build\n"
        "settings = dataclasses.replace(Settings.load(), cache=Path(sys.argv[1]))\n"
        "built = build(Candidate.from_source('__global__ void k() {}'), Target.SM_90A, settings)\n"
        "print(built.stage.from_cache, built.library)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    builders = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) for _ in range(8)]
    lines = [builder.communicate(timeout=100)[0].split() for builder in builders]
    assert sorted(line[0] for line in lines) == ["False"] + ["True"] * 7
    assert len({line[1] for line in lines}) == 1


def test_a_build_keeps_the_ptx_of_its_machine_code_without_paths_of_this_machine(
    built: Built, settings: Settings
) -> None:
    assert built.ptx is not None
    text = built.ptx.read_text()
    assert ".target sm_90a" in text
    assert '"kernel.cu"' in text
    assert all(f".entry {kernel.name}(" in text for kernel in built.stage.kernels)
    assert str(settings.cache) not in text
