"""Where variables and parameters of a module lie; addresses of lanes are not known here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.ir import Function, Module, Space, Variable


def place_shared(module: Module, function: Function, known: Mapping[str, int]) -> tuple[dict[str, int], int, int]:
    """Offsets of shared variables from the first user byte, the bytes of the static ones, the offset of the dynamic.

    Static variables lie by falling alignment unless the machine code's offsets are known; dynamic ones behind them all.
    """
    variables = [each for each in (*module.variables.values(), *function.variables) if each.space is Space.SHARED]
    static = [each for each in variables if each.size]
    placed = {each.name: known[each.name] for each in static if each.name in known}
    end = max((placed[each.name] + each.size for each in static if each.name in placed), default=0)
    for each in sorted(static, key=lambda variable: -variable.align):
        if each.name not in placed:
            placed[each.name] = _up(end, each.align)
            end = placed[each.name] + each.size
    for each in variables:
        if not each.size:
            placed[each.name] = _up(end, max(each.align, 16) if end or each.align <= 16 else 16)
    return placed, end, max((placed[each.name] for each in variables if not each.size), default=_up(end, 16))


def _up(value: int, align: int) -> int:
    return (value + align - 1) // align * align


def place_symbols(module: Module, memory: DeviceMemory) -> dict[str, int]:
    """Addresses of global and constant variables, written with their initial values."""
    symbols: dict[str, int] = {}
    placed: list[Variable] = []
    for each in module.variables.values():
        if each.space in (Space.GLOBAL, Space.CONST):
            symbols[each.name] = memory.allocate(max(each.size, 1), each.align)
            placed.append(each)
    for each in placed:
        if each.initial:
            memory.write(symbols[each.name], each.initial)
        for offset, name, addend in each.relocations:
            memory.write(symbols[each.name] + offset, (symbols.get(name, 0) + addend).to_bytes(8, "little"))
    return symbols


def parameter_block(program: Program, values: Sequence[bytes]) -> bytes:
    """The parameters as the kernel sees them."""
    block = bytearray(program.parameter_bytes)
    for (name, offset), data in zip(program.parameters.items(), values, strict=True):
        size = next(each.size for each in program.kernel.parameters if each.name == name)
        if len(data) != size:
            raise Fault("cudaErrorInvalidValue", f"parameter `{name}` has {size} bytes, not {len(data)}")
        block[offset : offset + size] = data
    return bytes(block)
