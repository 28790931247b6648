"""Operand shapes: reads the operand column of the tables of instruction forms and compares it with an instruction.

The notation is explained in `isa.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ptxbench.emulator.ptx.ir import (
    Address,
    Immediate,
    Label,
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

_TYPE = re.compile(
    r"(?:pred|[bus](?:2|4|8|16|32|64|128)(?:x2)?|f(?:16|32|64)(?:x2)?|bf16(?:x2)?|tf32|e\dm\d(?:x[24])?|ue8m0(?:x2)?)\Z"
)
_SPEC = re.compile(
    r"(?P<open>[{\[]*|~)(?P<both>=?)(?P<name>[a-z_@#(]?)(?P<close>[\])]*)(?P<value>\d*)"
    r"(?::(?P<type>\w+))?(?:\*(?P<count>\w+))?\}?(?P<pair>\|pred\??)?(?P<when>\?[\w:]*)?\Z"
)
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_SPACES = {"a": "generic", "s": "shared", "m": "shared", "t": "tensor"}


@dataclass(frozen=True)
class OperandSpec:
    """What may stand at one place of an instruction."""

    kind: str
    """`register`, `vector`, `address`, `tensor`, `offsets`, `immediate`, `label`, `sink` or `call`."""
    written: bool = False
    read: bool = True
    type: str = ""
    """Of the register or of each element: a type of PTX, without the dot."""
    count: int = 1
    """Elements of a vector, coordinates of a tensor."""
    pair: str = ""
    """`required` or `optional` predicate beside the register."""
    optional: bool = False
    space: str = ""
    """Of an address: `generic` (any, with a 64-bit register), `shared` or `tensor`."""
    value: int = 0
    """Of an immediate: an example that the assembler takes."""


def read_specs(text: str, words: tuple[str, ...]) -> tuple[OperandSpec, ...]:
    """The operand column for one mnemonic, given as its words."""
    types = [word for word in words if _TYPE.match(word)]
    made = []
    for token in text.split():
        match = _SPEC.match(token)
        assert match, token
        when = match["when"] or ""
        if len(when) > 1 and when[1:] not in words:
            continue
        made.append(replace(_read(match, words, types), optional=when == "?"))
    return tuple(made)


def _read(match: re.Match[str], words: tuple[str, ...], types: list[str]) -> OperandSpec:
    opening, name = match["open"], match["name"]
    written = name == "d"
    type_ = _type(match["type"] or "", types)
    if opening == "[[":
        return OperandSpec("tensor", count=_coordinates(words))
    if opening == "[":
        return OperandSpec("address", space=_SPACES[name])
    if opening == "{" and name == "o" and not type_:
        return OperandSpec("offsets", type="b16", count=_coordinates(words) - 2 if "im2col" in words else 2)
    if opening == "{" or (opening == "~" and _count("V", words) > 1):
        count = _count(match["count"] or "V", words)
        return OperandSpec("vector", written, not written or bool(match["both"]), type_, count)
    if name == "#":
        return OperandSpec("immediate", value=int(match["value"]))
    if name in ("@", "_", "("):
        return OperandSpec({"@": "label", "_": "sink", "(": "call"}[name])
    pair = match["pair"] or ""
    beside = "" if not pair else "optional" if pair.endswith("?") else "required"
    return OperandSpec("register", written, not written, type_, pair=beside)


def _type(name: str, types: list[str]) -> str:
    if name == "T":
        return types[-1]
    if name == "W":
        return _WIDER[types[-1]]
    return types[int(name[1:]) - 1] if name[:1] == "T" else name


def _count(text: str, words: tuple[str, ...]) -> int:
    """Length of a vector: a number, or a letter that the mnemonic fills in."""
    if text.isdecimal():
        return int(text)
    letter, factor = text[0], int(text[1:] or 1)
    if letter == "V":
        return next((int(word[1:]) for word in words if re.match(r"v[248]\Z", word)), 1)
    if letter == "X":
        return factor * next(int(word[1:]) for word in words if re.match(r"x\d+\Z", word))
    if letter == "N":
        found = next(found for word in words if (found := re.match(r"m64n(\d+)k", word)))
        return int(found[1]) // factor
    assert letter == "L", text
    return 8 if "cta_group::2" in words else 4


def _coordinates(words: tuple[str, ...]) -> int:
    if "tile::gather4" in words or "tile::scatter4" in words:
        return 5
    return next(int(word[0]) for word in words if re.match(r"[1-5]d\Z", word))


def fits(specs: Sequence[OperandSpec], operands: Sequence[Operand]) -> bool:
    """Whether the operands have these shapes, optional ones absent or not."""
    offsets = next((spec.count for spec in specs if spec.kind == "offsets"), 0)
    placed = [spec for spec in specs if spec.kind != "offsets"]
    if placed and placed[0].kind == "call":
        return True
    if len(placed) != len(operands):
        placed = [spec for spec in placed if not spec.optional]
    return len(placed) == len(operands) and all(
        _CHECKS[spec.kind](spec, operand) and _offsets_fit(operand, offsets)
        for spec, operand in zip(placed, operands, strict=True)
    )


def _offsets_fit(operand: Operand, count: int) -> bool:
    if not isinstance(operand, TensorAddress):
        return True
    return len(operand.offsets.items if operand.offsets else ()) == count


def _register(spec: OperandSpec, operand: Operand) -> bool:
    if isinstance(operand, Pair):
        return bool(spec.pair) and _register(replace(spec, pair=""), operand.first) and _predicate(operand.second)
    if spec.pair == "required":
        return False
    if isinstance(operand, Register):
        return (operand.type == "pred") == (spec.type == "pred")
    if spec.written:
        return isinstance(operand, Sink)
    if spec.type == "pred":
        return isinstance(operand, Negated | Immediate | Special)
    return isinstance(operand, Immediate | Special | Symbol)


def _predicate(operand: Operand) -> bool:
    return isinstance(operand, Sink) or (isinstance(operand, Register) and operand.type == "pred")


def _vector(spec: OperandSpec, operand: Operand) -> bool:
    element = replace(spec, kind="register")
    if not isinstance(operand, Vector):
        return spec.count == 1 and isinstance(operand, Register)
    return len(operand.items) == spec.count and all(_register(element, item) for item in operand.items)


def _tensor(spec: OperandSpec, operand: Operand) -> bool:
    return isinstance(operand, TensorAddress) and len(operand.coordinates.items) == spec.count


_CHECKS: dict[str, Callable[[OperandSpec, Operand], bool]] = {
    "register": _register,
    "vector": _vector,
    "tensor": _tensor,
    "address": lambda _, operand: isinstance(operand, Address),
    "immediate": lambda _, operand: isinstance(operand, Immediate),
    "sink": lambda _, operand: isinstance(operand, Sink),
    "label": lambda _, operand: isinstance(operand, Label | Vector),
}


_ORDERED = (
    _TYPE,
    re.compile(r"(?:global|local|const|param|shared)(?:::\w+)?\Z"),
    re.compile(r"(?:row|col)\Z"),
)


def arrange(pattern: str, group: re.Pattern[str], words: Sequence[str]) -> list[str] | None:
    """Bring modifiers into the order of a row's mnemonic; None if they are not its modifiers.

    Args:
        pattern: The row's mnemonic, sets written out.
        group: Matches one of its choices; the third group of a match is an optional one.
        words: The modifiers, in any order.
    """
    left, made, position = list(words), [], 0
    for match in [*group.finditer(pattern), None]:
        fixed = pattern[position : match.start() if match else None].split(".")[1 if position == 0 else 0 :]
        if not _take([word for word in fixed if word], left):
            return None
        made += [word for word in fixed if word]
        if match is None:
            break
        position = match.end()
        choices = [choice.split(".")[1:] for choice in (match[1] or match[2] or match[3] or "").split("|")]
        chosen = next((choice for choice in sorted(choices, key=len, reverse=True) if _take(choice, left)), None)
        if chosen is None and match[3] is None:
            return None
        made += chosen or []
    return None if left else made


def _take(wanted: Sequence[str], left: list[str]) -> bool:
    """Remove the words from what is left, all or none; a word that may not overtake others must be their first."""
    rest = list(left)
    for word in wanted:
        order = next((kind for kind in _ORDERED if kind.match(word)), None)
        first = next((each for each in rest if order is None or order.match(each)), None) if order else word
        if word != first or word not in rest:
            return False
        rest.remove(word)
    left[:] = rest
    return True
