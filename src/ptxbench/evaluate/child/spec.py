"""What a candidate process shall be, and what follows from it for its start; it starts none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import ToolError
from ptxbench.evaluate.child.memory import Buffer
from ptxbench.evaluate.child.parts import Instrument, NativeParts
from ptxbench.evaluate.child.process import OUTPUT_LIMIT, Launch
from ptxbench.evaluate.child.wire import Setup, SetupFlag

_TOOL_OUTPUT = 64 << 20
"""Bytes kept of each stream where a tool prints its report there; the candidate itself prints nowhere then."""


@dataclass(frozen=True)
class SessionSpec:
    """A candidate process to be.

    Attributes:
        parts: The program and the libraries that it loads.
        library: The candidate's shared object, or its replay program; its bytes are handed over, its path stays
            unknown.
        symbol: Of the exported function, without the ABI's prefix: `run`.
        device: Ordinal, under the same CUDA_VISIBLE_DEVICES as here (see `environment`).
        buffers: Of the judge, in the order in which arguments name them.
        folder: Working folder of the judge for this session; stdout.txt and stderr.txt are written there, and the
            candidate does not see it.
        staged: Call with exact-size copies (cuMemAlloc), copied in before and back after; for memory checkers.
        wrapper: Command line of a tool put before the program's own.
        keep_root: Keep the rights that reading counters takes.
        measured: Record device activity in the process.
        replayed: `library` is a replay program; no host code of the candidate runs.
        hidden: Further folders that the candidate must not see (three at most besides `folder`).
        environment: Variables besides the few that are always set.
    """

    parts: NativeParts
    library: Path
    symbol: str
    device: int
    buffers: tuple[Buffer, ...]
    folder: Path
    staged: bool = False
    wrapper: tuple[str, ...] = ()
    keep_root: bool = False
    measured: bool = True
    replayed: bool = False
    hidden: tuple[Path, ...] = (Path("/root"), Path("/home"), Path("/var/tmp"))  # noqa: S108  (covered, not used)
    environment: tuple[tuple[str, str], ...] = ()


def setup_of(spec: SessionSpec) -> Setup:
    """What the process is told first.

    Raises:
        ToolError: The activity instrument is asked for and not there.
    """
    flags = (
        (SetupFlag.STAGED if spec.staged else 0)
        | (SetupFlag.KEEP_ROOT if spec.keep_root else 0)
        | (SetupFlag.UNDER_TOOL if spec.wrapper else 0)
        | (SetupFlag.REPLAY if spec.replayed else 0)
    )
    found = spec.parts.instrument if spec.measured else None
    if found is not None and not isinstance(found, Instrument):
        raise ToolError(found.reason, found.remedy)
    return Setup(
        device=spec.device,
        flags=flags,
        cuda=spec.parts.cuda,
        cudart="" if spec.replayed else str(spec.parts.cudart or ""),
        tvm_ffi=str(spec.parts.tvm_ffi),
        spans=str(found.library) if found else "",
        cupti=str(found.cupti) if found else "",
        symbol=spec.symbol,
        needed=_tool_folders(spec.wrapper),
        hidden=(str(spec.folder.resolve()), *(str(folder.resolve()) for folder in spec.hidden)),
    )


def _tool_folders(wrapper: tuple[str, ...]) -> tuple[str, ...]:
    """The tool's own folder (above `bin`): what it puts into the process lies there."""
    if not wrapper or not wrapper[0].startswith("/"):
        return ()
    program = Path(wrapper[0])
    return tuple(sorted({str(program.parent.parent), str(program.resolve().parent.parent)}))


def launch_of(spec: SessionSpec, address: Path) -> Launch:
    """How it is started; it connects to `address`."""
    environment = {
        "PATH": "/usr/bin:/bin",
        "LC_ALL": "C",
        "HOME": str(spec.folder),
        "CUDA_CACHE_DISABLE": "1",
        **dict(spec.environment),
    }
    return Launch(
        command=(*spec.wrapper, str(spec.parts.candidate), str(address), *(("tool",) if spec.wrapper else ())),
        environment=tuple(environment.items()),
        folder=spec.folder,
        stdout=spec.folder / "stdout.txt",
        stderr=spec.folder / "stderr.txt",
        output_limit=_TOOL_OUTPUT if spec.wrapper else OUTPUT_LIMIT,
    )
