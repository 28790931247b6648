"""Settings with one cache for the whole session, and the few real builds that many tests look at."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from ptxbench.schema.candidate import Candidate
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.build import Built, build
from ptxbench.toolchain.toolkit import Toolkit, find_toolkit

ROOT = Path(__file__).parents[2]

KERNEL = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
namespace {
__global__ void scale(float* x, int n) {
  __shared__ float tile[32];
  tile[threadIdx.x % 32] = x[threadIdx.x];
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < n) x[threadIdx.x] = 2.0f * tile[31 - threadIdx.x % 32];
}
}  // namespace
void run(tvm::ffi::TensorView x) { scale<<<1, 32>>>(static_cast<float*>(x.data_ptr()), x.size(0)); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
"""


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return dataclasses.replace(Settings.load(), cache=tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def toolkit(settings: Settings) -> Toolkit:
    return find_toolkit(settings)


@pytest.fixture(scope="session")
def built(settings: Settings) -> Built:
    """A passing build of a small kernel."""
    return build(Candidate.from_source(KERNEL), Target.SM_90A, settings)


@pytest.fixture(scope="session")
def library(built: Built) -> Path:
    assert built.library is not None, built.stage.log
    return built.library
