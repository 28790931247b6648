"""Tools are found where the settings say, and what is missing is named with its remedy."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from ptxbench.errors import ToolError
from ptxbench.schema.values import ToolVersion, Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.toolkit import (
    Cupti,
    find_cupti,
    find_ncu,
    find_sanitizer,
    find_toolkit,
    find_tvm_ffi,
    host_compiler,
)


def _tool(path: Path, output: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{output}'\n")
    path.chmod(0o755)


def _system_toolkit(root: Path) -> Path:
    _tool(root / "bin/nvcc", "Cuda compilation tools, release 13.0, V13.0.99")
    _tool(root / "bin/ptxas", "")
    (root / "lib64").mkdir()
    (root / "lib64/libcudart.so.13").touch()
    (root / "include/cccl").mkdir(parents=True)
    (root / "include/cuda_runtime.h").touch()
    return root


def test_the_wheels_toolkit_is_whole(settings: Settings) -> None:
    toolkit = find_toolkit(settings)
    assert toolkit.source == "wheels"
    assert toolkit.version.startswith("13.")
    assert all(path.is_file() for path in (toolkit.nvcc, toolkit.ptxas, toolkit.cuobjdump, toolkit.nvdisasm))


def test_a_system_toolkit_borrows_only_the_disassemblers_it_lacks(settings: Settings, tmp_path: Path) -> None:
    root = _system_toolkit(tmp_path / "cuda")
    _tool(root / "bin/nvdisasm", "")
    toolkit = find_toolkit(dataclasses.replace(settings, toolkit="system", cuda_home=root))
    assert (toolkit.source, toolkit.version, toolkit.library) == ("system", "13.0.99", root / "lib64")
    assert toolkit.nvdisasm == root / "bin/nvdisasm"
    assert toolkit.cuobjdump == settings.wheel_root / "bin/cuobjdump"


@pytest.mark.parametrize("missing", ["bin/nvcc", "bin/ptxas", "lib64/libcudart.so.13", "include/cuda_runtime.h"])
def test_an_incomplete_toolkit_is_refused_with_a_remedy(settings: Settings, tmp_path: Path, missing: str) -> None:
    root = _system_toolkit(tmp_path / "cuda")
    (root / missing).unlink()
    with pytest.raises(ToolError) as caught:
        find_toolkit(dataclasses.replace(settings, toolkit="system", cuda_home=root))
    assert str(root) in caught.value.what
    assert caught.value.remedy


def test_a_toolkit_that_does_not_tell_its_version_is_refused(settings: Settings, tmp_path: Path) -> None:
    root = _system_toolkit(tmp_path / "cuda")
    _tool(root / "bin/nvcc", "hello")
    with pytest.raises(ToolError, match="does not tell its version"):
        find_toolkit(dataclasses.replace(settings, toolkit="system", cuda_home=root))


def test_a_missing_host_compiler_names_its_package(settings: Settings, tmp_path: Path) -> None:
    assert host_compiler(settings).version
    with pytest.raises(ToolError, match=r"g\+\+ is missing.*Debian package g\+\+"):
        host_compiler(dataclasses.replace(settings, path=str(tmp_path)))


def test_tvm_ffi_is_found_without_being_imported() -> None:
    script = (
        "import sys; from ptxbench.toolchain.toolkit import find_tvm_ffi; "
        "print((find_tvm_ffi().library / 'libtvm_ffi.so').is_file(), 'tvm_ffi' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False"]
    assert find_tvm_ffi().version


def test_profiler_and_sanitizer_are_taken_from_cuda_home(settings: Settings, tmp_path: Path) -> None:
    _tool(tmp_path / "bin/ncu", "Version 2025.3.1.0 (build 1)")
    _tool(tmp_path / "bin/compute-sanitizer", "Compute Sanitizer version 2025.3.1 (build 1)")
    here = dataclasses.replace(settings, cuda_home=tmp_path, wheel_root=tmp_path / "none", path="")
    ncu, sanitizer = find_ncu(here), find_sanitizer(here)
    assert isinstance(ncu, ToolVersion)
    assert (ncu.version, ncu.path) == ("2025.3.1.0", str(tmp_path / "bin/ncu"))
    assert isinstance(sanitizer, ToolVersion)
    assert sanitizer.version == "2025.3.1"


def test_an_instrument_that_does_not_run_is_unavailable_not_absent(settings: Settings, tmp_path: Path) -> None:
    _tool(tmp_path / "bin/compute-sanitizer", "no licence")
    here = dataclasses.replace(settings, cuda_home=tmp_path, wheel_root=tmp_path / "none", path="")
    sanitizer = find_sanitizer(here)
    assert isinstance(sanitizer, Unavailable)
    assert "does not tell its version" in sanitizer.reason


def test_missing_instruments_say_how_to_get_them(settings: Settings, tmp_path: Path) -> None:
    bare = dataclasses.replace(settings, cuda_home=tmp_path, wheel_root=tmp_path, path="")
    for found in (find_sanitizer(bare), find_cupti(bare)):
        assert isinstance(found, Unavailable)
        assert found.reason
        assert "Install" in found.remedy


def test_cupti_needs_its_library_and_its_headers(settings: Settings, tmp_path: Path) -> None:
    here = dataclasses.replace(settings, cuda_home=tmp_path, wheel_root=tmp_path / "none", toolkit="system")
    library, include = tmp_path / "extras/CUPTI/lib64", tmp_path / "extras/CUPTI/include"
    library.mkdir(parents=True)
    (library / "libcupti.so.13").touch()
    assert isinstance(find_cupti(here), Unavailable)
    include.mkdir()
    (include / "cupti.h").touch()
    assert find_cupti(here) == Cupti(library / "libcupti.so.13", include)
