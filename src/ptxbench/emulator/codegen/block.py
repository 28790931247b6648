"""Writes one basic block as a Python function over lanes; what the operations do is decided elsewhere.

The function is `block(R, K, u, m)`: registers by slot, constants of the unit, the unit, and the mask of active lanes
(None: all). It answers the predicate of the block's branch. Arrays are rebound and never changed: a copy costs nothing.
Two texts are made: one for all lanes, one that keeps the registers of lanes outside the mask.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from ptxbench.emulator.codegen.lanes import core
from ptxbench.emulator.codegen.lower import Tree, Trees, cast, lower
from ptxbench.emulator.codegen.op import BOOL, Constant, Op, Source, bits_of, dtype_of, immediate_bits
from ptxbench.emulator.codegen.runs import Run, Texts
from ptxbench.emulator.machine.spaces import LOCAL_WINDOW, SHARED_WINDOW, Lanes
from ptxbench.emulator.ptx.ir import Guard, Immediate, Instruction, Negated, Register, Special, Symbol

_NAMES = {"where": np.where, "minimum": np.minimum, "maximum": np.maximum}
_NAMES |= {f"W{width}": np.dtype(f"uint{width}").type(width) for width in (16, 32, 64)}
BlockFunction = Callable[[list[Any], list[Any], Any, Any], Any]


@dataclass
class Constants:
    """What a unit must provide before its blocks run: immediates, special registers, addresses, parameters."""

    specs: list[tuple[Any, ...]] = field(default_factory=list)
    _places: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def place(self, spec: tuple[Any, ...]) -> int:
        """The number of a constant, new or known."""
        found = self._places.get(spec)
        if found is None:
            found = self._places[spec] = len(self.specs)
            self.specs.append(spec)
        return found


@dataclass(frozen=True)
class Step:
    """An instruction of a block and how it is executed."""

    instruction: Instruction
    op: Op


@dataclass(frozen=True)
class BlockCode:
    """Makers of a block's two functions: most blocks need only one."""

    full: Callable[[], BlockFunction]
    masked: Callable[[], BlockFunction]


def both(mask: Lanes | None, guard: Lanes) -> Lanes:
    """Lanes of the mask whose guard is true."""
    return guard if mask is None else mask & guard


def uses(op: Op, guard: Guard | None) -> tuple[set[int], set[int]]:
    """Slots that an instruction reads, and those that it overwrites in all active lanes."""
    read = {slot for operand, _ in op.sources for slot in slots_of(operand)} | set(op.touches)
    written = {slot for operand, _ in op.results for slot in slots_of(operand)}
    if guard is not None:
        read |= written | {guard.register.slot}
        written = set()
    return read, written


def slots_of(operand: Source) -> tuple[int, ...]:
    """The register slot that an operand reads."""
    if isinstance(operand, Register):
        return (operand.slot,)
    return (operand.register.slot,) if isinstance(operand, Negated) else ()


_NAMES["both"] = both
_NAMES |= {
    "LOW32": np.uint64(0xFFFF_FFFF),
    "SHARED_WINDOW": np.uint64(SHARED_WINDOW),
    "LOCAL_WINDOW": np.uint64(LOCAL_WINDOW),
}


CLOCKS = {
    **{"%clock": 0, "%clock64": 0, "%clock_hi": 32},
    **{"%globaltimer": 0, "%globaltimer_lo": 0, "%globaltimer_hi": 32},
}
"""Special registers that change while a unit runs, and which bits of the time they show."""


class BlockWriter:
    """Writes the text of one block; use once."""

    def __init__(self, types: Sequence[str], constants: Constants, live_out: set[int]) -> None:
        self.types = types
        self.constants = constants
        self.live_out = live_out
        self.names: dict[int, str] = {}
        self.dirty: set[int] = set()
        # Text, (slot, name) for a register that goes back to the unit, or a run for the compiled core.
        self.lines: list[str | tuple[int, str] | Run] = []
        self.core = core()
        self.space: dict[str, Any] = dict(_NAMES)
        self.fresh = 0

    def write(
        self, steps: Sequence[Step], branch: Guard | None, sources: Sequence[tuple[Source, str]] = ()
    ) -> BlockCode:
        """Make both functions; they answer the branch's predicate, or the values of `sources`."""
        for number, step in enumerate(steps):
            self._step(number, step)
        answer = "None"
        if branch is not None:
            answer = self._read(branch.register, "pred")
            answer = f"~{answer}" if branch.negated else answer
        elif sources:
            answer = f"({', '.join(self._read(operand, type_) for operand, type_ in sources)},)"
        for slot in sorted(self.dirty & self.live_out):
            self.lines.append((slot, self.names[slot]))
        if self.core is not None:
            self.lines = Texts(self.core, self.constants.specs, self._constant).resolved(self.lines, answer)
        return BlockCode(
            cache(lambda: self._made("full", answer, masked=False)),
            cache(lambda: self._made("masked", answer, masked=True)),
        )

    def _made(self, name: str, answer: str, *, masked: bool) -> BlockFunction:
        text = self._text(name, answer, masked=masked)
        exec(compile(text, "<ptx block>", "exec"), self.space)  # noqa: S102  (text of our own making, no names from PTX)
        made: BlockFunction = self.space[name]
        return made

    def _text(self, name: str, answer: str, *, masked: bool) -> str:
        lines = [f"def {name}(R, K, u, m):"]
        for line in self.lines:
            if isinstance(line, str):
                lines.append(f" {line}")
                continue
            assert isinstance(line, tuple)
            slot, value = line
            wide = bits_of(self.types[slot]) == 128
            lines.append(
                f" R[{slot}] = where(m{'[:, None]' if wide else ''}, {value}, R[{slot}])"
                if masked
                else f" R[{slot}] = {value}"
            )
        lines.append(f" return {answer}\n")
        return "\n".join(lines)

    def _name(self) -> str:
        self.fresh += 1
        return f"v{self.fresh}"

    def _constant(self, value: object) -> str:
        self.fresh += 1
        name = f"c{self.fresh}"
        self.space[name] = value
        return name

    def _step(self, number: int, step: Step) -> None:
        op, guard = step.op, step.instruction.guard
        trees = self._trees(step)
        if trees is not None:
            self._run(step, trees)
            return
        for slot in sorted(set(op.touches) & self.dirty):
            self.lines.append((slot, self.names[slot]))
            self.dirty.discard(slot)
        arguments = [self._read(operand, type_) for operand, type_ in op.sources]
        gate = ""
        if guard is not None:
            gate = self._read(guard.register, "pred")
            if guard.negated:
                name = self._name()
                self.lines.append(f"{name} = ~{gate}")
                gate = name
            self.lines.append(f"u.tally({step.instruction.index}, m, {gate})")
        call = self._call(op, arguments, gate, step.instruction.line)
        names = [self._name() if isinstance(operand, Register) else "_" for operand, _ in op.results]
        self.lines.append(f"{', '.join(names)} = {call}" if names else call)
        for slot in op.touches:
            self.names.pop(slot, None)
        for name, (operand, type_) in zip(names, op.results, strict=True):
            if isinstance(operand, Register):
                self._assign(operand, name, type_, gate)

    def _trees(self, step: Step) -> Trees | None:
        """What the compiled core does for an instruction, if it can."""
        op = step.op
        if self.core is None or op.machine or not op.results:
            return None
        trees = lower(step.instruction, op)
        if trees is None or not _known(trees, self.core.operations):
            return None
        values = [
            *op.sources,
            *op.results,
            *((each, each.type) for each, _ in op.results if isinstance(each, Register)),
        ]
        if any(bits_of(type_) > 64 or (isinstance(each, Special) and each.name in CLOCKS) for each, type_ in values):
            return None
        registers = [(each.type, type_) for each, type_ in values if isinstance(each, Register)]
        if any((have == "pred") != (want == "pred") for have, want in registers):
            return None
        return trees

    def _run(self, step: Step, trees: Trees) -> None:
        """Add an instruction to the open run of the compiled core."""
        op, guard = step.op, step.instruction.guard
        gate = self._gate(guard) if guard is not None else ""
        sources = [self._value(operand, type_) for operand, type_ in op.sources]
        if op.warp:
            sources.insert(0, self._active(gate))
        for tree, (operand, type_) in zip(trees, op.results, strict=True):
            if not isinstance(operand, Register):
                continue
            made, wanted = dtype_of(type_).itemsize * 8, dtype_of(operand.type).itemsize * 8
            value = cast(tree, made, wanted, signed=type_.startswith("s"))
            if gate:
                held = [gate, self._value(operand, operand.type)]
                value = (f"select_{wanted}", len(sources), value, len(sources) + 1)
                name = self._emit(value, [*sources, *held])
            else:
                name = self._emit(value, sources)
            self.names[operand.slot] = name
            self.dirty.add(operand.slot)
        if gate:
            self._open().after.append(f"u.tally({step.instruction.index}, m, {gate})")

    def _open(self) -> Run:
        """The run to which operations are added: the last line."""
        last = self.lines[-1] if self.lines else None
        if isinstance(last, Run):
            return last
        made = Run()
        self.lines.append(made)
        return made

    def _emit(self, tree: Tree, sources: list[str]) -> str:
        """The name of a tree's value."""
        return sources[tree] if isinstance(tree, int) else self._open().emit(tree, sources, self._name)

    def _gate(self, guard: Guard) -> str:
        gate = self._read(guard.register, "pred")
        return self._emit(("not_8", 0), [gate]) if guard.negated else gate

    def _active(self, gate: str) -> str:
        """The lanes that execute an instruction, as a value of the block."""
        if not gate:
            return "u.full(m)"
        name = self._name()
        self.lines.append(f"{name} = both(m, {gate})")
        return name

    def _value(self, operand: Source, type_: str) -> str:
        """An operand of a run."""
        if isinstance(operand, Negated):
            return self._emit(("not_8", 0), [self._read(operand.register, "pred")])
        if isinstance(operand, Register):
            have, want = dtype_of(operand.type).itemsize * 8, dtype_of(type_).itemsize * 8
            return self._emit(cast(0, have, want), [self._held(operand)])
        return self._read(operand, type_)

    def _call(self, op: Op, arguments: list[str], gate: str, line: int) -> str:
        if op.expression:
            return op.expression.format(*arguments)
        function = self._constant(op.run)
        if op.warp:
            arguments = [f"u.full({f'both(m, {gate})' if gate else 'm'})", *arguments]
        if op.machine:
            self.lines.append(f"u.line = {line}")
            arguments = ["u", f"both(m, {gate})" if gate else "m", *arguments]
        return f"{function}({', '.join(arguments)})"

    def _assign(self, register: Register, name: str, type_: str, gate: str) -> None:
        """Bind a result to a register; under a guard the other lanes keep what they had."""
        wanted, made = dtype_of(register.type), dtype_of(type_)
        if wanted != made:
            # A register wider than the result takes it extended as its type says (PTX ISA, Operand Size Exceeding).
            view = f".view('i{made.itemsize}')" if type_.startswith("s") else ""
            self.lines.append(f"{name} = {name}{view}.astype('{wanted.str}')")
        if gate:
            old = self._read(register, register.type)
            wide = "[:, None]" if bits_of(register.type) == 128 else ""
            self.lines.append(f"{name} = where({gate}{wide}, {name}, {old})")
        self.names[register.slot] = name
        self.dirty.add(register.slot)

    def _read(self, operand: Source, type_: str) -> str:
        match operand:
            case Constant():
                return self._place(operand.spec)
            case Register():
                return self._read_register(operand, type_)
            case Negated():
                return f"(~{self._read(operand.register, 'pred')})"
            case Immediate():
                if type_ == "pred":
                    return self._place(("imm", int(operand.value != 0), BOOL.str))
                return self._place(("imm", immediate_bits(operand, type_), dtype_of(type_).str))
            case Special() if operand.name in CLOCKS:
                return f"u.clock({CLOCKS[operand.name]}, '{dtype_of(type_).str}')"
            case Special():
                return self._place(("special", operand.name, dtype_of(type_).str))
            case Symbol():
                return self._place(("symbol", operand.name, operand.offset, dtype_of(type_).str))
        raise AssertionError(operand)

    def _place(self, spec: tuple[Any, ...]) -> str:
        return f"K[{self.constants.place(spec)}]"

    def _held(self, register: Register) -> str:
        """The name of what a register holds."""
        name = self.names.get(register.slot)
        if name is None:
            name = self._name()
            # Before an open run: nothing in it changes the unit's registers.
            place = len(self.lines) - (1 if self.lines and isinstance(self.lines[-1], Run) else 0)
            self.lines.insert(place, f"{name} = R[{register.slot}]")
            self.names[register.slot] = name
        return name

    def _read_register(self, register: Register, type_: str) -> str:
        name = self._held(register)
        have, want = dtype_of(register.type), dtype_of(type_)
        if have == want:
            return name
        return f"{name}.astype('{want.str}')"


def _known(trees: Trees, operations: Container[str]) -> bool:
    """Whether the core has all operations of the trees."""
    return all(isinstance(each, int) or (each[0] in operations and _known(each[1:], operations)) for each in trees)
