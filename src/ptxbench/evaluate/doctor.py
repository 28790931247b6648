"""Looks for everything an evaluation needs and names the remedy of what is missing; installs and changes nothing."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ptxbench.emulator.codegen.lanes import find_core
from ptxbench.errors import PtxbenchError
from ptxbench.evaluate.child.parts import candidate_program
from ptxbench.evaluate.devices import Gpu, list_gpus
from ptxbench.evaluate.diagnosis import Check, CheckState, Diagnosis
from ptxbench.schema.values import Frozen, Target, ToolVersion, Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.call import package_of, run_tool
from ptxbench.toolchain.toolkit import (
    Cupti,
    find_cupti,
    find_ncu,
    find_sanitizer,
    find_toolkit,
    find_tvm_ffi,
    host_compiler,
)

DRIVER_PARAMETERS = Path("/proc/driver/nvidia/params")
"""Where the NVIDIA kernel module shows its settings."""
CAP_SYS_ADMIN = 21
"""Bit of the capability that gives access to the performance counters (capabilities(7))."""
LOW_DISK = 2 * 2**30
"""Bytes; a cache of some hundred kernels and the precompiled headers fit well below."""
NO_DISK = 200 * 2**20
PROBE_SECONDS = 20.0


SelfTest = Callable[[Settings, str], tuple[Check, ...]]
"""Tests the instruments of a device (`cuda:N`) on kernels whose readings are known."""


def diagnose(settings: Settings, self_test: SelfTest | None = None) -> Diagnosis:
    """Check this machine for the device it has: without a GPU, what only a GPU needs is a warning.

    `self_test` is run on each GPU that runs a target.
    """
    gpus = list_gpus(settings)
    needed = CheckState.MISSING if gpus else CheckState.WARNING
    checks = [
        *_host(settings),
        *_compiler(settings),
        Check.of_tool("emulator", find_core(settings), CheckState.WARNING),
        _gpu(gpus, DRIVER_PARAMETERS.exists()),
        *_instruments(settings, needed),
        *_baselines(),
        *_protections(settings),
    ]
    if self_test is not None:
        for gpu in gpus:
            if _target(gpu) is not None:
                checks += self_test(settings, f"cuda:{gpu.ordinal}")
    return Diagnosis(checks=tuple(checks))


def _host(settings: Settings) -> list[Check]:
    python = f"{platform.python_version()} {sys.executable}"
    recent = sys.version_info >= (3, 11)
    return [
        Check(
            name="python",
            group="host",
            state=CheckState.OK if recent else CheckState.MISSING,
            found=python,
            remedy="" if recent else "Use Python 3.11 or newer.",
        ),
        _tool("host", "gcc", lambda: host_compiler(settings, "gcc")),
        _tool("host", "g++", lambda: host_compiler(settings, "g++")),
        _make(settings),
        disk_check(settings.cache),
    ]


def _make(settings: Settings) -> Check:
    path = shutil.which("make", path=settings.path)
    if path is None:
        why = "only the ways in of a clone (make test, ...) need it"
        return Check(name="make", group="host", state=CheckState.WARNING, found=why, remedy=package_of("make"))
    return Check(name="make", group="host", state=CheckState.OK, found=path)


def disk_check(cache: Path) -> Check:
    """Room and right to write where the build cache lies."""
    place = next(folder for folder in (cache, *cache.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    found = f"{free / 2**30:.1f} GiB free, {cache}"
    if not os.access(place, os.W_OK):
        found, state = f"{place} cannot be written to", CheckState.MISSING
    elif free < LOW_DISK:
        state = CheckState.MISSING if free < NO_DISK else CheckState.WARNING
    else:
        state = CheckState.OK
    remedy = "" if state is CheckState.OK else "Free space, or set PTXBENCH_CACHE to a folder with room."
    return Check(name="cache", group="host", state=state, found=found, remedy=remedy)


def _compiler(settings: Settings) -> list[Check]:
    return [
        _tool("compiler", "nvcc", lambda: find_toolkit(settings).tool),
        _tool("compiler", "cuobjdump", lambda: _at("cuobjdump", find_toolkit(settings).cuobjdump)),
        _tool("compiler", "nvdisasm", lambda: _at("nvdisasm", find_toolkit(settings).nvdisasm)),
        _tool("compiler", "tvm-ffi", lambda: ToolVersion(name="tvm-ffi", version=find_tvm_ffi().version)),
    ]


def _at(name: str, path: Path) -> ToolVersion:
    return ToolVersion(name=name, version="", path=str(path))


def _tool(group: str, name: str, find: Callable[[], ToolVersion]) -> Check:
    """The check of a tool whose finder raises when it is not there; every evaluation needs these."""
    try:
        return Check.of_tool(group, find(), CheckState.MISSING)
    except PtxbenchError as error:
        return Check(name=name, group=group, state=CheckState.MISSING, found=error.what, remedy=error.remedy)


def _gpu(gpus: tuple[Gpu, ...], driver_loaded: bool) -> Check:
    if not gpus and driver_loaded:
        why = "the NVIDIA driver is loaded, but nvidia-smi lists no GPU"
        remedy = "Put nvidia-smi on the PATH, or give the container access to a GPU."
        return Check(name="gpu", group="gpu", state=CheckState.MISSING, found=why, remedy=remedy)
    if not gpus:
        why = "no GPU: the emulator runs kernels and judges them in all but time"
        remedy = "Use a machine with a Hopper or Blackwell GPU for time."
        return Check(name="gpu", group="gpu", state=CheckState.WARNING, found=why, remedy=remedy)
    names = "; ".join(f"cuda:{gpu.ordinal} {gpu.name} (driver {gpu.driver}) {_runs(gpu)}" for gpu in gpus)
    if any(_target(gpu) for gpu in gpus):
        return Check(name="gpu", group="gpu", state=CheckState.OK, found=names)
    remedy = "Candidates need a Hopper (sm_90a) or Blackwell (sm_100a) GPU to run."
    return Check(name="gpu", group="gpu", state=CheckState.MISSING, found=names, remedy=remedy)


def _target(gpu: Gpu) -> Target | None:
    return next((target for target in Target if target.compute_capability == gpu.compute_capability), None)


def _runs(gpu: Gpu) -> str:
    target = _target(gpu)
    return f"runs {target.value}" if target else "runs no target"


def _instruments(settings: Settings, needed: CheckState) -> list[Check]:
    cupti = find_cupti(settings)
    found = _at("cupti", cupti.library) if isinstance(cupti, Cupti) else cupti
    parameters = DRIVER_PARAMETERS.read_text() if DRIVER_PARAMETERS.exists() else None
    return [
        Check.of_tool("instruments", _package("torch", "torch", "The judge computes with it."), needed),
        Check.of_tool("instruments", found, needed),
        Check.of_tool("instruments", find_ncu(settings), needed),
        counter_right(parameters, _effective_capabilities(), needed),
        Check.of_tool("instruments", find_sanitizer(settings), needed),
    ]


def counter_right(parameters: str | None, capabilities: int, needed: CheckState) -> Check:
    """Whether this process may read performance counters (else ncu ends with ERR_NVGPUCTRPERM).

    Args:
        parameters: Text of the kernel module's settings; None where there is no driver.
        capabilities: The effective capabilities of this process, as a bit set.
        needed: State when the right is missing.
    """
    if parameters is None:
        why = "no NVIDIA driver is loaded here"
        return Check(name="counters", group="instruments", state=CheckState.WARNING, found=why)
    values = dict(line.split(": ", 1) for line in parameters.splitlines() if ": " in line)
    restricted = values.get("RmProfilingAdminOnly", "1").strip() != "0"
    if not restricted:
        return Check(name="counters", group="instruments", state=CheckState.OK, found="open to every user")
    if capabilities >> CAP_SYS_ADMIN & 1:
        return Check(name="counters", group="instruments", state=CheckState.OK, found="by CAP_SYS_ADMIN")
    return Check(
        name="counters",
        group="instruments",
        state=needed,
        found="the driver keeps performance counters to administrators (ERR_NVGPUCTRPERM)",
        remedy="Run as root, add the capability SYS_ADMIN to the container, or load the nvidia module with "
        "NVreg_RestrictProfilingToAdminUsers=0.",
    )


def _effective_capabilities() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return int(line.split()[1], 16)
    return 0


def _baselines() -> list[Check]:
    """Libraries that speedups are measured against; without one the other stages still work."""
    return [
        Check.of_tool("baselines", _package(name, package, "A baseline of attention."), CheckState.WARNING)
        for name, package in (("cudnn frontend", "nvidia-cudnn-frontend"), ("flashinfer", "flashinfer-python"))
    ]


def _protections(settings: Settings) -> list[Check]:
    """What the candidate program can keep a candidate from on this machine; every record names what was active."""
    try:
        call = run_tool([candidate_program(settings), "--probe-sandbox"], timeout=PROBE_SECONDS)
        found = TypeAdapter(list[_Protection]).validate_json(call.stdout)
    except PtxbenchError as error:
        return [_no_sandbox(error.what, error.remedy)]
    except ValidationError:
        return [_no_sandbox(f"the probe ended with status {call.returncode} and no answer", "Report this.")]
    return [protection.check() for protection in found]


def _no_sandbox(what: str, remedy: str) -> Check:
    return Check(name="sandbox", group="protections", state=CheckState.MISSING, found=what, remedy=remedy)


class _Protection(Frozen):
    """One line of the probe's answer."""

    name: str
    active: bool
    errno: int
    reason: str

    def check(self) -> Check:
        if self.active:
            return Check(name=self.name, group="protections", state=CheckState.OK, found="active")
        why = "; ".join(part for part in (self.reason, os.strerror(self.errno) if self.errno else "") if part)
        remedy = "Allow this to the container or user, or run hostile kernels elsewhere (SECURITY.md)."
        return Check(name=self.name, group="protections", state=CheckState.WARNING, found=why, remedy=remedy)


def _package(name: str, package: str, why: str) -> ToolVersion | Unavailable:
    try:
        return ToolVersion(name=name, version=version(package))
    except PackageNotFoundError:
        remedy = f"Install the Python package {package} (it is part of ptxbench[gpu])."
        return Unavailable(name=name, reason=f"not installed. {why}", remedy=remedy)
