"""Where the CUDA tools, the host compiler and the TVM-FFI library are, and their versions; it runs no compilation."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ptxbench.errors import ToolError
from ptxbench.schema.values import ToolVersion, Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.call import package_of, run_tool

CUDART = "libcudart.so.13"
"""The runtime library that candidates are linked to; a stub of the same name can stand in its place."""

CUPTI = "libcupti.so.13"

_VERSION_TIMEOUT = 30.0


@dataclass(frozen=True)
class Toolkit:
    """One CUDA toolkit.

    Attributes:
        source: `wheels` (the Python environment) or `system` (CUDA_HOME).
        version: Of nvcc, e.g. `13.0.88`.
        includes: Folders of the CUDA headers.
        library: Folder of libcudart.so.13.
    """

    source: Literal["wheels", "system"]
    version: str
    nvcc: Path
    ptxas: Path
    cuobjdump: Path
    nvdisasm: Path
    includes: tuple[Path, ...]
    library: Path

    @property
    def tool(self) -> ToolVersion:
        """The compiler, for the record."""
        return ToolVersion(name="nvcc", version=self.version, path=str(self.nvcc))


@dataclass(frozen=True)
class TvmFfi:
    """The TVM-FFI package, found without importing it (that would import torch where torch is installed)."""

    version: str
    include: Path
    library: Path
    """Folder of libtvm_ffi.so."""


@dataclass(frozen=True)
class Cupti:
    """NVIDIA's profiling interface library with its headers."""

    library: Path
    include: Path


@functools.cache
def find_toolkit(settings: Settings) -> Toolkit:
    """The toolkit that `settings.toolkit` names.

    A system toolkit without cuobjdump or nvdisasm (some images leave them out) takes those of the wheels; their paths
    stand in the result.

    Raises:
        ToolError: A part of it is missing; the message names the package.
    """
    if settings.toolkit == "system":
        root, source = settings.cuda_home, "system"
        libraries: tuple[Path, ...] = (root / "lib64", root / "lib")
        remedy = "Set CUDA_HOME to a CUDA 13 toolkit, or PTXBENCH_TOOLKIT=wheels."
    else:
        root, source = settings.wheel_root, "wheels"
        libraries = (root / "lib",)
        remedy = "Install the Python packages nvidia-cuda-nvcc, nvidia-cuda-cccl and nvidia-cuda-runtime 13.0."
    nvcc = root / "bin" / "nvcc"
    if not nvcc.is_file():
        raise ToolError(f"No CUDA compiler at {nvcc}.", remedy)
    library = next((folder for folder in libraries if (folder / CUDART).exists()), None)
    if library is None:
        raise ToolError(f"No {CUDART} below {root}.", remedy)
    include = root / "include"
    if not (include / "cuda_runtime.h").is_file() or not (include / "cccl").is_dir():
        raise ToolError(f"The CUDA headers below {include} are incomplete.", remedy)
    return Toolkit(
        source="system" if source == "system" else "wheels",
        version=_version_of(nvcc, settings, r"\bV(\d+\.\d+\.\d+)"),
        nvcc=nvcc,
        ptxas=_binary("ptxas", (root,)),
        cuobjdump=_binary("cuobjdump", (root, settings.wheel_root)),
        nvdisasm=_binary("nvdisasm", (root, settings.wheel_root)),
        includes=(include, include / "cccl"),
        library=library,
    )


@functools.cache
def disassembler(toolkit: Toolkit, settings: Settings) -> ToolVersion:
    """The tool that disassembles, for the record.

    Raises:
        ToolError: It does not run.
    """
    version = _version_of(toolkit.cuobjdump, settings, r"\bV(\d+\.\d+\.\d+)")
    return ToolVersion(name="cuobjdump", version=version, path=str(toolkit.cuobjdump))


@functools.cache
def host_compiler(settings: Settings, name: str = "g++") -> ToolVersion:
    """The host compiler `g++` or `gcc` on the PATH; nvcc needs g++ even for device code.

    Raises:
        ToolError: It is missing; the message names the package.
    """
    call = run_tool([name, "-dumpfullversion"], timeout=_VERSION_TIMEOUT, env={"PATH": settings.path})
    version = call.stdout.strip()
    if not call.succeeded or not re.fullmatch(r"[\d.]+", version):
        raise ToolError(f"{name} does not tell its version.", package_of(name))
    return ToolVersion(name=name, version=version)


@functools.cache
def find_tvm_ffi() -> TvmFfi:
    """The installed TVM-FFI package.

    Raises:
        ToolError: It is missing or incomplete.
    """
    spec = importlib.util.find_spec("tvm_ffi")
    if spec is None or spec.origin is None:
        raise ToolError("The Python package apache-tvm-ffi is missing.", "Install apache-tvm-ffi.")
    root = Path(spec.origin).parent
    found = TvmFfi(importlib.metadata.version("apache-tvm-ffi"), root / "include", root / "lib")
    if not (found.include / "tvm/ffi/c_api.h").is_file() or not (found.library / "libtvm_ffi.so").is_file():
        raise ToolError(f"The Python package apache-tvm-ffi at {root} is incomplete.", "Install apache-tvm-ffi again.")
    return found


@functools.cache
def find_ncu(settings: Settings) -> ToolVersion | Unavailable:
    """Nsight Compute's command line profiler: CUDA_HOME, /opt/nvidia/nsight-compute (newest first), the PATH."""
    releases = sorted(Path("/opt/nvidia/nsight-compute").glob("*/ncu"), key=_numbers, reverse=True)
    places = [settings.cuda_home / "bin" / "ncu", *releases, *_on_path("ncu", settings)]
    return _instrument("ncu", places, settings)


@functools.cache
def find_sanitizer(settings: Settings) -> ToolVersion | Unavailable:
    """compute-sanitizer: of the chosen toolkit first, then of the other one, then on the PATH."""
    roots = [settings.wheel_root, settings.cuda_home]
    if settings.toolkit == "system":
        roots.reverse()
    places = [root / folder / "compute-sanitizer" for root in roots for folder in ("bin", "compute-sanitizer")]
    return _instrument("compute-sanitizer", [*places, *_on_path("compute-sanitizer", settings)], settings)


def find_cupti(settings: Settings) -> Cupti | Unavailable:
    """CUPTI's library and headers: of the wheels or of CUDA_HOME, the chosen toolkit first."""
    home = settings.cuda_home
    wheels = [(settings.wheel_root / "lib", settings.wheel_root / "include")]
    system = [(home / "extras/CUPTI/lib64", home / "extras/CUPTI/include"), (home / "lib64", home / "include")]
    for library, include in system + wheels if settings.toolkit == "system" else wheels + system:
        if (library / CUPTI).exists() and (include / "cupti.h").is_file():
            return Cupti(library / CUPTI, include)
    return Unavailable(
        name="cupti",
        reason=f"{CUPTI} and cupti.h are neither among the wheels nor below {home}.",
        remedy="Install the Python package nvidia-cuda-cupti, or set CUDA_HOME to a toolkit that has CUPTI.",
    )


def _binary(name: str, roots: tuple[Path, ...]) -> Path:
    for root in roots:
        if (root / "bin" / name).is_file():
            return root / "bin" / name
    raise ToolError(f"No {name} below {roots[0]}.", package_of(name))


def _on_path(name: str, settings: Settings) -> list[Path]:
    return [Path(folder) / name for folder in settings.path.split(":") if folder]


def _numbers(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", str(path))]


def _instrument(name: str, places: Iterable[Path], settings: Settings) -> ToolVersion | Unavailable:
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        return Unavailable(name=name, reason=f"{name} is not on this machine.", remedy=package_of(name))
    try:
        version = _version_of(path, settings, r"[Vv]ersion (\d+(?:\.\d+)+)")
    except ToolError as error:
        return Unavailable(name=name, reason=error.what, remedy=error.remedy)
    return ToolVersion(name=name, version=version, path=str(path))


def _version_of(path: Path, settings: Settings, pattern: str) -> str:
    call = run_tool([path, "--version"], timeout=_VERSION_TIMEOUT, env={"PATH": settings.path})
    match = re.search(pattern, call.stdout)
    if not call.succeeded or match is None:
        raise ToolError(f"{path} does not tell its version.", package_of(path.name))
    return match[1]
