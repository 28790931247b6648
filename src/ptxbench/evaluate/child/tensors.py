"""Torch behind `rules.Ops`, and torch's view of raw device memory; holds no rule and makes no data."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ptxbench.schema.problem import DType, Problem, TensorSpec, Workload

Tensors = dict[str, torch.Tensor]
"""Tensors by argument name."""

DTYPES = {DType.BFLOAT16: torch.bfloat16, DType.FLOAT16: torch.float16, DType.FLOAT32: torch.float32}
"""Torch's type for each element type of problems."""


class TorchOps:
    """`rules.Ops` on tensors of any device."""

    xp: Any = torch

    def cast(self, array: torch.Tensor, dtype: str) -> torch.Tensor:
        """See `rules.Ops.cast`."""
        return array.to(getattr(torch, dtype))

    def to_numpy(self, array: torch.Tensor) -> NDArray[Any]:
        """See `rules.Ops.to_numpy`."""
        return np.asarray(array.cpu().numpy())


TORCH = TorchOps()


class _Raw:
    """Device memory as the CUDA array interface (version 3) describes it: bytes, without an owner."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "strides": None,
            "version": 3,
        }


def device_bytes(pointer: int, nbytes: int, device: torch.device) -> torch.Tensor:
    """Device memory at `pointer` as a uint8 tensor [nbytes]; whoever mapped the memory keeps it mapped."""
    return torch.as_tensor(_Raw(pointer, nbytes), device=device)


def size_of(problem: Problem, spec: TensorSpec, workload: Workload) -> int:
    """Bytes of one argument."""
    size = spec.dtype.itemsize
    for extent in problem.shape(spec, workload):
        size *= extent
    return size


def empty_outputs(problem: Problem, workload: Workload, device: torch.device) -> Tensors:
    """Fresh tensors of torch's own memory for every output of a problem."""
    return {
        spec.name: torch.empty(problem.shape(spec, workload), dtype=DTYPES[spec.dtype], device=device)
        for spec in problem.outputs
    }
