"""What a cubin says of its kernels: parameters, static shared memory, registers, launch bounds; no code is read.

Attributes of `.nv.info` sections: each is a format byte, a number and a value (2-byte values inline, longer ones with
their length). The parameter attribute holds the ordinal and, in its upper bits, the size.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ptxbench.settings import Settings
from ptxbench.toolchain.elf import Cubin, Section, cubin_tables, cubins
from ptxbench.toolchain.toolkit import find_toolkit

SYSTEM_SHARED = 1024
"""Bytes of shared memory in front of a kernel's own that belong to the system (sm_90 and later)."""

_SIZED = 4
_MAX_THREADS, _REQUIRED_THREADS, _PARAMETER, _REGISTERS, _CLUSTER = 0x05, 0x10, 0x17, 0x2F, 0x3D


@dataclass(frozen=True)
class KernelInfo:
    """One kernel.

    Attributes:
        name: Mangled.
        parameters: Bytes of each parameter, in order.
        static_shared: Bytes.
        registers: Per thread.
        max_threads: Threads per block that it was compiled for, 0 when it does not say.
        required_block: The block that it must be launched with, or None.
        required_cluster: The cluster that it was compiled for, or None.
    """

    name: str
    parameters: tuple[int, ...]
    static_shared: int
    registers: int
    max_threads: int = 0
    required_block: tuple[int, int, int] | None = None
    required_cluster: tuple[int, int, int] | None = None


def kernels_of(library: Path, settings: Settings) -> dict[str, KernelInfo]:
    """The kernels in the machine code of `library`, by mangled name.

    Raises:
        ToolError: The machine code cannot be unpacked or is malformed.
    """
    return {
        name: kernel_info(cubin, name) for cubin in cubins(library, find_toolkit(settings)) for name in cubin.kernels
    }


def kernel_info(cubin: Cubin, name: str) -> KernelInfo:
    """What `cubin` says of its kernel `name`.

    Raises:
        ToolError: It is malformed.
    """
    tables, symbols = cubin_tables(cubin.data)
    sections = {section.name: section for section in tables}
    parameters: dict[int, int] = {}
    triples: dict[int, tuple[int, int, int]] = {}
    for number, value in _attributes(cubin.data, sections.get(f".nv.info.{name}")):
        if number == _PARAMETER and len(value) >= 12:
            _, ordinal, _, flags = struct.unpack_from("<IHHI", value)
            parameters[ordinal] = flags >> 18
        elif number in (_MAX_THREADS, _REQUIRED_THREADS, _CLUSTER) and len(value) >= 12:
            triples[number] = struct.unpack_from("<III", value)
    registers = 0
    for number, value in _attributes(cubin.data, sections.get(".nv.info")):
        if number == _REGISTERS and len(value) >= 8:
            symbol, count = struct.unpack_from("<II", value)
            if symbol < len(symbols) and symbols[symbol].name == name:
                registers = count
    shared = sections.get(f".nv.shared.{name}")
    x, y, z = triples.get(_MAX_THREADS, (0, 0, 0))
    cluster = triples.get(_CLUSTER)
    return KernelInfo(
        name=name,
        parameters=tuple(parameters[ordinal] for ordinal in sorted(parameters)),
        static_shared=max(0, shared.size - SYSTEM_SHARED) if shared else 0,
        registers=registers,
        max_threads=x * y * z,
        required_block=triples.get(_REQUIRED_THREADS),
        required_cluster=cluster if cluster and all(cluster) else None,
    )


def _attributes(data: bytes, section: Section | None) -> Iterator[tuple[int, bytes]]:
    if section is None:
        return
    at, end = section.offset, section.offset + section.size
    while at + 4 <= end:
        kind, number, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if kind == _SIZED:
            yield number, data[at : min(at + size, end)]
            at += size
