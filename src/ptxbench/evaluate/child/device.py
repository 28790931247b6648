"""The judge's own device: what it is, how to put it in a known state, whether it still answers; runs no candidate."""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass
from pathlib import Path

import torch

from ptxbench.errors import DeviceError
from ptxbench.evaluate.statistics import DeviceLimits

# CUdevice_attribute of cuda.h
_CLOCK_KHZ = 13
_SM_COUNT = 16
_MEMORY_CLOCK_KHZ = 36
_BUS_BITS = 37
_L2_BYTES = 38
_MAJOR = 75
_MINOR = 76

FLUSH_FACTOR = 2
"""The flush writes this multiple of the L2's size."""


@dataclass(frozen=True)
class DeviceFacts:
    """What the device says of itself.

    Attributes:
        name: Marketing name.
        uuid: `GPU-...`.
        driver: Version of the kernel driver.
        capability: Compute capability.
        limits: What bounds a kernel's speed.
        l2_bytes: Size of the L2 cache.
        total_bytes: Size of device memory.
    """

    name: str
    uuid: str
    driver: str
    capability: tuple[int, int]
    limits: DeviceLimits
    l2_bytes: int
    total_bytes: int


class CudaDevice:
    """One GPU in torch's hands."""

    def __init__(self, ordinal: int) -> None:
        if not torch.cuda.is_available():
            what = "torch sees no CUDA device."
            raise DeviceError(what, "Run on a machine with a GPU and a CUDA build of torch.")
        self.torch_device = torch.device("cuda", ordinal)
        torch.cuda.set_device(self.torch_device)
        torch.empty(1, device=self.torch_device)  # makes the context
        self._driver = ctypes.CDLL("libcuda.so.1")
        self.facts = self._read_facts(ordinal)
        self._flush = torch.empty(FLUSH_FACTOR * self.facts.l2_bytes, dtype=torch.uint8, device=self.torch_device)

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        torch.cuda.synchronize(self.torch_device)

    def flush_l2(self) -> None:
        """Write over the whole L2 cache and take back what this context had made persist in it."""
        self._flush.zero_()
        self._driver.cuCtxResetPersistingL2Cache()

    def generator(self, seed: int) -> torch.Generator:
        """A source of random numbers on this device."""
        return torch.Generator(self.torch_device).manual_seed(seed % 2**63)

    def answers(self, seconds: float) -> bool:
        """Whether a small kernel still completes within its time; the probe after a hang or a sticky error (E14).

        A device that does not answer leaves the probing thread blocked, so the process must be replaced.
        """
        done = threading.Event()

        def probe() -> None:
            try:
                right = int(torch.arange(64, device=self.torch_device).sum()) == 64 * 63 // 2
            except RuntimeError:  # torch's errors of a broken context derive from it
                return
            if right:
                done.set()

        threading.Thread(target=probe, daemon=True).start()
        return done.wait(seconds)

    def _attribute(self, number: int, handle: ctypes.c_int) -> int:
        value = ctypes.c_int()
        code = self._driver.cuDeviceGetAttribute(ctypes.byref(value), number, handle)
        if code:
            raise DeviceError(f"cuDeviceGetAttribute({number}) failed with {code}.", "Check the driver's installation.")
        return value.value

    def _read_facts(self, ordinal: int) -> DeviceFacts:
        handle, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        self._driver.cuDeviceGet(ctypes.byref(handle), ordinal)
        self._driver.cuDeviceGetUuid_v2(ctypes.byref(raw), handle)
        text = bytes(raw).hex()
        uuid = "-".join(("GPU", text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        # Double data rate: two transfers of the bus's width per memory clock.
        bandwidth = 2e3 * self._attribute(_MEMORY_CLOCK_KHZ, handle) * self._attribute(_BUS_BITS, handle) / 8
        capability = (self._attribute(_MAJOR, handle), self._attribute(_MINOR, handle))
        return DeviceFacts(
            name=torch.cuda.get_device_name(self.torch_device),
            uuid=uuid,
            driver=driver_version(),
            capability=capability,
            limits=DeviceLimits(
                major=capability[0],
                sm_count=self._attribute(_SM_COUNT, handle),
                max_clock_hz=1e3 * self._attribute(_CLOCK_KHZ, handle),
                bandwidth=bandwidth,
            ),
            l2_bytes=self._attribute(_L2_BYTES, handle),
            total_bytes=torch.cuda.mem_get_info(self.torch_device)[1],
        )


def driver_version(path: Path = Path("/sys/module/nvidia/version")) -> str:
    """Version of the kernel driver, `` where the system does not tell."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""
