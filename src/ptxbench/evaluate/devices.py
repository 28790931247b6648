"""Which device an evaluation runs on: lists the GPUs of this machine and picks one, or the emulator; touches none."""

from __future__ import annotations

from dataclasses import dataclass

from ptxbench.errors import DeviceError, ToolError
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.call import run_tool

QUERY = ("index", "name", "uuid", "compute_cap", "driver_version")


@dataclass(frozen=True)
class Gpu:
    """One GPU as the driver's own tool names it."""

    ordinal: int
    name: str
    uuid: str
    compute_capability: tuple[int, int]
    driver: str


@dataclass(frozen=True)
class Choice:
    """The device of an evaluation: a GPU, the emulator, or none; with the reason."""

    gpu: Gpu | None
    reason: str
    emulated: bool = False

    @property
    def name(self) -> str:
        """`cuda:N`, `emulator` or `none`."""
        if self.emulated:
            return "emulator"
        return f"cuda:{self.gpu.ordinal}" if self.gpu else "none"


def list_gpus(settings: Settings) -> tuple[Gpu, ...]:
    """The GPUs that nvidia-smi lists; none where there is no driver."""
    command = ["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader"]
    try:
        call = run_tool(command, timeout=20.0, env={"PATH": settings.path})
    except ToolError:
        return ()
    return tuple(_parse(line) for line in call.stdout.splitlines() if line.count(",") == len(QUERY) - 1)


def _parse(line: str) -> Gpu:
    index, name, uuid, capability, driver = (part.strip() for part in line.split(","))
    major, minor = capability.split(".")
    return Gpu(int(index), name, uuid, (int(major), int(minor)), driver)


def choose_device(wanted: str, target: Target, gpus: tuple[Gpu, ...]) -> Choice:
    """Pick the device for `wanted` (`auto`, `cuda:N`, `emulator`, `none`).

    `auto` takes the first GPU of the target's generation, else the emulator.

    Raises:
        DeviceError: `cuda:N` is absent or of another generation than the target.
    """
    if wanted == "none":
        return Choice(None, "no device was asked for")
    if wanted == "emulator":
        return Choice(None, "as asked", emulated=True)
    fitting = [gpu for gpu in gpus if gpu.compute_capability == target.compute_capability]
    if wanted == "auto":
        if fitting:
            return Choice(fitting[0], f"the first GPU that runs {target.value}")
        found = ", ".join(gpu.name for gpu in gpus) or "no GPU"
        reason = f"{target.value} needs a {target.generation} GPU and this machine has {found}"
        return Choice(None, reason, emulated=True)
    ordinal = wanted.removeprefix("cuda:")
    if not ordinal.isdigit() or not wanted.startswith("cuda:"):
        raise DeviceError(f"{wanted!r} is not a device.", "Use auto, emulator, none, or cuda:N.")
    named = next((gpu for gpu in gpus if gpu.ordinal == int(ordinal)), None)
    if named is None:
        here = ", ".join(f"cuda:{gpu.ordinal} ({gpu.name})" for gpu in gpus) or "none"
        raise DeviceError(f"There is no device {wanted} here; found: {here}.", "Run `ptxbench doctor`, or use auto.")
    if named not in fitting:
        major, minor = named.compute_capability
        raise DeviceError(
            f"{wanted} is a {named.name} (sm_{major}{minor}), which cannot run {target.value}.",
            f"Use a {target.generation} GPU, or --target for this device, or --device emulator.",
        )
    return Choice(named, "as asked")
