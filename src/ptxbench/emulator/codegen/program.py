"""A kernel with its calls written out: one list of blocks in program order, one numbering of registers; no Python code.

Every call gets its own copy of the callee behind the calling block, so that lanes which part in a callee meet again by
the same rule as elsewhere (the lowest block first). Recursion and calls through registers are not supported.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import (
    Address,
    Function,
    Guard,
    Immediate,
    Instruction,
    Label,
    Module,
    Negated,
    Operand,
    Pair,
    Register,
    Space,
    Symbol,
    TensorAddress,
    Variable,
    Vector,
)

_MOST_INSTRUCTIONS = 400_000
_MOST_DEPTH = 32
_LEAVES = frozenset(("ret", "exit"))


@dataclass
class Block:
    """A basic block of the flat program."""

    index: int
    instructions: tuple[Instruction, ...]
    targets: tuple[int, ...] = ()
    """Blocks that its last branch may go to, in the order of the operands."""
    next: int = -1
    """Where it falls through to; -1: nowhere."""
    leaves: bool = False
    """Whether a `ret` at its end leaves the kernel."""
    function: str = ""

    @property
    def successors(self) -> tuple[int, ...]:
        """All blocks that may follow."""
        return (*self.targets, *((self.next,) if self.next >= 0 else ()))


@dataclass
class Program:
    """A kernel ready for code generation."""

    kernel: Function
    blocks: list[Block]
    types: list[str]
    """Declared type of each register slot."""
    local: dict[str, tuple[int, int]]
    """Local and call-parameter variables: offset and size in a lane's local memory."""
    local_bytes: int
    module: Module
    parameters: dict[str, int] = field(default_factory=dict)
    """Offset of each kernel parameter in the parameter block."""
    parameter_bytes: int = 0

    @cached_property
    def named(self) -> frozenset[str]:
        """The variables that instructions name."""
        operands = (each for block in self.blocks for ins in block.instructions for each in ins.operands)
        return frozenset(name for each in operands for name in _names(each))


def _names(operand: Operand | None) -> Iterator[str]:
    """Names of variables in an operand."""
    match operand:
        case Symbol():
            yield operand.name
        case Address():
            yield from _names(operand.base)
        case Vector():
            for each in operand.items:
                yield from _names(each)
        case TensorAddress():
            for part in (operand.map, operand.coordinates, operand.offsets):
                yield from _names(part)


def flatten(module: Module, kernel: Function) -> Program:
    """Write out all calls of a kernel.

    Raises:
        Unsupported: Recursion, or a program that grows beyond the limit.
    """
    return _Flattener(module, kernel).run()


@dataclass
class _Copy:
    """One copy of a function: how its names and registers are called in the flat program."""

    function: Function
    first_slot: int
    suffix: str
    symbols: dict[str, str]
    depth: int
    chain: tuple[str, ...]


class _Flattener:
    def __init__(self, module: Module, kernel: Function) -> None:
        self.module = module
        self.program = Program(kernel, [], [], {}, 0, module)
        self.copies = 0
        self.size = 0

    def run(self) -> Program:
        program = self.program
        for parameter in program.kernel.parameters:
            align = max(parameter.align, 1)
            offset = (program.parameter_bytes + align - 1) // align * align
            program.parameters[parameter.name] = offset
            program.parameter_bytes = offset + parameter.size
        self._copy(program.kernel, {}, -1, ())
        for number, block in enumerate(program.blocks):
            block.instructions = tuple(block.instructions)
            assert block.index == number
        return program

    def _copy(self, function: Function, symbols: dict[str, str], after: int, chain: tuple[str, ...]) -> None:
        """Append a copy of a function whose returns go to the block that follows it."""
        line = function.blocks[0].instructions[0].line if function.blocks and function.blocks[0].instructions else 0
        if function.name in chain or len(chain) > _MOST_DEPTH:
            raise Unsupported("call", line, f"`{function.name}` calls itself")
        self.copies += 1
        copy = _Copy(
            function,
            len(self.program.types),
            f"#{self.copies}" if chain else "",
            symbols,
            after,
            (*chain, function.name),
        )
        self.program.types.extend(register.type for register in function.registers)
        for variable in function.variables:
            if variable.space in (Space.LOCAL, Space.PARAM) and variable.name not in symbols:
                self._place(variable, copy)
        self._blocks(copy)

    def _place(self, variable: Variable, copy: _Copy) -> None:
        name = variable.name + copy.suffix
        align = max(variable.align, 8)
        offset = (self.program.local_bytes + align - 1) // align * align
        self.program.local[name] = (offset, variable.size)
        self.program.local_bytes = offset + variable.size
        copy.symbols[variable.name] = name

    def _blocks(self, copy: _Copy) -> None:
        """Append the blocks; a call's callee stands between the calling block and the one behind it."""
        blocks, function = self.program.blocks, copy.function
        place: dict[int, int] = {}
        returns: list[Block] = []
        made: list[tuple[Block, tuple[int, ...], int]] = []
        for number, source in enumerate(function.blocks):
            instructions = tuple(_renamed(each, copy) for each in source.instructions)
            self.size += len(instructions)
            if self.size > _MOST_INSTRUCTIONS:
                raise Unsupported("call", instructions[0].line, "the calls, written out, are too many instructions")
            block = Block(len(blocks), instructions, function=function.name)
            place[number] = block.index
            blocks.append(block)
            last = instructions[-1] if instructions else None
            falls = last is None or last.opcode not in ("bra", "brx", "ret", "exit", "trap") or last.guard is not None
            following = number + 1 if falls and number + 1 < len(function.blocks) else -1
            made.append((block, source.successors, following))
            if last is not None and last.opcode == "ret" and copy.suffix:
                returns.append(block)
            block.leaves = last is not None and last.opcode in _LEAVES
            if last is not None and last.opcode == "call":
                self._call(block, last, copy)
        self._link(copy, made, place, returns)

    def _link(
        self,
        copy: _Copy,
        made: Sequence[tuple[Block, tuple[int, ...], int]],
        place: dict[int, int],
        returns: Sequence[Block],
    ) -> None:
        labels = {label: place[block.index] for block in copy.function.blocks for label in block.labels}
        for block, _, following in made:
            last = block.instructions[-1] if block.instructions else None
            if last is not None and last.opcode in ("bra", "brx"):
                target = last.operands[-1]
                named = target.items if isinstance(target, Vector) else (target,)
                block.targets = tuple(labels[each.name] for each in named if isinstance(each, Label))
            if block.next < 0 and following >= 0:
                block.next = place[following]
        behind = len(self.program.blocks)
        for block in returns:
            # A return is a jump behind the copy; guarded, its other lanes go on.
            block.leaves = False
            block.targets = (behind,)

    def _call(self, block: Block, call: Instruction, copy: _Copy) -> None:
        target = call.operands[1]
        function = self.module.functions.get(target.name) if isinstance(target, Symbol) else None
        if function is None or not function.blocks:
            return
        symbols: dict[str, str] = {}
        moves: list[Instruction] = []
        results, arguments = call.operands[0], call.operands[2]
        assert isinstance(results, Vector)
        assert isinstance(arguments, Vector)
        formal = [
            *zip(function.returns, results.items, strict=False),
            *zip(function.parameters, arguments.items, strict=False),
        ]
        for variable, actual in formal:
            if isinstance(actual, Symbol):
                symbols[variable.name] = actual.name
            else:
                raise Unsupported(call.name, call.line, "arguments that are not in .param variables")
        if call.guard is not None:
            raise Unsupported(call.name, call.line, "a call with a guard")
        block.instructions = (*block.instructions[:-1], *moves, call)
        self._copy(function, symbols, block.index, copy.chain)
        block.next = block.index + 1


def _renamed(ins: Instruction, copy: _Copy) -> Instruction:
    if not copy.suffix:
        return ins
    guard = ins.guard
    if guard is not None:
        guard = Guard(replace(guard.register, slot=guard.register.slot + copy.first_slot), guard.negated)
    return replace(ins, operands=tuple(_operand(each, copy) for each in ins.operands), guard=guard)


def _operand(operand: Operand, copy: _Copy) -> Operand:
    match operand:
        case Register():
            return replace(operand, slot=operand.slot + copy.first_slot)
        case Symbol():
            return replace(operand, name=copy.symbols.get(operand.name, operand.name))
        case Address():
            base = _operand(operand.base, copy)
            assert isinstance(base, Register | Symbol | Immediate)
            return replace(operand, base=base)
        case Vector():
            return Vector(tuple(_operand(each, copy) for each in operand.items))
        case TensorAddress():
            coordinates = _operand(operand.coordinates, copy)
            offsets = _operand(operand.offsets, copy) if operand.offsets else None
            assert isinstance(coordinates, Vector)
            assert offsets is None or isinstance(offsets, Vector)
            return TensorAddress(_operand(operand.map, copy), coordinates, offsets)
        case Pair():
            return Pair(_operand(operand.first, copy), _operand(operand.second, copy))
        case Negated():
            return Negated(replace(operand.register, slot=operand.register.slot + copy.first_slot))
    return operand
