"""The native parts of an evaluation, compiled once per machine, and the libraries they load; it starts no process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ptxbench.schema.values import Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.native import Link, native_binary
from ptxbench.toolchain.toolkit import CUDART, find_cupti, find_toolkit, find_tvm_ffi

SOURCES = Path(__file__).parent / "native"

_CANDIDATE = (
    "candidate.c",
    "serve.c",
    "trusted.c",
    "call.c",
    "program.c",
    "replay.c",
    "device.c",
    "channel.c",
    "sandbox.c",
    "mounts.c",
    "privileges.c",
    "filter.c",
    "layout.c",
)


@dataclass(frozen=True)
class Instrument:
    """The activity instrument: our library over CUPTI, and CUPTI itself."""

    library: Path
    cupti: Path


@dataclass(frozen=True)
class NativeParts:
    """What a candidate process consists of.

    Attributes:
        candidate: The program.
        cuda: The driver; a path, or the name that the loader finds.
        cudart: The CUDA runtime that candidates are linked to; None where none is wanted.
        tvm_ffi: libtvm_ffi.so.
        instrument: Or why there is none.
    """

    candidate: Path
    cuda: str
    cudart: Path | None
    tvm_ffi: Path
    instrument: Instrument | Unavailable


def build_parts(settings: Settings) -> NativeParts:
    """Compile what is not in the cache yet.

    Raises:
        ToolError: A compiler, header or library is missing; the message says which.
    """
    toolkit, tvm_ffi = find_toolkit(settings), find_tvm_ffi()
    return NativeParts(
        candidate=candidate_program(settings),
        cuda="libcuda.so.1",
        cudart=(toolkit.library / CUDART).resolve(),
        tvm_ffi=(tvm_ffi.library / "libtvm_ffi.so").resolve(),
        instrument=_instrument(settings),
    )


def candidate_program(settings: Settings) -> Path:
    """The candidate program alone; `--probe-sandbox` makes it tell what this machine allows."""
    headers = (*find_toolkit(settings).includes, find_tvm_ffi().include)
    link = Link(flags=_system(headers), libraries=("dl",))
    sources = [SOURCES / name for name in _CANDIDATE]
    return native_binary("candidate", sources, settings, kind="executable", link=link)


def _instrument(settings: Settings) -> Instrument | Unavailable:
    cupti = find_cupti(settings)
    if isinstance(cupti, Unavailable):
        return cupti
    headers = (cupti.include, *find_toolkit(settings).includes)
    link = Link(flags=_system(headers), libraries=("dl", "pthread"))
    sources = [SOURCES / name for name in ("spans.c", "sha256.c")]
    library = native_binary("libptxspans.so", sources, settings, kind="shared", link=link)
    return Instrument(library, cupti.library.resolve())


def _system(folders: tuple[Path, ...]) -> tuple[str, ...]:
    """Headers that are not ours: their warnings are not ours either."""
    return tuple(word for folder in folders for word in ("-isystem", str(folder)))
