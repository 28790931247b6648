"""Our own C helpers are compiled once, again when anything that they are made of changes, and fail loudly."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from ptxbench.errors import ToolError
from ptxbench.settings import Settings
from ptxbench.toolchain.driver_stub import driver_stub
from ptxbench.toolchain.elf import read_shared_object
from ptxbench.toolchain.native import Link, native_binary
from ptxbench.toolchain.toolkit import Toolkit


def test_a_program_runs_and_is_compiled_once(settings: Settings, tmp_path: Path) -> None:
    source = tmp_path / "hello.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n')
    program = native_binary("hello", [source], settings, kind="executable")
    assert subprocess.run([program], capture_output=True, text=True, check=True).stdout == "hello\n"
    when = program.stat().st_mtime_ns
    again = native_binary("hello", [source], settings, kind="executable")
    assert (again, again.stat().st_mtime_ns) == (program, when)


def test_a_changed_header_makes_another_binary(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text('#include "x.h"\nint x = X;\n')
    (tmp_path / "x.h").write_text("#define X 1\n")
    first = native_binary("libx.so", [tmp_path / "x.c"], settings, kind="shared")
    (tmp_path / "x.h").write_text("#define X 2\n")
    assert native_binary("libx.so", [tmp_path / "x.c"], settings, kind="shared") != first


def test_libraries_and_folders_reach_the_linker(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("#include <math.h>\ndouble x(double y) { return cos(y); }\n")
    link = Link(libraries=("m",), flags=("-Wl,-soname,libown.so.1",))
    library = native_binary("libx.so", [tmp_path / "x.c"], settings, kind="shared", link=link)
    assert "libm.so.6" in read_shared_object(library).needed


def test_a_warning_is_an_error_that_shows_the_compilers_words(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int f(int unused) { return 1; }\n")
    with pytest.raises(ToolError, match="unused parameter"):
        native_binary("libx.so", [tmp_path / "x.c"], settings, kind="shared")


def test_a_machine_without_gcc_is_told_the_package(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "x.c").touch()
    with pytest.raises(ToolError, match="Debian package gcc"):
        native_binary("x", [tmp_path / "x.c"], dataclasses.replace(settings, path="/nowhere"), kind="shared")


def test_the_stand_in_for_the_driver_defines_what_cuda_h_declares(settings: Settings, toolkit: Toolkit) -> None:
    library = read_shared_object(driver_stub(toolkit, settings) / "libcuda.so.1")
    wanted = {"cuInit", "cuTensorMapEncodeTiled", "cuMemAlloc_v2", "cuLaunchKernelEx", "cuGetProcAddress_v2"}
    assert wanted <= set(library.exported)
    assert library.needed in ((), ("libc.so.6",))
