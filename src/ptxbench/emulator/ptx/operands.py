"""Operands of an instruction from their text, names resolved in a function's scopes; knows no opcode.

The forms are those of the PTX ISA, sections Instruction Operands and Data Movement (tensor addresses).
"""

from __future__ import annotations

import re

from ptxbench.emulator.errors import PtxError
from ptxbench.emulator.ptx.constants import evaluate, integer
from ptxbench.emulator.ptx.ir import (
    Address,
    Immediate,
    Negated,
    Operand,
    Pair,
    Register,
    Sink,
    Special,
    Symbol,
    TensorAddress,
    Vector,
)
from ptxbench.emulator.ptx.scopes import Names, RegisterVector, symbol
from ptxbench.emulator.ptx.special import is_special
from ptxbench.emulator.ptx.variables import type_bytes

SINK = Sink()
_NAME = r"[A-Za-z][\w$]*|[_$%][\w$]+"
_NAMED = re.compile(rf"({_NAME})(?:\.([xyzwrgba]))?\Z")
_OFFSET = re.compile(rf"({_NAME})\s*([+-].*)\Z", re.DOTALL)
_INDEXED = re.compile(rf"({_NAME})\s*\[([^\]]*)\]\s*([+-].*)?\Z", re.DOTALL)
_CLOSING = {"{": "}", "[": "]"}


def split(text: str, line: int) -> list[str]:
    """The operands' texts: cut at commas outside of braces and brackets.

    Raises:
        PtxError: A bracket is not closed, or an operand is empty.
    """
    text = text.strip()
    if not text:
        return []
    pieces = [piece.strip() for piece in text.split(",")] if "{" not in text else _split_nested(text, line)
    if "" in pieces:
        raise PtxError(line, "an operand is missing between commas")
    return pieces


def _split_nested(text: str, line: int) -> list[str]:
    pieces: list[str] = []
    start = 0
    while True:
        while start < len(text) and text[start].isspace():
            start += 1
        end = start
        closing = _CLOSING.get(text[start : start + 1])
        if closing:
            end = text.find(closing, start)
            if end < 0:
                raise PtxError(line, f"`{closing}` is missing")
        comma = text.find(",", end)
        if comma < 0:
            pieces.append(text[start:].rstrip())
            return pieces
        pieces.append(text[start:comma].rstrip())
        start = comma + 1


def operand(text: str, names: Names, line: int) -> Operand:
    """The operand that the text means.

    Raises:
        PtxError: It is none, or names something that is not declared.
    """
    known = names.scope.operands.get(text)
    if known is None:
        known = names.scope.operands[text] = _parse(text, names, line)
    return known


def _parse(text: str, names: Names, line: int) -> Operand:
    first = text[:1]
    if first == "{":
        return _vector(text, names, line)
    if first == "[":
        return _address(text, names, line)
    if text == "_":
        return SINK
    if first.isalpha() or first in "_$%":
        return _named(text, names, line)
    if first == "!" and _NAMED.match(text[1:].strip()):
        inner = operand(text[1:].strip(), names, line)
        if isinstance(inner, Register):
            return Negated(inner)
    return evaluate(text, line)


def _named(text: str, names: Names, line: int) -> Operand:
    match = _NAMED.match(text)
    if match:
        return _resolve(match, names, line)
    if "|" in text:
        return _pair(text, names, line)
    match = _OFFSET.match(text)
    if match and match[1] != "WARP_SZ":
        base = operand(match[1], names, line)
        if isinstance(base, Symbol):
            return Symbol(base.name, base.offset + integer(match[2], line))
        raise PtxError(line, f"`{match[1]}` is no address that `{text[:60]}` could add to")
    match = _INDEXED.match(text)
    if match:
        return _indexed(match, names, line)
    return evaluate(text, line)


def _pair(text: str, names: Names, line: int) -> Operand:
    parts = [part.strip() for part in text.split("|")]
    if len(parts) == 2 and all(part == "_" or _NAMED.match(part) for part in parts):
        first, second = (operand(part, names, line) for part in parts)
        if isinstance(first, Register | Sink) and isinstance(second, Register | Sink):
            return Pair(first, second)
    raise PtxError(line, f"`{text[:60]}` is not a pair of registers")


def _resolve(match: re.Match[str], names: Names, line: int) -> Operand:
    name, letter = match[1], match[2]
    if letter:
        component = names.component(name, letter)
        if component:
            return component
    if is_special(match[0]):
        return Special(match[0])
    found = None if letter else names.find(name)
    if found is None:
        if name == "WARP_SZ" and not letter:
            return evaluate(name, line)
        raise PtxError(line, f"`{match[0][:200]}` is not declared")
    if isinstance(found, Register):
        return found
    return Vector(found.components) if isinstance(found, RegisterVector) else symbol(found)


def _indexed(match: re.Match[str], names: Names, line: int) -> Symbol:
    """`array[3]`: the address of an element (PTX ISA, section Arrays as Operands)."""
    variable = names.find(match[1])
    base = operand(match[1], names, line)
    if not isinstance(base, Symbol) or variable is None or isinstance(variable, Register | RegisterVector):
        raise PtxError(line, f"`{match[1]}` is not an array")
    element = type_bytes(getattr(variable, "type", "b8")) or 1
    offset = integer(match[2], line) * element
    return Symbol(base.name, offset + (integer(match[3], line) if match[3] else 0))


def _vector(text: str, names: Names, line: int) -> Vector:
    inner = text[1:-1] if text[-1] == "}" else ""
    if not inner.strip() or "{" in inner or "[" in inner:
        raise PtxError(line, f"`{text[:60]}` is not a vector")
    known = names.scope.operands
    items = []
    for part in inner.split(","):
        item = part.strip()
        found = known.get(item)
        items.append(found if found is not None else operand(item, names, line))
    return Vector(tuple(items))


def _address(text: str, names: Names, line: int) -> Operand:
    if text[-1] != "]":
        raise PtxError(line, f"`{text[:60]}` is not an address")
    inner = text[1:-1].strip()
    if "{" in inner:
        return _tensor_address(inner, names, line)
    base = _base(inner, names, line)
    if isinstance(base, Symbol):
        return Address(Symbol(base.name), base.offset)
    return base


def _base(inner: str, names: Names, line: int) -> Address | Symbol:
    match = _OFFSET.match(inner)
    offset = 0
    if match and match[1] != "WARP_SZ":
        inner, offset = match[1], integer(match[2], line)
    base = operand(inner, names, line) if inner[:1] not in ("", "[", "{") else None
    if isinstance(base, Register):
        return Address(base, offset)
    if isinstance(base, Symbol):
        return Symbol(base.name, base.offset + offset)
    if isinstance(base, Immediate) and base.kind == "int":
        return Address(base, offset)
    raise PtxError(line, f"`[{inner[:60]}]` is not an address")


def _tensor_address(inner: str, names: Names, line: int) -> TensorAddress:
    parts = split(inner, line)
    if len(parts) != 2:
        raise PtxError(line, f"`[{inner[:60]}]` is not a tensor address")
    base = _base(parts[0], names, line)
    map_: Operand = base.base if isinstance(base, Address) and base.offset == 0 else base
    coordinates = operand(parts[1], names, line)
    if not isinstance(coordinates, Vector):
        raise PtxError(line, f"`{parts[1][:60]}` is not a list of coordinates")
    return TensorAddress(map_, coordinates)
