"""One nvcc call on one source with one set of headers, confined and bounded, and what it said; no caching here."""

from __future__ import annotations

import math
import re
import shutil
import signal
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import RecordError, ToolError
from ptxbench.schema.stages import Diagnostic, KernelResources, Outcome, Reason
from ptxbench.schema.values import Target, Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.call import Call, Limits, run_tool, shorten
from ptxbench.toolchain.confine import confinement
from ptxbench.toolchain.diagnostics import parse_diagnostics, parse_resources
from ptxbench.toolchain.driver_stub import driver_stub
from ptxbench.toolchain.phases import DEVICE_FAILED, split_phases
from ptxbench.toolchain.toolkit import CUDART, Toolkit, find_toolkit, find_tvm_ffi

ADDRESS_SPACE = 8 * 2**30
FILE_SIZE = 512 * 2**20
LOG_LIMIT = 64 * 2**10
"""Bytes of compiler output that a record keeps."""

_ASSEMBLER_QUOTE = re.compile(r"^(\S+:\d+: (?:Error|Fatal error|Warning|Info): [^`\n]*)`[^\n]*", re.MULTILINE)
"""What the assembler quotes is cut: by an obfuscated `.include` it would be a line of any file."""

UNIT = "candidate"
"""What symbols of unnamed namespaces are marked with, so that builds of one source name their kernels alike."""

_OUTPUT_LIMIT = 4 * 2**20
_SPARE = 64 * 2**20
"""Free bytes below which a failed compilation is put down to the full disk."""

_FROM_OUTSIDE = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT})
"""Signals that no compiler sends itself: the system or a person ended it."""


@dataclass(frozen=True)
class Compilation:
    """What one call made.

    Attributes:
        code: `""` when it passed, else `compile_error`, `compile_timeout` or `compiler_crash`.
        final: It failed in the assembler: the device code is whole, and no other headers would change it.
        library: The shared object, when it passed.
        log: What the tools said, at most `LOG_LIMIT` bytes, without the paths of this machine.
        ptx: The PTX that became the machine code, likewise; empty unless it passed.
    """

    code: str
    command: tuple[str, ...]
    library: Path | None
    log: str
    final: bool = False
    diagnostics: tuple[Diagnostic, ...] = ()
    kernels: tuple[KernelResources, ...] = ()
    reason: Reason | None = None
    ptx: str = ""

    @property
    def outcome(self) -> Outcome:
        """Passed, or the candidate's failure."""
        return Outcome.PASSED if self.reason is None else Outcome.FAILED


def compile_words(target: Target) -> tuple[str, ...]:
    """The flags that decide the code: one target, no PTX, optimised, with line information and ptxas statistics."""
    number = target.value.removeprefix("sm_")
    return (
        *("-gencode", f"arch=compute_{number},code=sm_{number}"),
        *("-O3", "-std=c++17", "-lineinfo", "-shared"),
        *("-x", "cu"),
        *("-Xptxas", "-v"),
        # No excerpts: with a #line directive g++ would quote any file of the machine.
        *("-Xcompiler", "-fPIC,-fvisibility=hidden,-fno-diagnostics-show-caret,-fdiagnostics-color=never"),
        *("-cudart", "none"),
    )


def compile_once(work: Path, entry_file: str, target: Target, include: Path, settings: Settings) -> Compilation:
    """Compile `work`/sources/`entry_file` to `work`/kernel.so with the TVM-FFI headers of `include`.

    Raises:
        ToolError: A tool is missing or was killed from outside.
        RecordError: The disk is full.
    """
    toolkit = find_toolkit(settings)
    library, scratch = work / "kernel.so", work / "scratch"
    scratch.mkdir()
    words = _words(toolkit, target, include, settings)
    words += ["-keep", "-keep-dir", str(scratch), "-o", str(library), entry_file]
    kills = _memory_kills()
    call = _run(words, work, include, settings)
    code = _code(call, library)
    if code:
        _raise_if_ours(call, work, kills)
    log = _tidy(call.stdout + call.stderr, work, include, settings)
    ptx = _tidy(_ptx(scratch, entry_file), work, include, settings)
    diagnostics = parse_diagnostics(log, ptx if code else "")
    return Compilation(
        code=code,
        command=tuple(_tidy(word, work, include, settings) for word in words),
        library=None if code else library,
        log=shorten(log, LOG_LIMIT),
        final=_assembly_failed(scratch, entry_file),
        diagnostics=diagnostics,
        kernels=() if code else parse_resources(log),
        reason=_reason(code, diagnostics, settings) if code else None,
        ptx="" if code else ptx,
    )


def _run(words: list[str], work: Path, include: Path, settings: Settings) -> Call:
    """nvcc's steps, side by side where they are those we know, else nvcc itself; the result is the same."""
    scratch, sources = work / "scratch", work / "sources"
    environment = {"PATH": settings.path, "HOME": str(scratch), "TMPDIR": str(scratch)}
    plan = run_tool([*words, "--dryrun"], timeout=settings.build_timeout, cwd=sources, env=environment)
    phases = split_phases(plan.stderr, f"_{UNIT}", str(scratch)) if plan.succeeded else None
    if phases is not None:
        words = ["/bin/sh", "-c", phases.script]
        environment |= phases.environment
    return run_tool(
        _confined(words, work, include, settings),
        timeout=settings.build_timeout,
        cwd=sources,
        env=environment,
        limit=_OUTPUT_LIMIT,
        limits=Limits(ADDRESS_SPACE, FILE_SIZE, math.ceil(settings.build_timeout) + 1),
    )


def _words(toolkit: Toolkit, target: Target, include: Path, settings: Settings) -> list[str]:
    return [
        str(toolkit.nvcc),
        *compile_words(target),
        f"-I{include}",
        f"-L{toolkit.library}",
        f"-l:{CUDART}",
        f"-L{find_tvm_ffi().library}",
        "-ltvm_ffi",
        f"-L{driver_stub(toolkit, settings)}",
        # Only what calls the driver shall need it: the others load on machines that have none.
        *("-Xlinker", "--as-needed", "-l:libcuda.so.1"),
    ]


def _confined(words: list[str], work: Path, include: Path, settings: Settings) -> list[str]:
    wall = confinement(settings)
    if isinstance(wall, Unavailable):
        return words
    toolkit = find_toolkit(settings)
    reads = [toolkit.nvcc.parent.parent, include, find_tvm_ffi().library, driver_stub(toolkit, settings)]
    compiler = shutil.which("g++", path=settings.path)
    if compiler:  # one outside the system's folders brings its own headers
        reads.append(Path(compiler).resolve().parent.parent)
    return wall.command(words, reads=reads, writes=[work])


def _signal(call: Call) -> int:
    """The signal that ended the tool or, as nvcc reports it (status 128 + signal), one of its parts; else 0."""
    status = call.returncode or 0
    return -status if status < 0 else status - 128 if 128 < status < 192 else 0


def _code(call: Call, library: Path) -> str:
    if call.timed_out:
        return "compile_timeout"
    if call.succeeded and library.is_file():
        return ""
    return "compiler_crash" if _signal(call) else "compile_error"


def _raise_if_ours(call: Call, work: Path, kills: int) -> None:
    """Raise where the failure is the machine's and not the source's."""
    if _signal(call) in _FROM_OUTSIDE or _memory_kills() != kills:
        raise ToolError(
            "The compiler was killed from outside, most likely because memory ran out.",
            "Run fewer builds at once, or use a machine with more memory.",
        )
    if shutil.disk_usage(work).free < _SPARE:
        raise RecordError(f"The disk of {work.parent} is full.", "Free some space, or set PTXBENCH_CACHE.")


def _memory_kills() -> int:
    """How many processes the kernel has killed for memory since it started; 0 where it does not tell."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)


def _reason(code: str, diagnostics: tuple[Diagnostic, ...], settings: Settings) -> Reason:
    if code == "compile_timeout":
        message = f"The compiler did not end within {settings.build_timeout:g} s."
        return Reason(code=code, message=message, hint="Look for templates or loops that expand without bound.")
    if code == "compiler_crash":
        return Reason(code=code, message="The compiler crashed on this source.", hint="Simplify the source.")
    first = next((item for item in diagnostics if item.severity == "error"), None)
    if first is None:
        return Reason(code=code, message="The compiler failed without a message.", hint="Read the log.")
    place = f"{first.file}:{first.line}: " if first.line is not None else ""
    return Reason(code=code, message=f"{place}{first.message}", hint="Correct the source; the log has every message.")


def _assembly_failed(scratch: Path, entry_file: str) -> bool:
    ptx = scratch / f"{Path(entry_file).stem}.ptx"
    return (scratch / DEVICE_FAILED).exists() and ptx.exists() and not ptx.with_suffix(".cubin").exists()


def _ptx(scratch: Path, entry_file: str) -> str:
    path = scratch / f"{Path(entry_file).stem}.ptx"
    return path.read_text(errors="replace") if path.is_file() else ""


def _tidy(text: str, work: Path, include: Path, settings: Settings) -> str:
    """`text` without this machine's folders: sources by relative paths, headers below `<tvm-ffi>` and `<cuda>`."""
    toolkit = find_toolkit(settings)
    root = toolkit.nvcc.parent.parent
    replacements = {
        f"{work / 'sources'}/": "",
        f"{work / 'scratch'}/": "",
        f"{work}/": "",
        str(include): "<tvm-ffi>",
        str(find_tvm_ffi().library.parent): "<tvm-ffi>",
        str(driver_stub(toolkit, settings)): "<driver>",
        f"{root / 'bin'}/..": "<cuda>",
        str(root): "<cuda>",
    }
    for found, replacement in replacements.items():
        text = text.replace(found, replacement)
    return _ASSEMBLER_QUOTE.sub(r"\1`...'", text)
