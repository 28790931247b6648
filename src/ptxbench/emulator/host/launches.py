"""Whether a device would accept a launch, as an error code with the reason; the launch itself is run elsewhere.

Limits: CUDA programming guide, technical specifications for compute capability 9.0 and 10.0, and what an H200 answered.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from ptxbench.emulator.host.device import (
    MAX_BLOCK,
    MAX_CLUSTER,
    MAX_GRID,
    MAX_THREADS,
    PLAIN_SHARED,
    PORTABLE_CLUSTER,
    SHARED,
    HostDevice,
)
from ptxbench.emulator.host.kernels import KernelInfo

INVALID_VALUE = 1
INVALID_CONFIGURATION = 9
OUT_OF_RESOURCES = 701
COOPERATIVE_TOO_LARGE = 720
INVALID_CLUSTER = 912
# Numbers of cudaFuncAttribute; the hints are the shared memory carve-out and the clusters' scheduling policy.
_DYNAMIC_SHARED, _NON_PORTABLE = 8, 14
_HINTS = (9, 15)


@dataclass(frozen=True)
class Failure:
    """An error that a call returns: its code, and the reason for people."""

    code: int
    reason: str


@dataclass(frozen=True)
class KernelState:
    """A kernel and the attributes that host code has set for it."""

    info: KernelInfo
    dynamic_shared: int = -1
    """Greatest dynamic shared memory in bytes; -1 while it was not set."""
    non_portable: bool = False

    @property
    def most_dynamic(self) -> int:
        """Bytes of dynamic shared memory that a launch may ask for."""
        return max(self.dynamic_shared, PLAIN_SHARED - self.info.static_shared, 0)

    def with_attribute(self, number: int, value: int) -> KernelState | Failure:
        """After cudaFuncSetAttribute."""
        if number == _DYNAMIC_SHARED:
            most = SHARED - self.info.static_shared
            if not 0 <= value <= most:
                return Failure(INVALID_VALUE, f"{value} bytes of dynamic shared memory, a block can have {most}")
            return replace(self, dynamic_shared=value)
        if number == _NON_PORTABLE:
            return replace(self, non_portable=value != 0)
        if number in _HINTS:
            return self
        return Failure(INVALID_VALUE, f"the function attribute {number} cannot be set")


@dataclass(frozen=True)
class LaunchShape:
    """A launch without its parameters; a cluster of zeros is one that was not asked for."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_shared: int
    cooperative: bool = False


def check_launch(device: HostDevice, kernel: KernelState, shape: LaunchShape) -> Failure | tuple[int, int, int]:
    """The cluster that the launch gets, or why the device refuses it."""
    return (
        _configuration(shape)
        or _resources(device, kernel, shape)
        or _cluster(kernel, shape)
        or (shape.cluster if all(shape.cluster) else kernel.info.required_cluster or (1, 1, 1))
    )


def _configuration(shape: LaunchShape) -> Failure | None:
    for name, sizes, limits in (("grid", shape.grid, MAX_GRID), ("block", shape.block, MAX_BLOCK)):
        if not all(1 <= size <= limit for size, limit in zip(sizes, limits, strict=True)):
            return Failure(INVALID_CONFIGURATION, f"a {name} of {sizes}, the greatest is {limits}")
    if prod(shape.block) > MAX_THREADS:
        return Failure(INVALID_CONFIGURATION, f"{prod(shape.block)} threads per block, the most is {MAX_THREADS}")
    return None


def _resources(device: HostDevice, kernel: KernelState, shape: LaunchShape) -> Failure | None:
    info, threads = kernel.info, prod(shape.block)
    if shape.dynamic_shared > kernel.most_dynamic:
        asked = f"{shape.dynamic_shared} bytes of dynamic shared memory, {kernel.most_dynamic} are allowed"
        return Failure(INVALID_VALUE, f"{asked}; cudaFuncSetAttribute raises that up to {SHARED - info.static_shared}")
    if info.max_threads and threads > info.max_threads:
        return Failure(INVALID_VALUE, f"{threads} threads, the kernel was compiled for at most {info.max_threads}")
    if info.required_block and shape.block != info.required_block:
        return Failure(INVALID_VALUE, f"a block of {shape.block}, the kernel was compiled for {info.required_block}")
    blocks = device.blocks_per_sm(info, threads, shape.dynamic_shared)
    if blocks == 0:
        return Failure(OUT_OF_RESOURCES, f"{threads} threads of {info.registers} registers are too many for an SM")
    if shape.cooperative and prod(shape.grid) > blocks * device.multiprocessors:
        most = blocks * device.multiprocessors
        return Failure(COOPERATIVE_TOO_LARGE, f"{prod(shape.grid)} cooperating blocks, the device holds {most} at once")
    return None


def _cluster(kernel: KernelState, shape: LaunchShape) -> Failure | None:
    required = kernel.info.required_cluster
    if not any(shape.cluster) and required is None:
        return None
    cluster = shape.cluster if any(shape.cluster) else required
    assert cluster is not None
    if required is not None and cluster != required:
        return Failure(INVALID_CLUSTER, f"a cluster of {cluster}, the kernel was compiled for {required}")
    most = MAX_CLUSTER if kernel.non_portable else PORTABLE_CLUSTER
    if not all(cluster) or prod(cluster) > most:
        return Failure(INVALID_CLUSTER, f"a cluster of {cluster}, at most {most} blocks form one")
    if any(blocks % size for blocks, size in zip(shape.grid, cluster, strict=True)):
        return Failure(INVALID_VALUE, f"a grid of {shape.grid} is not made of clusters of {cluster}")
    return None
