"""Where variables and parameters of a module lie; addresses of lanes are not known here."""

from __future__ import annotations

from collections.abc import Sequence

from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.ir import Module, Space, Variable


def place_shared(program: Program, known: int) -> tuple[dict[str, int], int, int]:
    """Offsets of shared variables from the first user byte, the bytes of the static ones, the offset of the dynamic.

    As ptxas places them (tests/emulator/core/test_layout.py asks it): those that the kernel uses, in the order of
    their declarations, its own before the module's; dynamic ones behind these. The machine code has no names for them,
    only their bytes in all.

    Args:
        program: The kernel.
        known: Bytes that the machine code has for static ones; 0: not known.
    """
    called = {block.function for block in program.blocks} - {program.kernel.name}
    functions = (program.kernel, *(program.module.functions[name] for name in sorted(called)))
    declared = (*(each for function in functions for each in function.variables), *program.module.variables.values())
    variables = [each for each in declared if each.space is Space.SHARED]
    used = program.named
    placed: dict[str, int] = {}
    end = used_end = 0
    for each in sorted((each for each in variables if each.size), key=lambda variable: variable.name not in used):
        placed[each.name] = _up(end, each.align)
        end = placed[each.name] + each.size
        used_end = end if each.name in used else used_end
    for each in variables:
        if not each.size:
            placed[each.name] = _up(used_end, max(each.align, 16) if used_end or each.align <= 16 else 16)
    dynamic = max((placed[each.name] for each in variables if not each.size), default=_up(max(end, known), 16))
    return placed, max(end, known), dynamic


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
