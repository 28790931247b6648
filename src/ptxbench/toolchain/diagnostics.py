"""Compiler messages as values, from the output of nvcc, its host compiler, ptxas and the linker; it decides no outcome.

Also what ptxas reports per kernel (`-Xptxas -v`). Both parsers take any text and ignore what they do not know.
"""

from __future__ import annotations

import re
from typing import Literal

from ptxbench.schema.stages import Diagnostic, KernelResources

MAX_DIAGNOSTICS = 200
"""A source of many mistakes is understood from its first ones."""

Severity = Literal["error", "warning", "note"]

_SEVERITIES: dict[str, Severity] = {"warning": "warning", "remark": "note", "note": "note", "Warning": "warning"}
"""Every other word that the patterns admit is an error."""

_PLACED = (
    # cudafe++ and cicc: kernel.cu(12): error #20: identifier "x" is undefined
    re.compile(
        r"(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): "
        r"(?P<severity>(?:catastrophic |internal |fatal )?error|warning|remark|note)(?: #[\w-]+)?: (?P<message>.+)"
    ),
    # g++: kernel.cu:3:10: fatal error: nowhere.h: No such file or directory
    re.compile(
        r"(?P<file>[^\s:][^:]*):(?P<line>\d+):\d+: "
        r"(?P<severity>(?:fatal )?error|warning|note|internal compiler error): (?P<message>.+)"
    ),
    # the assembler: kernel.s:12: Error: no such instruction
    re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d+): (?P<severity>Error|Fatal error|Warning): (?P<message>.+)"),
    # ptxas: ptxas kernel.ptx, line 33; error   : Unknown modifier '.nonsense'
    re.compile(r"ptxas (?P<file>.+), line (?P<line>\d+); (?P<severity>error|warning|fatal) *: (?P<message>.+)"),
)
_UNPLACED = (
    re.compile(r"ptxas (?P<severity>error|warning|fatal) *: (?P<message>.+)"),
    re.compile(r"nvcc (?P<severity>error|warning|fatal) *: (?P<message>.+)"),
    re.compile(r"(?:\S*/)?(?:ld|collect2)(?:\.\w+)?: (?:(?P<severity>error|warning): )?(?P<message>.+)"),
    re.compile(r"(?:\S*/)?(?:gcc|g\+\+): (?P<severity>(?:fatal |internal compiler )?error|warning): (?P<message>.+)"),
)
# ptxas info    : (C7511) Potential Performance Loss: wgmma.mma_async instructions are serialized due to ...
_REMARK = re.compile(r"ptxas info *: (?P<message>\(C\d+\) .+)")

_LOC = re.compile(r"\s*\.loc\s+(\d+)\s+(\d+)\s")
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"')

_FUNCTION = re.compile(r"ptxas info *: Function properties for (\S+)")
_FRAME = re.compile(r"\s*(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"ptxas info *: Used (\d+) registers")
_BARRIERS = re.compile(r"used (\d+) barriers")
_SHARED = re.compile(r"(\d+) bytes smem")


def parse_diagnostics(log: str, ptx: str = "") -> tuple[Diagnostic, ...]:
    """The messages in `log` in their order, each once, at most `MAX_DIAGNOSTICS`.

    Args:
        log: Output of one nvcc call.
        ptx: The PTX that it made, when it was kept: a line of it that ptxas complains about is then given as the
            line of the source that its nearest `.loc` directive names (PTX ISA, Debugging Directives).
    """
    found: dict[Diagnostic, None] = {}
    sources = _Sources(ptx)
    for line in log.splitlines():
        diagnostic = _diagnostic(line, sources)
        if diagnostic is not None:
            found[diagnostic] = None
            if len(found) == MAX_DIAGNOSTICS:
                break
    return tuple(found)


def parse_resources(log: str) -> tuple[KernelResources, ...]:
    """What ptxas reports for each kernel, by mangled name; device functions that are not inlined are left out."""
    kernels: dict[str, KernelResources] = {}
    name, frame = "", (0, 0, 0)
    for line in log.splitlines():
        if match := _FUNCTION.match(line):
            name, frame = match[1], (0, 0, 0)
        elif match := _FRAME.match(line):
            frame = (int(match[1]), int(match[2]), int(match[3]))
        elif name and (match := _USED.match(line)):
            barriers, shared = _BARRIERS.search(line), _SHARED.search(line)
            kernels[name] = KernelResources(
                name=name,
                registers=int(match[1]),
                stack_bytes=frame[0],
                spill_store_bytes=frame[1],
                spill_load_bytes=frame[2],
                static_shared_bytes=int(shared[1]) if shared else 0,
                barriers=int(barriers[1]) if barriers else 0,
            )
            name = ""
    return tuple(kernels.values())


def _diagnostic(line: str, sources: _Sources) -> Diagnostic | None:
    if match := _REMARK.fullmatch(line):
        return Diagnostic(severity="warning", message=match["message"])
    for pattern in _PLACED:
        if match := pattern.fullmatch(line):
            file, number = sources.resolve(match["file"], int(match["line"]))
            severity = _SEVERITIES.get(match["severity"], "error")
            return Diagnostic(severity=severity, message=match["message"], file=file, line=number)
    for pattern in _UNPLACED:
        if match := pattern.fullmatch(line):
            severity = _SEVERITIES.get(match["severity"] or "", "error")
            return Diagnostic(severity=severity, message=match["message"])
    return None


class _Sources:
    """Which line of the source each line of the PTX came from."""

    def __init__(self, ptx: str) -> None:
        self.lines = ptx.splitlines()
        self.files = {match[1]: match[2] for line in self.lines if (match := _FILE.match(line))}

    def resolve(self, file: str, line: int) -> tuple[str, int]:
        if not file.endswith(".ptx"):
            return file, line
        for text in reversed(self.lines[:line]):
            match = _LOC.match(text)
            if match and match[1] in self.files:
                return self.files[match[1]], int(match[2])
        return file.rpartition("/")[2], line
