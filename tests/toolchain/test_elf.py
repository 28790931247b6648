"""ELF files are read as the loader reads them, and broken ones end in one clear error."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.errors import ToolError
from ptxbench.toolchain.build import Built
from ptxbench.toolchain.elf import cubins, hidden_device_code, read_cubin, read_shared_object
from ptxbench.toolchain.toolkit import Toolkit

SOURCE = """
#include <math.h>
#include <dlfcn.h>
double outside(double);
double exported(double x) { return cos(x) + outside(x); }
void* loads(void) { return dlopen("x", RTLD_NOW); }
static int hidden(void) { return 1; }
int (*keeps)(void) = hidden;
"""


@functools.cache
def _plain() -> bytes:
    """A shared object without device code."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "x.c", Path(folder) / "x.so"
        source.write_text(SOURCE)
        flags = ["-shared", "-fPIC", "-fno-builtin", "-Wl,--no-as-needed", "-Wl,-rpath,/opt/lib"]
        subprocess.run(["gcc", *flags, source, "-o", library, "-lm"], check=True)
        return library.read_bytes()


def _read(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        Path(file.name).write_bytes(data)
        read_shared_object(Path(file.name))
        hidden_device_code(Path(file.name))


def test_needs_imports_and_exports_are_those_that_readelf_prints(tmp_path: Path) -> None:
    library = tmp_path / "x.so"
    library.write_bytes(_plain())
    read = read_shared_object(library)
    assert "libm.so.6" in read.needed
    assert read.search == ("/opt/lib",)
    assert {"cos", "outside", "dlopen"} <= set(read.imported)
    assert {"exported", "loads", "keeps"} <= set(read.exported)
    assert "hidden" not in read.exported
    printed = subprocess.run(["readelf", "-SW", library], capture_output=True, text=True, check=True).stdout
    assert all(section.name in printed for section in read.sections)


def test_a_candidates_library_needs_the_runtime_by_name_and_exports_its_function(library: Path) -> None:
    read = read_shared_object(library)
    assert {"libcudart.so.13", "libtvm_ffi.so"} <= set(read.needed)
    assert "libcuda.so.1" not in read.needed
    assert "__tvm_ffi_run" in read.exported
    assert "__cudaRegisterFatBinary" in read.imported
    assert read.search == ()


def test_cubins_have_their_architecture_kernels_and_hash(built: Built, library: Path, toolkit: Toolkit) -> None:
    (cubin,) = cubins(library, toolkit)
    assert cubin.arch == "sm_90a"
    assert cubin.kernels == tuple(kernel.name for kernel in built.stage.kernels)
    assert "scale" in cubin.kernels[0]
    assert read_cubin(cubin.data, "sm_90a").sha256 == cubin.sha256


def test_a_library_without_device_code_has_no_cubins(tmp_path: Path, toolkit: Toolkit) -> None:
    (tmp_path / "x.so").write_bytes(_plain())
    assert cubins(tmp_path / "x.so", toolkit) == ()


def test_device_code_that_a_candidate_brings_along_is_found(library: Path, toolkit: Toolkit, tmp_path: Path) -> None:
    assert hidden_device_code(library) == ()
    (cubin,) = cubins(library, toolkit)
    (tmp_path / "x.cubin").write_bytes(cubin.data)
    (tmp_path / "x.s").write_text('.section .rodata\n.ascii "padding"\n.incbin "x.cubin"\n.long 0xba55ed50\n')
    subprocess.run(["gcc", "-shared", "x.s", "-o", "x.so"], cwd=tmp_path, check=True)
    found = hidden_device_code(tmp_path / "x.so")
    assert {(code.kind, code.section) for code in found} == {("cubin", ".rodata"), ("fatbin", ".rodata")}


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF\x01\x01" + bytes(58), b"#!/bin/sh\n", bytes(4096)])
def test_what_is_no_elf_file_is_refused(data: bytes) -> None:
    with pytest.raises(ToolError, match="malformed"):
        _read(data)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"none\.so cannot be read"):
        read_shared_object(tmp_path / "none.so")


def test_a_hosts_elf_file_is_no_cubin() -> None:
    with pytest.raises(ToolError, match="not for an NVIDIA GPU"):
        read_cubin(_plain(), "sm_90a")


@settings(deadline=2000)
@given(
    st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=20),
    st.integers(0, 2**16),
)
def test_a_mutated_file_is_read_or_refused_but_never_crashes_or_hangs(changes: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(_plain())
    for place, value in changes:
        data[place % len(data)] = value
    for mutated in (bytes(data), bytes(data[: cut % len(data)])):
        with contextlib.suppress(ToolError):  # any other exception fails the test
            _read(mutated)


@settings(deadline=2000)
@given(st.lists(st.tuples(st.integers(0, 1023), st.integers(0, 2**64 - 1)), min_size=1, max_size=8))
def test_tables_of_wild_numbers_are_read_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(_plain())
    tables = int.from_bytes(data[40:48], "little")
    for place, value in changes:  # 8-byte fields of the header, the program headers and the section headers
        at = place * 8 if place < 128 else tables + (place - 128) * 8
        if at + 8 <= len(data) and at >= 16:
            data[at : at + 8] = value.to_bytes(8, "little")
    with contextlib.suppress(ToolError):  # any other exception fails the test
        _read(bytes(data))
