"""The frontier libraries' kernels, called without autograd: cuBLAS, cuDNN, FlashInfer; neither timed nor judged here.

Each is entered so that a call launches the library's kernels alone; what has to be planned is planned in `bind`.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.metadata
import math
from collections.abc import Callable
from functools import cache
from typing import Any, Protocol

import torch

from ptxbench.evaluate.child.tensors import DTYPES, Tensors
from ptxbench.schema.problem import Baseline, Problem
from ptxbench.schema.values import ToolVersion, Unavailable

Call = Callable[[], Tensors]
"""Launches the library's kernels on fixed inputs and returns its outputs by name, without waiting for them."""


class Library(Protocol):
    """One way into one library."""

    name: str
    version: str
    how: str
    """The function that is called."""
    is_reference: bool
    """Its results may serve the published rule (E16)."""

    def bind(self, problem: Problem, inputs: Tensors) -> Call:
        """Prepare a call on these inputs; planning and workspaces happen here."""


class CublasMatmul:
    """C = A B^T by cuBLAS."""

    name = "cublas"
    how = "torch.matmul"
    is_reference = True

    def __init__(self, version: str) -> None:
        self.version = version

    def bind(self, problem: Problem, inputs: Tensors) -> Call:
        """See `Library.bind`."""
        a, b = inputs["A"], inputs["B"].t()
        spec = problem.outputs[0]
        result = torch.empty(a.shape[0], b.shape[1], dtype=DTYPES[spec.dtype], device=a.device)

        def call() -> Tensors:
            torch.matmul(a, b, out=result)
            return {spec.name: result}

        return call


class CudnnForward:
    """O and LSE of attention by cuDNN."""

    name = "cudnn"
    how = "aten._scaled_dot_product_cudnn_attention"
    is_reference = True

    def __init__(self, version: str) -> None:
        self.version = version

    def bind(self, problem: Problem, inputs: Tensors) -> Call:
        """See `Library.bind`."""
        q, k, v = (inputs[name] for name in "QKV")

        def call() -> Tensors:
            found = torch.ops.aten._scaled_dot_product_cudnn_attention(
                q, k, v, None, True, 0.0, problem.causal, False, scale=1 / math.sqrt(q.shape[-1])
            )
            lse = found[1]
            return {"O": found[0], "LSE": lse.squeeze(-1) if lse.dim() > q.dim() - 1 else lse}

        return call


class CudnnBackward:
    """dQ, dK and dV of attention by cuDNN's graph interface; a graph is built once per shape."""

    name = "cudnn"
    how = "cudnn.pygraph sdpa_backward"
    is_reference = True

    def __init__(self, version: str) -> None:
        self.version = version
        self._graphs: dict[tuple[tuple[int, ...], bool], tuple[Any, dict[str, Any], torch.Tensor]] = {}

    def bind(self, problem: Problem, inputs: Tensors) -> Call:
        """See `Library.bind`."""
        shape = tuple(inputs["Q"].shape)
        key = (shape, problem.causal)
        if key not in self._graphs:
            self._graphs[key] = self._build(inputs, problem.causal)
        graph, handles, workspace = self._graphs[key]
        results = {name: torch.empty_like(inputs[name[1]]) for name in ("dQ", "dK", "dV")}
        given = inputs | {"LSE": inputs["LSE"].unsqueeze(-1)} | results
        pack = {handle: given[name] for name, handle in handles.items()}

        def call() -> Tensors:
            graph.execute(pack, workspace, handle=_cudnn_handle())
            return results

        return call

    @staticmethod
    def _build(inputs: Tensors, causal: bool) -> tuple[Any, dict[str, Any], torch.Tensor]:
        cudnn = importlib.import_module("cudnn")
        half, single = cudnn.data_type.BFLOAT16, cudnn.data_type.FLOAT
        graph = cudnn.pygraph(
            io_data_type=half, intermediate_data_type=single, compute_data_type=single, handle=_cudnn_handle()
        )
        given = inputs | {"LSE": inputs["LSE"].unsqueeze(-1)}
        handles = {
            name: graph.tensor(
                name=name,
                dim=list(tensor.shape),
                stride=list(tensor.stride()),
                data_type=single if tensor.dtype is torch.float32 else half,
            )
            for name, tensor in given.items()
        }
        grads = graph.sdpa_backward(
            name="attention_backward",
            q=handles["Q"],
            k=handles["K"],
            v=handles["V"],
            o=handles["O"],
            dO=handles["dO"],
            stats=handles["LSE"],
            attn_scale=1 / math.sqrt(inputs["Q"].shape[-1]),
            use_causal_mask=causal,
        )
        for name, grad in zip(("dQ", "dK", "dV"), grads, strict=True):
            like = inputs[name[1]]
            grad.set_output(True).set_dim(list(like.shape)).set_stride(list(like.stride())).set_data_type(half)
            handles[name] = grad
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([cudnn.heur_mode.A, cudnn.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        workspace = torch.empty(max(1, graph.get_workspace_size()), dtype=torch.uint8, device=inputs["Q"].device)
        return graph, handles, workspace


@cache
def _cudnn_handle() -> Any:  # noqa: ANN401  (an opaque handle of the library)
    cudnn = importlib.import_module("cudnn")
    handle = cudnn.create_handle()
    cudnn.set_stream(handle=handle, stream=torch.cuda.current_stream().cuda_stream)
    return handle


class FlashInferForward:
    """O and LSE of attention by FlashInfer's ragged prefill, in the [rows, heads, D] layout it is written for."""

    name = "flashinfer"
    how = "BatchPrefillWithRaggedKVCacheWrapper"
    is_reference = False  # its LSE is in base 2

    def __init__(self, version: str) -> None:
        self.version = version

    def bind(self, problem: Problem, inputs: Tensors) -> Call:
        """See `Library.bind`."""
        batch, heads, length, dim = inputs["Q"].shape
        q, k, v = (inputs[name].transpose(1, 2).reshape(batch * length, heads, dim).contiguous() for name in "QKV")
        workspace = torch.empty(256 * 2**20, dtype=torch.uint8, device=q.device)
        wrapper = importlib.import_module("flashinfer").BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")
        ends = torch.arange(batch + 1, dtype=torch.int32, device=q.device) * length
        wrapper.plan(ends, ends, heads, heads, dim, causal=problem.causal, q_data_type=q.dtype)

        def call() -> Tensors:
            out, lse = wrapper.run(q, k, v, return_lse=True)
            return {
                "O": out.view(batch, length, heads, dim).transpose(1, 2),
                "LSE": lse.view(batch, length, heads).transpose(1, 2),
            }

        return call


# ---- finding them ----


def find_libraries(problem: Problem) -> tuple[list[Library], list[Unavailable]]:
    """The problem's baselines that are here, in the problem's order, and those that are not."""
    found: list[Library] = []
    missing: list[Unavailable] = []
    for baseline in problem.baselines:
        answer = _library(baseline, problem)
        if isinstance(answer, Unavailable):
            missing.append(answer)
        else:
            found.append(answer)
    return found, missing


def library_versions() -> tuple[tuple[ToolVersion, ...], tuple[Unavailable, ...]]:
    """Every library that can serve as a baseline here, and what is missing."""
    found: list[ToolVersion] = []
    missing: list[Unavailable] = []
    for name, version in (("cublas", cublas_version()), ("cudnn", cudnn_version()), ("flashinfer", flashinfer())):
        if isinstance(version, Unavailable):
            missing.append(version)
        else:
            found.append(ToolVersion(name=name, version=version))
    frontend = _module("cudnn", "cudnn-frontend", "nvidia-cudnn-frontend")
    if isinstance(frontend, Unavailable):
        missing.append(frontend)
    return tuple(found), tuple(missing)


def _library(baseline: Baseline, problem: Problem) -> Library | Unavailable:
    if baseline.name == "cublas":
        version = cublas_version()
        return version if isinstance(version, Unavailable) else CublasMatmul(version)
    if baseline.name == "flashinfer":
        version = flashinfer()
        return version if isinstance(version, Unavailable) else FlashInferForward(version)
    version = cudnn_version()
    if isinstance(version, Unavailable):
        return version
    if problem.op == "attention_forward":
        return CudnnForward(version)
    frontend = _module("cudnn", "cudnn", "nvidia-cudnn-frontend")
    return frontend if isinstance(frontend, Unavailable) else _backward(version)


@cache
def _backward(version: str) -> CudnnBackward:
    return CudnnBackward(version)


@cache
def cublas_version() -> str | Unavailable:
    """Version of the cuBLAS that torch has loaded, by the library's own word."""
    if not torch.cuda.is_available():
        return Unavailable(name="cublas", reason="torch sees no CUDA device", remedy="Run on a machine with a GPU.")
    torch.zeros(16, 16, device="cuda") @ torch.zeros(16, 16, device="cuda")  # loads the library
    number = ctypes.c_int()
    parts = []
    try:
        library = ctypes.CDLL(f"libcublas.so.{(torch.version.cuda or '0').split('.')[0]}")
        for which in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL of libraryPropertyType
            library.cublasGetProperty(which, ctypes.byref(number))
            parts.append(str(number.value))
    except (OSError, AttributeError) as error:
        return Unavailable(name="cublas", reason=str(error), remedy="Install a torch that is linked to cuBLAS.")
    return ".".join(parts)


@cache
def cudnn_version() -> str | Unavailable:
    """Version of the cuDNN that torch has loaded."""
    number = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    if number is None:
        return Unavailable(name="cudnn", reason="torch has no cuDNN here", remedy="Install torch with cuDNN 9.")
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def flashinfer() -> str | Unavailable:
    """Version of FlashInfer."""
    return _module("flashinfer", "flashinfer", "flashinfer-python")


@cache
def _module(module: str, name: str, package: str) -> str | Unavailable:
    try:
        importlib.import_module(module)
        return importlib.metadata.version(package)
    except (ImportError, OSError, RuntimeError, importlib.metadata.PackageNotFoundError) as error:
        return Unavailable(name=name, reason=str(error), remedy=f"Install it: pip install {package}")
