"""The CUDA driver through ctypes, as far as probes need it: a context, machine code, memory, tensor maps, launches."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

from tests.gpu.probes.probe import Probe

from ptxbench.emulator.async_.tensormap import TensorMap

DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
CLUSTER = 4  # CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
RUNTIME_NAMES = {"CUDA_ERROR_LAUNCH_FAILED": "cudaErrorLaunchFailure"}


class DriverError(Exception):
    """A call that failed; the text is CUDA's name of the error as the runtime spells it."""


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("sizes", ctypes.c_uint * 6),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def runtime_name(name: str) -> str:
    """`CUDA_ERROR_ILLEGAL_ADDRESS` as `cudaErrorIllegalAddress`."""
    words = name.removeprefix("CUDA_ERROR_").split("_")
    return RUNTIME_NAMES.get(name, "cudaError" + "".join(word.capitalize() for word in words))


def _array(
    kind: type[ctypes._SimpleCData[int]], values: Sequence[int], least: int = 5
) -> ctypes.Array[ctypes._SimpleCData[int]]:
    return (kind * max(len(values), least))(*values)


class Driver:
    """One context on the first device.

    Raises:
        OSError: There is no driver.
        DriverError: A call failed.
    """

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context, self.module = ctypes.c_void_p(), ctypes.c_void_p()
        self.device = ctypes.c_int()
        self.check(self.cuda.cuInit(0))
        self.check(self.cuda.cuDeviceGet(ctypes.byref(self.device), 0))
        self.check(self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), self.device))
        self.check(self.cuda.cuCtxSetCurrent(context))

    def check(self, code: int) -> None:
        """Raise what a call returned."""
        if code:
            name = ctypes.c_char_p()
            self.cuda.cuGetErrorName(code, ctypes.byref(name))
            raise DriverError(runtime_name((name.value or b"CUDA_ERROR_UNKNOWN").decode()))

    def usable(self) -> bool:
        """Whether the context has no error that stays."""
        return self.cuda.cuCtxSynchronize() == 0

    def name(self) -> str:
        """The device's name."""
        text = ctypes.create_string_buffer(100)
        self.check(self.cuda.cuDeviceGetName(text, 100, self.device))
        return text.value.decode()

    def load(self, code: bytes) -> None:
        """Load a cubin."""
        self.check(self.cuda.cuModuleLoadData(ctypes.byref(self.module), code))

    def upload(self, data: bytes) -> ctypes.c_uint64:
        """A new allocation with this content."""
        address = ctypes.c_uint64()
        self.check(self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(max(len(data), 16))))
        self.check(self.cuda.cuMemcpyHtoD_v2(address, data, ctypes.c_size_t(len(data))))
        return address

    def run(self, entry: str, probe: Probe) -> bytes:
        """Launch an entry of the loaded module; the output buffer afterwards."""
        given, out = self.upload(probe.given), self.upload(probe.output)
        parameters = [given, out]
        maps = [self.encode(each, out.value) for each in probe.maps]
        pointers = (ctypes.c_void_p * (2 + len(maps)))(*map(ctypes.addressof, [*parameters, *maps]))
        function = ctypes.c_void_p()
        self.check(self.cuda.cuModuleGetFunction(ctypes.byref(function), self.module, entry.encode()))
        self.check(self.cuda.cuFuncSetAttribute(function, DYNAMIC_SHARED, probe.shared))
        config = _Config((ctypes.c_uint * 6)(*probe.grid, *probe.block), probe.shared)
        attribute = _Attribute(CLUSTER, b"", (ctypes.c_uint * 16)(*probe.cluster))
        if probe.cluster != (1, 1, 1):
            config.attributes, config.count = ctypes.pointer(attribute), 1
        self.check(self.cuda.cuLaunchKernelEx(ctypes.byref(config), function, pointers, None))
        self.check(self.cuda.cuCtxSynchronize())
        result = ctypes.create_string_buffer(probe.out)
        self.check(self.cuda.cuMemcpyDtoH_v2(result, out, ctypes.c_size_t(probe.out)))
        for address in parameters:
            self.check(self.cuda.cuMemFree_v2(address))
        return result.raw

    def encode(self, tensor_map: TensorMap, base: int) -> ctypes.Array[ctypes.c_char]:
        """A 128-byte tensor map on a 64-byte boundary; its address counts from `base`."""
        t = replace(tensor_map, address=tensor_map.address + base)
        room = (ctypes.c_char * (128 + 64))()
        made = (ctypes.c_char * 128).from_buffer(room, -ctypes.addressof(room) % 64)
        first = [made, t.type, t.rank, ctypes.c_uint64(t.address), _array(ctypes.c_uint64, t.dims)]
        first.append(_array(ctypes.c_uint64, t.strides))
        last = [_array(ctypes.c_uint32, t.element_strides), t.interleave, t.swizzle, t.l2, t.fill]
        if t.im2col is None:
            self.check(self.cuda.cuTensorMapEncodeTiled(*first, _array(ctypes.c_uint32, t.box), *last))
            return made
        corners = [_array(ctypes.c_int, t.im2col.lower), _array(ctypes.c_int, t.im2col.upper)]
        column = [ctypes.c_uint32(t.im2col.channels), ctypes.c_uint32(t.im2col.pixels)]
        self.check(self.cuda.cuTensorMapEncodeIm2col(*first, *corners, *column, *last))
        return made
