"""What a shared object needs, imports, exports and carries, in pure Python; it decides nothing about it.

64-bit little-endian ELF (System V ABI, chapters 4 and 5). Every offset and size in a file is untrusted: whatever points
outside of it raises ToolError.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ptxbench.errors import ToolError
from ptxbench.toolchain.call import run_tool
from ptxbench.toolchain.toolkit import Toolkit

MAX_ENTRIES = 1 << 20
"""Sections, symbols or dynamic entries beyond which a file is taken for malformed."""

_EM_CUDA = 190
_SHT_SYMTAB, _SHT_NOBITS, _SHT_DYNSYM = 2, 8, 11
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_STRSZ, _DT_SONAME, _DT_RPATH, _DT_RUNPATH = 1, 5, 10, 14, 15, 29
_STT_FUNC = 2
_STO_ENTRY = 0x10
"""Bit of a cubin symbol's st_other that marks a kernel."""

_FATBIN_SECTIONS = frozenset({".nv_fatbin", "__nv_relfatbin"})
_FATBIN_MAGIC = bytes.fromhex("50ed55ba")
_ELF_MAGIC = b"\x7fELF"


@dataclass(frozen=True)
class Section:
    """One section: its name, type (sh_type), place in the file and size in bytes, linked section and entry size."""

    name: str
    kind: int
    offset: int
    size: int
    link: int
    entry_size: int


@dataclass(frozen=True)
class Symbol:
    """One symbol: `info` and `other` are st_info and st_other; section index 0 means that it is imported."""

    name: str
    info: int
    other: int
    section: int


@dataclass(frozen=True)
class SharedObject:
    """What the loader sees of a shared object, and its sections.

    Attributes:
        needed: Libraries that the loader loads with it (DT_NEEDED).
        search: Folders it makes the loader search (DT_RPATH, DT_RUNPATH).
        imported: Dynamic symbols that other libraries must define.
        exported: Dynamic symbols that it defines.
    """

    needed: tuple[str, ...]
    search: tuple[str, ...]
    imported: tuple[str, ...]
    exported: tuple[str, ...]
    sections: tuple[Section, ...]


@dataclass(frozen=True)
class Cubin:
    """One piece of machine code for the GPU.

    Attributes:
        sha256: Of `data`, hex.
        arch: e.g. `sm_90a`.
        kernels: Mangled names of its kernels.
    """

    data: bytes
    sha256: str
    arch: str
    kernels: tuple[str, ...]


@dataclass(frozen=True)
class DeviceCode:
    """A start of GPU code (`cubin`: an ELF file for the GPU; `fatbin`: a container) found in a section."""

    kind: str
    section: str
    offset: int


def read_shared_object(library: Path) -> SharedObject:
    """The loader's view of `library`.

    Raises:
        ToolError: It cannot be read, or is not a well-formed 64-bit ELF file.
    """
    image = _Image(_read(library), str(library))
    dynamic = image.dynamic()
    symbols = [symbol for symbol in image.symbols(_SHT_DYNSYM) if symbol.name]
    return SharedObject(
        needed=tuple(text for tag, text in dynamic if tag == _DT_NEEDED),
        search=tuple(text for tag, text in dynamic if tag in (_DT_RPATH, _DT_RUNPATH)),
        imported=tuple(symbol.name for symbol in symbols if symbol.section == 0),
        exported=tuple(symbol.name for symbol in symbols if symbol.section != 0),
        sections=image.sections,
    )


def has_device_code(library: Path) -> bool:
    """Whether `library` has a section of GPU code; the disassembler fails on one that has none.

    Raises:
        ToolError: It cannot be read, or is not a well-formed 64-bit ELF file.
    """
    return any(section.name in _FATBIN_SECTIONS for section in read_shared_object(library).sections)


def cubins(library: Path, toolkit: Toolkit) -> tuple[Cubin, ...]:
    """The machine code that nvcc embedded in `library`, unpacked by cuobjdump.

    Raises:
        ToolError: cuobjdump fails, or what it writes is not well-formed.
    """
    if not has_device_code(library):
        return ()
    with tempfile.TemporaryDirectory(prefix="ptxbench-") as name:
        folder = Path(name)
        call = run_tool([toolkit.cuobjdump, "-xelf", "all", library.resolve()], timeout=60, cwd=folder)
        paths = sorted(folder.glob("*.cubin"))
        if not call.succeeded:
            raise ToolError(f"cuobjdump cannot unpack {library}: {call.stderr[-500:].strip()}", "Report this.")
        return tuple(_cubin(path) for path in paths)


def hidden_device_code(library: Path) -> tuple[DeviceCode, ...]:
    """Starts of cubins and fatbins outside the sections where nvcc puts them: code that a candidate brought along.

    Raises:
        ToolError: `library` is not a well-formed ELF file.
    """
    data = _read(library)
    found = []
    for section in _Image(data, str(library)).sections:
        if section.kind == _SHT_NOBITS or section.name in _FATBIN_SECTIONS:
            continue
        content = data[section.offset : section.offset + section.size]
        found += [DeviceCode("fatbin", section.name, at) for at in _occurrences(content, _FATBIN_MAGIC)]
        found += [
            DeviceCode("cubin", section.name, at)
            for at in _occurrences(content, _ELF_MAGIC)
            if content[at + 18 : at + 20] == _EM_CUDA.to_bytes(2, "little")
        ]
    return tuple(found)


def read_cubin(data: bytes, arch: str, origin: str = "cubin") -> Cubin:
    """A cubin's identity and its kernels' names.

    Raises:
        ToolError: `data` is not a well-formed ELF file for the GPU.
    """
    image = _Image(data, origin)
    if image.machine != _EM_CUDA:
        raise ToolError(f"{origin} is an ELF file, but not for an NVIDIA GPU.")
    kernels = [
        symbol.name
        for symbol in image.symbols(_SHT_SYMTAB)
        if symbol.info & 15 == _STT_FUNC and symbol.other & _STO_ENTRY and symbol.section != 0
    ]
    return Cubin(data, hashlib.sha256(data).hexdigest(), arch, tuple(kernels))


def cubin_tables(data: bytes, origin: str = "cubin") -> tuple[tuple[Section, ...], tuple[Symbol, ...]]:
    """A cubin's sections, and its symbols in the order of their numbers.

    Raises:
        ToolError: `data` is not a well-formed ELF file.
    """
    image = _Image(data, origin)
    return image.sections, tuple(image.symbols(_SHT_SYMTAB))


def _cubin(path: Path) -> Cubin:
    # cuobjdump names them kernel.sm_90a.cubin or kernel.2.sm_90a.cubin.
    return read_cubin(path.read_bytes(), path.name.split(".")[-2], path.name)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ToolError(f"{path} cannot be read: {error.strerror}.") from error


def _occurrences(content: bytes, pattern: bytes) -> Iterator[int]:
    at = content.find(pattern)
    while at >= 0:
        yield at
        at = content.find(pattern, at + 1)


class _Image:
    """The tables of one ELF file, with every access checked."""

    def __init__(self, data: bytes, origin: str) -> None:
        self._data = data
        self._origin = origin
        if data[:6] != _ELF_MAGIC + b"\x02\x01":
            raise self._malformed("it is not a 64-bit little-endian ELF file")
        header = self._unpack("<16xHHIQQQIHHHHHH", 0)
        self.machine: int = header[1]
        self._segments_at, sections_at = header[4], header[5]
        self._segment_size, self._segment_count = header[8], header[9]
        self.sections = self._read_sections(sections_at, header[10], header[11], header[12])

    def _malformed(self, why: str) -> ToolError:
        return ToolError(f"{self._origin} is malformed: {why}.")

    def _unpack(self, layout: str, offset: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(layout, self._data, offset)
        except (struct.error, OverflowError) as error:
            raise self._malformed("a table lies outside the file") from error

    def _text(self, start: int, end: int, offset: int) -> str:
        """The zero-terminated text at `offset` of the string table [start, end)."""
        at = start + offset
        stop = self._data.find(b"\0", at, end)
        if not start <= at < end <= len(self._data) or stop < 0:
            raise self._malformed("a name lies outside its table")
        return self._data[at:stop].decode("utf-8", "replace")

    def _read_sections(self, at: int, size: int, count: int, names: int) -> tuple[Section, ...]:
        if at == 0 or count == 0:
            return ()
        rows = [self._unpack("<IIQQQQIIQQ", at + index * size) for index in range(count)]
        if names >= count:
            raise self._malformed("the section of section names is missing")
        start, length = rows[names][4], rows[names][5]
        sections = []
        for name, kind, _, _, offset, extent, link, _, _, entry_size in rows:
            if kind != _SHT_NOBITS and offset + extent > len(self._data):
                raise self._malformed("a section lies outside the file")
            sections.append(Section(self._text(start, start + length, name), kind, offset, extent, link, entry_size))
        return tuple(sections)

    def symbols(self, kind: int) -> Iterator[Symbol]:
        """The symbols of the first table of `kind`; none when there is no table."""
        table = next((section for section in self.sections if section.kind == kind), None)
        if table is None:
            return
        if table.link >= len(self.sections) or table.size // 24 > MAX_ENTRIES:
            raise self._malformed("a symbol table is inconsistent")
        names = self.sections[table.link]
        for at in range(table.offset, table.offset + table.size - 23, 24):
            name, info, other, section = self._unpack("<IBBH", at)
            yield Symbol(self._text(names.offset, names.offset + names.size, name), info, other, section)

    def dynamic(self) -> list[tuple[int, str]]:
        """The dynamic entries that name something, as the loader reads them: (tag, text)."""
        segments = [
            self._unpack("<IIQQQQQQ", self._segments_at + index * self._segment_size)
            for index in range(self._segment_count)
        ]
        entries: list[tuple[int, int]] = []
        for kind, _, offset, _, _, size, _, _ in segments:
            if kind == _PT_DYNAMIC:
                if size // 16 > MAX_ENTRIES:
                    raise self._malformed("the dynamic table is too long")
                for at in range(offset, offset + size - 15, 16):
                    tag, value = self._unpack("<QQ", at)
                    if tag == 0:
                        break
                    entries.append((tag, value))
        values = dict(entries)
        named = [entry for entry in entries if entry[0] in (_DT_NEEDED, _DT_SONAME, _DT_RPATH, _DT_RUNPATH)]
        if not named:
            return []
        start = self._file_offset(values.get(_DT_STRTAB, 0), segments)
        end = start + values.get(_DT_STRSZ, 0)
        return [(tag, self._text(start, end, value)) for tag, value in named]

    def _file_offset(self, address: int, segments: list[tuple[int, ...]]) -> int:
        for kind, _, offset, virtual, _, size, _, _ in segments:
            if kind == _PT_LOAD and virtual <= address < virtual + size:
                return offset + address - virtual
        raise self._malformed("the table of dynamic names lies outside the file")
