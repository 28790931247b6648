"""A function built with the slim headers and the same one built with the real ones cannot be told apart by calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ptxbench.settings import Settings
from ptxbench.toolchain.build import SLIM_HEADERS
from ptxbench.toolchain.call import run_tool
from ptxbench.toolchain.toolkit import find_tvm_ffi

SECONDS = 900.0
"""The real headers take ten seconds of processor time; a machine that does ten other things must not fail the test."""

DATA = Path(__file__).parents[1] / "data" / "toolchain"


def _compile(source: Path, include: Path, library: Path, settings: Settings) -> str:
    """What g++ said; empty when it had nothing to say."""
    ffi = find_tvm_ffi()
    flags = ["-std=c++17", "-O0", "-fPIC", "-shared", "-fvisibility=hidden", f"-I{include}"]
    command: list[str | Path] = ["g++", *flags, source, "-o", library, f"-L{ffi.library}", "-ltvm_ffi"]
    call = run_tool(command, timeout=SECONDS, env={"PATH": settings.path})
    assert call.returncode is not None, f"g++ did not end within {SECONDS:g} s"
    assert call.returncode >= 0, f"g++ was ended by signal {-call.returncode}"
    return call.stderr


def _results(include: Path, folder: Path, settings: Settings) -> list[Any]:
    library = folder / "binding.so"
    assert _compile(DATA / "binding.cc", include, library, settings) == ""
    called = subprocess.run(
        [sys.executable, DATA / "call_binding.py", library], capture_output=True, text=True, check=True
    )
    return list(json.loads(called.stdout))


def test_values_conversions_and_errors_are_those_of_the_real_headers(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "slim").mkdir()
    (tmp_path / "full").mkdir()
    slim = _results(SLIM_HEADERS, tmp_path / "slim", settings)
    full = _results(find_tvm_ffi().include, tmp_path / "full", settings)
    assert slim == full
    kinds = {result[0] for _, _, result, _ in full}
    assert kinds == {"raised", "int", "float", "bool", "NoneType"}, "the calls reach every kind of outcome"


@pytest.mark.parametrize(
    "source",
    [
        "#include <tvm/ffi/container/array.h>",
        "#include <tvm/ffi/container/tensor.h>\ntvm::ffi::Tensor owned();",
        "#include <tvm/ffi/function.h>\nvoid f(tvm::ffi::TensorView*) {}\nTVM_FFI_DLL_EXPORT_TYPED_FUNC(f, f);",
        "#include <tvm/ffi/error.h>\nvoid f() { TVM_FFI_THROW(A) << DLDevice{}; }",
    ],
)
def test_what_the_slim_headers_lack_does_not_compile(settings: Settings, tmp_path: Path, source: str) -> None:
    (tmp_path / "x.cc").write_text(source)
    assert "error" in _compile(tmp_path / "x.cc", SLIM_HEADERS, tmp_path / "x.so", settings)
