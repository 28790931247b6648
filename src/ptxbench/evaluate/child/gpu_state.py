"""Clock, power, temperature and throttle reasons of the GPU, by NVML or nvidia-smi; changes nothing on the device."""

from __future__ import annotations

import importlib
import subprocess
from typing import Any, Protocol

from ptxbench.schema.stages import GpuState
from ptxbench.schema.values import ToolVersion, Unavailable

THROTTLE = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of NVML's clock event reasons that mean the clock was held back (nvml.h, nvmlClocksEventReason*)."""

FIELDS = "clocks.sm,power.draw,temperature.gpu,clocks_throttle_reasons.active"


class StateReader(Protocol):
    """Reads the state of one GPU."""

    tool: ToolVersion

    def read(self) -> GpuState | None:
        """The state now; None where the driver does not tell."""


class NvmlReader:
    """By the driver's management library; about a millisecond."""

    def __init__(self, nvml: Any, uuid: str) -> None:  # noqa: ANN401  (a module without types)
        nvml.nvmlInit()
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByUUID(uuid.encode())
        self.tool = ToolVersion(name="nvml", version=_text(nvml.nvmlSystemGetNVMLVersion()))

    def read(self) -> GpuState | None:
        """See `StateReader.read`."""
        nvml = self._nvml
        try:
            return GpuState(
                sm_clock_mhz=nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM),
                power_w=nvml.nvmlDeviceGetPowerUsage(self._handle) / 1000,
                temperature_c=nvml.nvmlDeviceGetTemperature(self._handle, nvml.NVML_TEMPERATURE_GPU),
                throttle_reasons=reasons(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)),
            )
        except nvml.NVMLError:
            return None


class SmiReader:
    """By nvidia-smi; tens of milliseconds, so it is read outside the samples."""

    def __init__(self, uuid: str) -> None:
        self._command = ("nvidia-smi", f"--id={uuid}", f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits")
        self.tool = ToolVersion(name="nvidia-smi", version=_smi("nvidia-smi", "--version").partition("\n")[0])

    def read(self) -> GpuState | None:
        """See `StateReader.read`."""
        return parse_smi(_smi(*self._command))


def open_reader(uuid: str) -> StateReader | Unavailable:
    """The best reader there is for the GPU of that UUID."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return _open_smi(uuid)
    try:
        return NvmlReader(nvml, uuid)
    except nvml.NVMLError as error:
        return Unavailable(name="nvml", reason=str(error), remedy="Check the driver with `nvidia-smi`.")


def _open_smi(uuid: str) -> StateReader | Unavailable:
    try:
        return SmiReader(uuid)
    except OSError as error:
        remedy = "Install nvidia-ml-py, or put nvidia-smi on the PATH."
        return Unavailable(name="gpu state", reason=f"no pynvml, and nvidia-smi cannot run: {error}", remedy=remedy)


def parse_smi(line: str) -> GpuState | None:
    """The state from one line of `FIELDS`; None where the driver does not tell a field."""
    parts = [part.strip() for part in line.strip().split(",")]
    try:
        clock, power, temperature, active = parts
        return GpuState(
            sm_clock_mhz=int(clock),
            power_w=float(power),
            temperature_c=int(temperature),
            throttle_reasons=reasons(int(active, 16)),
        )
    except ValueError:
        return None


def reasons(bits: int) -> tuple[str, ...]:
    """Names of the throttle reasons in a mask."""
    return tuple(name for bit, name in THROTTLE.items() if bits & bit)


def _smi(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return done.stdout


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
