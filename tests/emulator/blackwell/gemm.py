"""The Blackwell GEMMs of this repository, run on the emulator with small sizes: the kernel alone, no host code."""

from __future__ import annotations

import functools
import struct
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.async_.tensormap import Swizzle, TensorMap, Type, to_bytes
from ptxbench.emulator.launch import KernelLaunch, LaunchResult, Policy, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.parse import parse
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.build import Built, build

ROOT = Path(__file__).parents[3]
GEMM = ROOT / "reference/gemm_n7168_k5120/sm_100a.cu"
PAIR = GEMM.with_name("sm_100a_pair.cu")
SHARED = 227 * 1024
"""Bytes of dynamic shared memory: all that a CTA can have."""


@functools.cache
def built(path: Path) -> Built:
    """The compiled kernel."""
    return build(Candidate.from_source(path.read_text()), Target.SM_100A, Settings.load())


def ptx(path: Path = GEMM) -> str:
    """Its PTX."""
    made = built(path)
    assert made.ptx is not None, made.stage.reason
    return made.ptx.read_text()


def matrix_map(address: int, size: tuple[int, int], box: tuple[int, int]) -> bytes:
    """A map of a row-major bf16 matrix with SW128 boxes (columns, rows)."""
    return to_bytes(
        TensorMap(
            type=Type.BF16,
            address=address,
            dims=(size[1], size[0]),
            strides=(2 * size[1],),
            box=box,
            element_strides=(1, 1),
            swizzle=Swizzle.B128,
        )
    )


def operands(m: int, n: int, k: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Small whole numbers, whose sums are exact in every order."""
    random = np.random.default_rng(m + n + k)
    return random.integers(-2, 3, (m, k)).astype(np.float32), random.integers(-2, 3, (n, k)).astype(np.float32)


def multiply(
    text: str, shape: tuple[int, int, int], ctas: int, schedule: str = "late", cluster: int = 1
) -> tuple[LaunchResult, NDArray[np.float32], NDArray[np.float32]]:
    """Run a GEMM of (M, N, K) on `ctas` CTAs: how it went, C, and what C must be."""
    m, n, k = shape
    bf16 = ml_dtypes.bfloat16
    a, b = operands(m, n, k)
    memory = DeviceMemory(1 << 28)
    sizes = ((m, k), (n, k), (m, n))
    boxes = ((64, 128), (64, 256 // cluster), (64, 128))
    addresses = [memory.allocate(2 * rows * columns) for rows, columns in sizes]
    for address, matrix in zip(addresses, (a, b), strict=False):
        memory.write(address, matrix.astype(bf16).tobytes())
    maps = tuple(matrix_map(*each) for each in zip(addresses, sizes, boxes, strict=True))
    problem = struct.pack("<3i", -(-m // (128 * cluster)), n // 256, k // 64)
    module = parse(text)
    kernel = next(each.name for each in module.functions.values() if each.entry)
    launch = KernelLaunch(
        kernel,
        (ctas, 1, 1),
        (256, 1, 1),
        (cluster, 1, 1),
        dynamic_shared=SHARED,
        parameters=(*maps, problem),
        explicit_cluster=cluster > 1,
    )
    result = run_launch(module, launch, memory, Policy((schedule,), first=0))
    got = np.frombuffer(memory.read(addresses[2], 2 * m * n), bf16).reshape(m, n).astype(np.float32)
    return result, got, (a @ b.T).astype(bf16).astype(np.float32)
