"""Runs command lines in this process and gives what a shell would see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from ptxbench.cli.main import run


@dataclass(frozen=True)
class Ended:
    """What a shell sees of a command."""

    code: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Standard error with its line breaks taken out."""
        return " ".join(self.err.split())


Run = Callable[..., Ended]


@pytest.fixture
def ptxbench(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    """Runs `ptxbench ARGUMENTS`; the build cache lies in a folder of this run of the tests."""
    monkeypatch.setenv("PTXBENCH_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))

    def call(*arguments: str | Path) -> Ended:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Ended(code, captured.out, captured.err)

    return call


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """A kernel file that compiles; it is right for no problem."""
    path = tmp_path / "kernel.cu"
    path.write_text(
        "#include <tvm/ffi/container/tensor.h>\n"
        "#include <tvm/ffi/function.h>\n"
        "void run(tvm::ffi::TensorView a, tvm::ffi::TensorView b, tvm::ffi::TensorView c) {}\n"
        "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);\n"
    )
    return path
