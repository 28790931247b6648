"""Machine code of a shared object's kernels as typed lines, kept per content; opcodes get their meaning in `sass`."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import ToolError
from ptxbench.schema.values import content_hash
from ptxbench.settings import Settings
from ptxbench.toolchain.cache import Cache
from ptxbench.toolchain.call import run_tool
from ptxbench.toolchain.elf import has_device_code
from ptxbench.toolchain.toolkit import Toolkit, disassembler

OUTPUT_LIMIT = 256 * 2**20
"""Bytes of disassembly beyond which a library is refused; a large attention kernel takes about 2 MB."""

_NAME = re.compile(r"\s*Function : (\S+)")
_LINE = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:(@!?U?P[T\d]+)\s+)?([^\s;]+)\s*([^;]*);")


@dataclass(frozen=True)
class SassLine:
    """One instruction.

    Attributes:
        address: Byte offset from the kernel's start.
        opcode: With its modifiers: `HGMMA.64x256x16.F32.BF16`.
        predicate: `@P0`, `@!P0`, `@UP1`; empty when it has none.
        text: The whole instruction, predicate included, without the semicolon.
    """

    address: int
    opcode: str
    predicate: str
    text: str


@dataclass(frozen=True)
class KernelCode:
    """The instructions of one kernel or device function, by mangled name."""

    name: str
    lines: tuple[SassLine, ...]


def disassemble(library: Path, toolkit: Toolkit, settings: Settings) -> tuple[KernelCode, ...]:
    """The machine code in `library`, by cuobjdump or from an earlier call on the same content.

    Raises:
        ToolError: The disassembler is missing, fails, or does not end within `settings.build_timeout` seconds.
        RecordError: The cache cannot be written.
    """
    if not has_device_code(library):
        return ()
    with library.open("rb") as file:
        content = hashlib.file_digest(file, "sha256").hexdigest()
    key = content_hash(["ptxbench.disassembly.v1", content, disassembler(toolkit, settings).version])
    cache = Cache(settings.cache / "disassembly")
    entry = cache.find(key)
    if entry is None:
        listing = _listing(library, toolkit, settings)
        with cache.workspace() as folder:
            (folder / "listing.sass").write_text(listing)
            entry = cache.publish(key, folder)
    return parse_listing((entry / "listing.sass").read_text())


def parse_listing(listing: str) -> tuple[KernelCode, ...]:
    """The functions in the output of `cuobjdump -sass`; lines that are no instructions are left out."""
    return tuple(KernelCode(name, tuple(lines)) for name, lines in _functions(listing))


def _functions(listing: str) -> Iterator[tuple[str, list[SassLine]]]:
    name, lines = "", list[SassLine]()
    for row in listing.splitlines():
        if match := _LINE.match(row):
            predicate, opcode, operands = match[2] or "", match[3], match[4].strip()
            text = " ".join(word for word in (predicate, opcode, operands) if word)
            lines.append(SassLine(int(match[1], 16), opcode, predicate, text))
        elif match := _NAME.match(row):
            if name:
                yield name, lines
            name, lines = match[1], []
    if name:
        yield name, lines


def _listing(library: Path, toolkit: Toolkit, settings: Settings) -> str:
    call = run_tool(
        [toolkit.cuobjdump, "-sass", library.resolve()],
        timeout=settings.build_timeout,
        env={"PATH": settings.path},
        limit=OUTPUT_LIMIT,
    )
    if call.timed_out or len(call.stdout) >= OUTPUT_LIMIT // 2:
        raise ToolError(f"Disassembling {library} takes too long or writes too much.", "Make the kernels smaller.")
    if not call.succeeded:
        raise ToolError(f"cuobjdump cannot disassemble {library}: {call.stderr[-500:].strip()}", "Report this.")
    return call.stdout
