"""Device memory of the judge that a candidate process may map: dedicated allocations between guard regions (E13).

Plain driver API through ctypes; tensors over it are the judge's business, and torch's own cache is never exported.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ptxbench.errors import DeviceError

GUARD = 64 * 1024
"""Bytes before the data, and at least as many behind it."""

ALIGNMENT = 1024
"""Bytes; what TMA with 128-byte swizzle wants of a tensor's first tile, and more than cudaMalloc promises."""

_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp of cuda.h."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("compression", ctypes.c_ubyte),
        ("rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


@dataclass(frozen=True)
class CudaView:
    """Bytes on a device for libraries that read `__cuda_array_interface__` (version 3), as uint8 [nbytes]."""

    pointer: int
    nbytes: int
    owner: object
    """Kept alive as long as the view."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"shape": (self.nbytes,), "typestr": "|u1", "data": (self.pointer, False), "version": 3, "strides": None}


@dataclass(frozen=True)
class Buffer:
    """One exportable allocation: [guard | data | guard to the end].

    Attributes:
        base: Device address of the mapping.
        offset: Bytes from `base` to the data.
        nbytes: Bytes of data.
        size: Bytes of the whole mapping.
        fd: Descriptor that another process imports.
    """

    base: int
    offset: int
    nbytes: int
    size: int
    fd: int
    handle: int

    @property
    def data_ptr(self) -> int:
        """Device address of the data."""
        return self.base + self.offset

    def data(self) -> CudaView:
        """The data alone."""
        return CudaView(self.data_ptr, self.nbytes, self)

    def guards(self) -> tuple[CudaView, CudaView]:
        """What lies before and behind the data; nobody but the judge has a reason to write there."""
        behind = self.offset + self.nbytes
        return CudaView(self.base, self.offset, self), CudaView(self.base + behind, self.size - behind, self)


class DeviceMemory:
    """Makes buffers on one device and frees them together.

    Args:
        device: Ordinal in this process.
        library: The driver; a path, or the name that the loader finds.
    """

    def __init__(self, device: int, library: str = "libcuda.so.1") -> None:
        try:
            self._cuda = ctypes.CDLL(library)
        except OSError as error:
            raise DeviceError(f"The CUDA driver cannot be loaded: {error}.", "Install an NVIDIA driver.") from error
        self.device = device
        self._buffers: list[Buffer] = []
        self._check(self._cuda.cuInit(0), "cuInit")
        handle, context = ctypes.c_int(), ctypes.c_void_p()
        self._check(self._cuda.cuDeviceGet(ctypes.byref(handle), device), "cuDeviceGet")
        self._check(self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), "cuDevicePrimaryCtxRetain")
        self._check(self._cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
        self._properties = _Properties(type=_PINNED, handle_types=_DESCRIPTOR, location=_Location(_DEVICE, device))
        granularity = ctypes.c_size_t()
        code = self._cuda.cuMemGetAllocationGranularity(ctypes.byref(granularity), ctypes.byref(self._properties), 0)
        self._check(code, "cuMemGetAllocationGranularity")
        self._granularity = granularity.value

    def __enter__(self) -> DeviceMemory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def allocate(self, nbytes: int) -> Buffer:
        """An exportable buffer of `nbytes` bytes of data; its contents are undefined.

        Raises:
            DeviceError: The device has no room or refuses.
        """
        size = -(-(GUARD + nbytes + GUARD) // self._granularity) * self._granularity
        handle, base, fd = ctypes.c_uint64(), ctypes.c_uint64(), ctypes.c_int(-1)
        code = self._cuda.cuMemCreate(
            ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(self._properties), ctypes.c_uint64(0)
        )
        self._check(code, "cuMemCreate")
        steps: list[tuple[str, Callable[[], int]]] = [
            ("cuMemExportToShareableHandle", lambda: self._export(fd, handle)),
            ("cuMemAddressReserve", lambda: self._reserve(base, size)),
            ("cuMemMap", lambda: self._map(base, size, handle)),
            ("cuMemSetAccess", lambda: self._allow(base, size)),
        ]
        for name, step in steps:
            code = step()
            if code:
                self._cuda.cuMemRelease(handle)
                self._check(code, name)
        os.set_inheritable(fd.value, False)
        buffer = Buffer(base.value, GUARD, nbytes, size, fd.value, handle.value)
        self._buffers.append(buffer)
        return buffer

    def _export(self, fd: ctypes.c_int, handle: ctypes.c_uint64) -> int:
        return int(
            self._cuda.cuMemExportToShareableHandle(
                ctypes.byref(fd), handle, ctypes.c_int(_DESCRIPTOR), ctypes.c_uint64(0)
            )
        )

    def _reserve(self, base: ctypes.c_uint64, size: int) -> int:
        zero = ctypes.c_uint64(0)
        return int(
            self._cuda.cuMemAddressReserve(ctypes.byref(base), ctypes.c_size_t(size), ctypes.c_size_t(0), zero, zero)
        )

    def _map(self, base: ctypes.c_uint64, size: int, handle: ctypes.c_uint64) -> int:
        return int(self._cuda.cuMemMap(base, ctypes.c_size_t(size), ctypes.c_size_t(0), handle, ctypes.c_uint64(0)))

    def _allow(self, base: ctypes.c_uint64, size: int) -> int:
        access = _Access(_Location(_DEVICE, self.device), _READ_WRITE)
        return int(self._cuda.cuMemSetAccess(base, ctypes.c_size_t(size), ctypes.byref(access), ctypes.c_size_t(1)))

    def free(self, buffer: Buffer) -> None:
        """Give one buffer back; nothing may use it any more, in this process or another."""
        self._buffers.remove(buffer)
        os.close(buffer.fd)
        base, size = ctypes.c_uint64(buffer.base), ctypes.c_size_t(buffer.size)
        self._check(self._cuda.cuMemUnmap(base, size), "cuMemUnmap")
        self._check(self._cuda.cuMemAddressFree(base, size), "cuMemAddressFree")
        self._check(self._cuda.cuMemRelease(ctypes.c_uint64(buffer.handle)), "cuMemRelease")

    def close(self) -> None:
        """Give every buffer back."""
        for buffer in list(self._buffers):
            self.free(buffer)

    def _check(self, code: int, call: str) -> None:
        if code == 0:
            return
        text = ctypes.c_char_p()
        self._cuda.cuGetErrorName(ctypes.c_int(code), ctypes.byref(text))
        name = text.value.decode() if text.value else str(code)
        remedy = "Free memory on the device." if code == _OUT_OF_MEMORY else ""
        raise DeviceError(f"{call} on device {self.device} answers {name}.", remedy)
