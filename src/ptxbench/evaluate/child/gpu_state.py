"""Clock, power, temperature and throttle reasons of the GPU, by the driver's NVML; changes nothing on the device.

NVML is called through ctypes: the library comes with every driver, and a reading takes under a millisecond, where
nvidia-smi would hold the device for a tenth of a second.
"""

from __future__ import annotations

import ctypes
from typing import Protocol

from ptxbench.schema.stages import GpuState
from ptxbench.schema.values import ToolVersion, Unavailable

LIBRARY = "libnvidia-ml.so.1"

THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of NVML's clock event reasons that mean the clock was held back (nvml.h, nvmlClocksEventReason*)."""

_CLOCK_SM = 1  # NVML_CLOCK_SM
_TEMPERATURE_GPU = 0  # NVML_TEMPERATURE_GPU


class StateReader(Protocol):
    """Reads the state of one GPU."""

    @property
    def tool(self) -> ToolVersion:
        """What reads it."""

    def read(self) -> GpuState | None:
        """The state now; None where the driver does not tell."""


class NvmlReader:
    """The state of one GPU by NVML.

    Raises:
        OSError: The library is missing, refuses to start, or does not know the GPU.
    """

    def __init__(self, uuid: str) -> None:
        self._nvml = ctypes.CDLL(LIBRARY)
        self._handle = ctypes.c_void_p()
        version = ctypes.create_string_buffer(80)
        for name, code in (
            ("nvmlInit_v2", self._nvml.nvmlInit_v2()),
            ("nvmlSystemGetNVMLVersion", self._nvml.nvmlSystemGetNVMLVersion(version, ctypes.c_uint(80))),
            (
                "nvmlDeviceGetHandleByUUID",
                self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._handle)),
            ),
        ):
            if code:
                raise OSError(f"{name} answers {code}")
        self.tool = ToolVersion(name="nvml", version=version.value.decode())

    def read(self) -> GpuState | None:
        """See `StateReader.read`."""
        clock, power, temperature = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
        active = ctypes.c_ulonglong()
        codes = (
            self._nvml.nvmlDeviceGetClockInfo(self._handle, _CLOCK_SM, ctypes.byref(clock)),
            self._nvml.nvmlDeviceGetPowerUsage(self._handle, ctypes.byref(power)),
            self._nvml.nvmlDeviceGetTemperature(self._handle, _TEMPERATURE_GPU, ctypes.byref(temperature)),
            self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle, ctypes.byref(active)),
        )
        if any(codes):
            return None
        return GpuState(
            sm_clock_mhz=clock.value,
            power_w=power.value / 1000,
            temperature_c=temperature.value,
            throttle_reasons=throttle_reasons(active.value),
        )


def open_reader(uuid: str) -> StateReader | Unavailable:
    """A reader for the GPU of that UUID (`GPU-...`), or why there is none."""
    try:
        return NvmlReader(uuid)
    except OSError as error:
        return Unavailable(name="nvml", reason=str(error), remedy="Check the driver with `nvidia-smi`.")


def throttle_reasons(bits: int) -> tuple[str, ...]:
    """Names of the throttle reasons in a mask."""
    return tuple(name for bit, name in THROTTLE.items() if bits & bit)
