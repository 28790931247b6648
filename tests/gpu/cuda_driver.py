"""The CUDA driver API through ctypes, as far as the recorder of the emulator's truth needs it; no torch, no NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p

from ptxbench.emulator.async_.tensormap import TensorMap

MAP_BYTES = 128


class CudaError(Exception):
    """A call failed; the text is CUDA's name of the error."""


class Driver:
    """One device's primary context, current in this thread."""

    def __init__(self) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._call("cuInit", 0)
        device, context = c_int(), c_void_p()
        self._call("cuDeviceGet", byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self.device = device

    def _call(self, name: str, *arguments: object) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = c_char_p()
            self._cuda.cuGetErrorName(code, byref(text))
            raise CudaError((text.value or b"CUDA_ERROR_UNKNOWN").decode())

    def name(self) -> str:
        """Of the device, with the driver's version."""
        buffer = ctypes.create_string_buffer(100)
        self._call("cuDeviceGetName", buffer, 100, self.device)
        version = c_int()
        self._call("cuDriverGetVersion", byref(version))
        return f"{buffer.value.decode()}, driver API {version.value}"

    def allocate(self, size: int) -> int:
        """Device memory."""
        address = c_uint64()
        self._call("cuMemAlloc_v2", byref(address), c_size_t(size))
        return address.value

    def fill(self, address: int, byte: int, size: int) -> None:
        """Sets bytes."""
        self._call("cuMemsetD8_v2", c_uint64(address), ctypes.c_ubyte(byte), c_size_t(size))

    def write(self, address: int, data: bytes) -> None:
        """Copies to the device."""
        self._call("cuMemcpyHtoD_v2", c_uint64(address), data, c_size_t(len(data)))

    def read(self, address: int, size: int) -> bytes:
        """Copies from the device."""
        buffer = ctypes.create_string_buffer(size)
        self._call("cuMemcpyDtoH_v2", buffer, c_uint64(address), c_size_t(size))
        return buffer.raw

    def load(self, image: bytes) -> c_void_p:
        """A module from a cubin or from PTX text."""
        module = c_void_p()
        self._call("cuModuleLoadData", byref(module), image)
        return module

    def function(self, module: c_void_p, name: str) -> c_void_p:
        """A kernel of a module."""
        found = c_void_p()
        self._call("cuModuleGetFunction", byref(found), module, name.encode())
        return found

    def launch(
        self, function: c_void_p, grid: Sequence[int], block: Sequence[int], shared: int, parameters: Sequence[bytes]
    ) -> None:
        """Launches on the default stream and waits for the end."""
        held = [ctypes.create_string_buffer(each, len(each)) for each in parameters]
        pointers = (c_void_p * len(held))(*(ctypes.addressof(each) for each in held))
        sizes = [c_uint(each) for each in (*grid, *block, shared)]
        self._call("cuLaunchKernel", function, *sizes, None, pointers, None)
        self._call("cuCtxSynchronize")

    def tensor_map(self, shape: TensorMap) -> bytes:
        """The driver's encoding of a map."""
        rank = shape.rank
        raw = (ctypes.c_ubyte * (MAP_BYTES + 64))()
        start = -(-ctypes.addressof(raw) // 64) * 64
        dims, strides = (c_uint64 * rank)(*shape.dims), (c_uint64 * max(rank - 1, 1))(*shape.strides)
        steps = (c_uint * rank)(*shape.element_strides)
        head = [c_void_p(start), c_int(shape.type), c_uint(rank), c_void_p(shape.address), dims, strides]
        tail = [steps, c_int(shape.interleave), c_int(shape.swizzle), c_int(shape.l2), c_int(shape.fill)]
        if shape.im2col is None:
            self._call("cuTensorMapEncodeTiled", *head, (c_uint * rank)(*shape.box), *tail)
        else:
            corners = [(c_int * (rank - 2))(*each) for each in (shape.im2col.lower, shape.im2col.upper)]
            middle = [*corners, c_uint(shape.im2col.channels), c_uint(shape.im2col.pixels)]
            self._call("cuTensorMapEncodeIm2col", *head, *middle, *tail)
        return ctypes.string_at(start, MAP_BYTES)
