"""Declarations of registers and variables, with their initialisers; where a name is visible is the scopes' affair.

PTX ISA, sections Variables, Initializers, Alignment, Parameterized Variable Names.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from ptxbench.emulator.ptx.constants import evaluate, integer
from ptxbench.emulator.ptx.ir import Immediate, Space, Variable
from ptxbench.emulator.ptx.scopes import REGISTER_TYPES, Names
from ptxbench.emulator.ptx.source import Cursor

_TYPE = re.compile(r"(?:pred|[bsuef]f?(\d+)(x2)?|tf32|e4m3|e5m2)\Z")
SPACES = {f".{space}": space for space in Space}
"""State space by its directive."""
_LANES = {"v2": 2, "v4": 4, "v8": 8}
_ADDRESS = re.compile(r"(?:(generic)\s*\(\s*)?([A-Za-z][\w$]*|[_$%][\w$]+)\s*(\))?\s*([+-].*)?\Z", re.DOTALL)
_PLAIN_NUMBERS = re.compile(r"(?:\s*\d{1,19}\s*,)*\s*\d{1,19}\s*")
_OCTAL = re.compile(r"\b0\d")
_MASKED = re.compile(r"(0[xX][fF]{2}0*)\s*\(\s*(.*?)\s*\)\Z", re.DOTALL)
_PACK = {("f", 4): "<f", ("f", 8): "<d", ("f", 2): "<e"}

Relocation = tuple[int, str, int]


def type_bytes(type_: str) -> int:
    """Size of a fundamental type in bytes; 0 if it is none that memory holds."""
    match = _TYPE.match(type_)
    if not match or match[1] is None:
        return 0
    return int(match[1]) // 8 * (2 if match[2] else 1)


@dataclass(frozen=True)
class Prefix:
    """What stands before the names of a declaration."""

    space: Space
    type: str
    align: int
    lanes: int = 1
    external: bool = False

    @property
    def element(self) -> int:
        """Bytes of one element."""
        return type_bytes(self.type) * self.lanes


def prefix(cursor: Cursor, space: Space, external: bool = False) -> Prefix:
    """Read alignment, vector size, type and pointer attributes.

    Raises:
        PtxError: There is no type, or an attribute is unknown.
    """
    align, lanes, type_ = 0, 1, ""
    while (token := cursor.peek()).startswith("."):
        cursor.take()
        word = token[1:]
        if word == "align":
            align = _alignment(cursor)
        elif word in _LANES:
            lanes = _LANES[word]
        elif word == "ptr":
            _skip_pointer(cursor)
        elif word == "attribute":
            cursor.expect("(")
            cursor.until(")")
        elif word in REGISTER_TYPES and not type_:
            type_ = word
        else:
            cursor.fail(f"`{token}` does not belong in a declaration here")
    if not type_:
        cursor.fail("a declaration has no type")
    if space is not Space.REG and type_bytes(type_) == 0:
        cursor.fail(f"memory holds no `.{type_}`")
    return Prefix(space, type_, align or max(1, min(type_bytes(type_) * lanes, 16)), lanes, external)


def _alignment(cursor: Cursor) -> int:
    align = integer(cursor.take(), cursor.line)
    if align <= 0 or align & (align - 1) or align > 1 << 20:
        cursor.fail(f"{align} is not an alignment")
    return align


def _skip_pointer(cursor: Cursor) -> None:
    """`.ptr .global .align 16` tells what a kernel parameter points to; nothing depends on it."""
    if cursor.peek() in (".global", ".shared", ".const", ".local"):
        cursor.take()
    if cursor.accept(".align"):
        _alignment(cursor)


def registers(cursor: Cursor, names: Names) -> None:
    """Read a `.reg` statement up to its semicolon.

    Raises:
        PtxError: It is none, or a name is declared twice in its scope.
    """
    head = prefix(cursor, Space.REG)
    if head.lanes not in (1, 2, 4):
        cursor.fail("a register vector has 2 or 4 components")
    while True:
        name = cursor.name()
        if cursor.accept("<"):
            count = integer(cursor.take(), cursor.line)
            cursor.expect(">")
            if head.lanes != 1 or count < 0:
                cursor.fail(f"`{name}<{count}>` is not a range of registers")
            problem = names.declare_range(name, count, head.type)
        else:
            problem = names.declare_register(name, head.type, head.lanes)
        if problem:
            cursor.fail(problem)
        if not cursor.accept(","):
            break
    cursor.expect(";")


def variable(cursor: Cursor, head: Prefix) -> Variable:
    """Read one name with its dimensions and initialiser.

    Raises:
        PtxError: The size, or the initialiser, makes no sense or is beyond the limits.
    """
    name = cursor.name()
    count, open_ended = 1, False
    while cursor.accept("["):
        text = cursor.until("]").strip()
        size = integer(text, cursor.line) if text else 0
        open_ended = open_ended or not text
        if size < 0 or (text and size == 0 and head.space is not Space.PARAM):
            cursor.fail(f"`{name}` has a dimension of {size}")
        count *= size if text else 1
    size = head.element * count
    if size > cursor.source.limits.variable_bytes:
        cursor.fail(f"`{name}` has {size} bytes, the limit is {cursor.source.limits.variable_bytes}")
    made = Variable(name, head.space, head.align, 0 if open_ended else size, type=head.type)
    if not cursor.accept("="):
        if open_ended and not head.external and head.space is not Space.PARAM:
            cursor.fail(f"`{name}` has no size")
        return made
    if head.space not in (Space.GLOBAL, Space.CONST):
        cursor.fail(f"`{name}` cannot have an initial value in .{head.space}")
    initial, relocations = _Initialiser(cursor, head).read(None if open_ended else size)
    return Variable(name, head.space, head.align, len(initial), initial, head.type, relocations)


class _Initialiser:
    """Packs an initialiser, nested braces row by row, into bytes and addresses to be filled in."""

    def __init__(self, cursor: Cursor, head: Prefix) -> None:
        self.cursor = cursor
        self.head = head
        self.width = type_bytes(head.type)
        self.data = bytearray()
        self.relocations: list[Relocation] = []
        self.masked: list[tuple[int, int, str]] = []

    def read(self, size: int | None) -> tuple[bytes, tuple[Relocation, ...]]:
        start = self.cursor.position
        text = self._text()
        line = self.cursor.source.line(start)
        flat = text.replace("{", " ").replace("}", " ") if "{" in text else text
        if _PLAIN_NUMBERS.fullmatch(flat) and not _OCTAL.search(flat) and self.head.type[0] != "f":
            mask, width = (1 << 8 * self.width) - 1, self.width
            self.data = bytearray(b"".join((int(item) & mask).to_bytes(width, "little") for item in flat.split(",")))
        else:
            for item in flat.split(","):
                if item.strip():
                    self._item(item.strip(), line)
        total = len(self.data) if size is None else size
        if len(self.data) > total:
            self.cursor.fail(f"an initialiser has {len(self.data)} bytes for {total}")
        if total > self.cursor.source.limits.initial_bytes:
            self.cursor.fail(f"an initialised variable has {total} bytes")
        self._merge_masked()
        self.data.extend(bytes(total - len(self.data)))
        return bytes(self.data), tuple(self.relocations)

    def _text(self) -> str:
        """The initialiser's text: up to the matching brace, or for a single value up to `,` or `;`."""
        cursor = self.cursor
        cursor.skip_space()
        text, start = cursor.source.text, cursor.position
        if not cursor.accept("{"):
            match = re.compile(r"[^,;]*").match(text, start)
            assert match is not None
            cursor.position = match.end()
            return match[0]
        depth = 1
        for match in re.compile(r"[{};]").finditer(text, cursor.position):
            depth += {"{": 1, "}": -1}.get(match[0], 0)
            if depth == 0:
                cursor.position = match.end()
                return text[start + 1 : match.start()]
            if match[0] == ";" or depth > cursor.source.limits.nesting:
                break
        cursor.fail("an initialiser is not closed")

    def _item(self, text: str, line: int) -> None:
        first = text[0]
        masked = _MASKED.match(text)
        if masked:
            shift = (len(masked[1]) - 4) // 2
            self.masked.append((len(self.data), shift, masked[2]))
            self.data.append(0)
        elif first.isalpha() or first in "_$%":
            if self.width != 8:
                self.cursor.fail(f"the address `{text[:60]}` does not fit a .{self.head.type}")
            self._address(len(self.data), text, line)
            self.data.extend(bytes(8))
        else:
            self.data.extend(self._pack(evaluate(text, line)))

    def _address(self, offset: int, text: str, line: int) -> None:
        match = _ADDRESS.match(text)
        if not match or bool(match[1]) != bool(match[3]):
            self.cursor.fail(f"`{text[:60]}` is not an address")
        self.relocations.append((offset, match[2], integer(match[4], line) if match[4] else 0))

    def _pack(self, value: Immediate) -> bytes:
        kind, width = self.head.type.lstrip("bsu")[:1], self.width
        if value.kind == "int" and kind != "f":
            return (value.value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        if value.kind == "int":
            number = float(value.value)
        else:
            size, code = (4, "<f") if value.kind == "f32" else (8, "<d")
            if size == width:
                return value.value.to_bytes(width, "little")
            number = struct.unpack(code, value.value.to_bytes(size, "little"))[0]
        code = _PACK.get(("f", width), "") if kind == "f" else ""
        if not code:
            self.cursor.fail(f"a floating constant does not fit a .{self.head.type}")
        try:
            return struct.pack(code, number)
        except OverflowError:
            return struct.pack(code, float("inf") if number > 0 else float("-inf"))

    def _merge_masked(self) -> None:
        """Join `0xFF(a), 0xFF00(a), ...`, the bytes of one address, as compilers write packed structures."""
        for index in range(0, len(self.masked), 8):
            group = self.masked[index : index + 8]
            start, _, text = group[0]
            if [(place - start, shift, name) for place, shift, name in group] != [(i, i, text) for i in range(8)]:
                self.cursor.fail("the bytes of an address do not stand together")
            self._address(start, text, self.cursor.line)
