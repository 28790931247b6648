"""Torch behind `rules.Ops`, and the shapes of arguments as tensors; holds no rule and makes no data."""

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


def size_of(problem: Problem, spec: TensorSpec, workload: Workload) -> int:
    """Bytes of one argument."""
    size = spec.dtype.itemsize
    for extent in problem.shape(spec, workload):
        size *= extent
    return size
