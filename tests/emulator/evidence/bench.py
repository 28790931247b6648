"""A bench for kernels: CUDA sources as PTX modules, arrays in emulated memory, tensor maps, launches by hand."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.async_.encode import encode
from ptxbench.emulator.async_.tensormap import Swizzle, TensorMap, Type
from ptxbench.emulator.launch import KernelLaunch, LaunchResult, Policy, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.ir import Module
from ptxbench.emulator.ptx.parse import parse
from ptxbench.settings import Settings
from ptxbench.toolchain.toolkit import find_toolkit, find_tvm_ffi

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT / "tests" / "kernels"
BF16 = np.dtype(ml_dtypes.bfloat16)
Array = NDArray[Any]


def one_thread() -> None:
    """Keep NumPy's products to one thread: the tests share the machine, and small products only lose by more."""
    for library in (Path(np.__file__).parents[1] / "numpy.libs").glob("*openblas*"):
        ctypes.CDLL(str(library)).scipy_openblas_set_num_threads64_(1)


one_thread()


@functools.cache
def ptx_of(source: Path, *flags: str) -> str:
    """The PTX text that nvcc makes of a CUDA source, with line information."""
    toolkit = find_toolkit(Settings.load())
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernel.ptx"
        words = [str(toolkit.nvcc), "-ptx", "-gencode", "arch=compute_90a,code=compute_90a", "-O3", "-std=c++17"]
        words += ["-lineinfo", *flags, "-I", str(find_tvm_ffi().include), "-o", str(out), str(source)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return out.read_text()


@functools.cache
def compiled(source: Path, *flags: str) -> Module:
    """`ptx_of`, parsed."""
    return parse(ptx_of(source, *flags))


def bf16(generator: np.random.Generator, *shape: int) -> Array:
    """Normal numbers."""
    return generator.standard_normal(shape, np.float32).astype(BF16)


def f32(array: Array) -> NDArray[np.float32]:
    """The same values as float32."""
    return array.astype(np.float32)


@dataclass
class Bench:
    """One emulated device.

    Attributes:
        seconds: Processor time of the last launch, which other work on the machine does not lengthen.
    """

    policy: Policy = field(default_factory=Policy)
    memory: DeviceMemory = field(default_factory=lambda: DeviceMemory(1 << 30))
    seconds: float = 0.0

    def upload(self, array: Array) -> int:
        """Copies an array there; its address."""
        address = self.memory.allocate(array.nbytes)
        self.memory.write(address, array.tobytes())
        return address

    def download(self, address: int, shape: Sequence[int], dtype: Any) -> Array:
        """A copy of what is there."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return np.frombuffer(self.memory.read(address, size), dtype).reshape(shape)

    def launch(self, module: Module, launch: KernelLaunch) -> LaunchResult:
        """Runs a kernel."""
        start = time.process_time()
        result = run_launch(module, launch, self.memory, self.policy)
        self.seconds = time.process_time() - start
        return result


def tile_map(address: int, dims: Sequence[int], box: Sequence[int]) -> bytes:
    """A map of a dense row-major bf16 tensor, dimension 0 innermost, read in SW128 boxes."""
    strides = [2 * int(np.prod(dims[:place])) for place in range(1, len(dims))]
    made = encode(
        TensorMap(
            type=Type.BF16,
            address=address,
            dims=tuple(dims),
            strides=tuple(strides),
            box=tuple(box),
            element_strides=(1,) * len(dims),
            swizzle=Swizzle.B128,
        )
    )
    assert isinstance(made, bytes), made
    return made


def word(value: int) -> bytes:
    """A 32-bit parameter."""
    return value.to_bytes(4, "little", signed=True)


def pointer(value: int) -> bytes:
    """A 64-bit parameter."""
    return value.to_bytes(8, "little")


def entry(module: Module, part: str = "") -> str:
    """The name of the only kernel, or of the only one that has `part` in its name."""
    (name,) = [each.name for each in module.functions.values() if each.entry and part in each.name]
    return name
