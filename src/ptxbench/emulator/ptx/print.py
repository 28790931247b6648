"""Instructions as one line of PTX, for messages and reports; not a writer of PTX files."""

from __future__ import annotations

import struct

from ptxbench.emulator.ptx.ir import (
    Address,
    Immediate,
    Instruction,
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

_LONG_VECTOR = 8


def text(instruction: Instruction) -> str:
    """The instruction as the source has it, long register lists shortened: `@!p add.s32 r1, r2, 3`."""
    guard = instruction.guard
    before = f"@{'!' if guard.negated else ''}{guard.register.name} " if guard else ""
    if instruction.opcode == "call":
        results, target, arguments = (operand_text(each) for each in instruction.operands)
        after = ", ".join(part for part in (_listed(results), target, _listed(arguments)) if part)
    else:
        after = ", ".join(operand_text(each) for each in _in_source_order(instruction.operands))
    return f"{before}{instruction.name} {after}".rstrip()


def operand_text(operand: Operand) -> str:  # noqa: PLR0911  (one case for each kind of operand)
    """One operand as the source has it."""
    match operand:
        case Register() | Special() | Label():
            return operand.name
        case Immediate():
            return _literal(operand)
        case Symbol():
            return operand.name + _offset(operand.offset)
        case Address():
            return f"[{operand_text(operand.base)}{_offset(operand.offset)}]"
        case Vector():
            return "{" + _items(operand) + "}"
        case TensorAddress():
            return f"[{operand_text(operand.map).strip('[]')}, {operand_text(operand.coordinates)}]"
        case Pair():
            return f"{operand_text(operand.first)}|{operand_text(operand.second)}"
        case Negated():
            return f"!{operand.register.name}"
        case Sink():
            return "_"


def _in_source_order(operands: tuple[Operand, ...]) -> list[Operand]:
    """Im2col offsets stand behind the barrier of a load, or behind the tensor address of a prefetch."""
    placed = list(operands)
    for place, operand in enumerate(operands):
        if isinstance(operand, TensorAddress) and operand.offsets:
            placed.insert(min(place + 2, len(operands)), operand.offsets)
    return placed


def _items(vector: Vector) -> str:
    items = [operand_text(item) for item in vector.items]
    if len(items) > _LONG_VECTOR:
        items = [*items[:2], "...", items[-1]]
    return ", ".join(items)


def _listed(vector: str) -> str:
    return f"({vector[1:-1]})" if vector != "{}" else ""


def _offset(offset: int) -> str:
    return f"{offset:+d}" if offset else ""


def _literal(value: Immediate) -> str:
    if value.kind == "int":
        return str(value.value)
    size, code, prefix = (4, "<f", "0f") if value.kind == "f32" else (8, "<d", "0d")
    number = struct.unpack(code, value.value.to_bytes(size, "little"))[0]
    return f"{number:g}" if float(f"{number:g}") == number else f"{prefix}{value.value:0{2 * size}X}"
