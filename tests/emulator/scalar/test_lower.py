"""The compiled core gives the bits that NumPy gives, guarded or masked, on random and odd numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from ptxbench.emulator.codegen.bind import bind
from ptxbench.emulator.codegen.block import BlockWriter, Constants, Step
from ptxbench.emulator.codegen.lanes import core
from ptxbench.emulator.codegen.lower import lower
from ptxbench.emulator.codegen.op import bits_of, dtype_of, immediate_bits
from ptxbench.emulator.codegen.program import Program, flatten
from ptxbench.emulator.ptx.ir import Guard, Immediate, Instruction, Operand, Pair, Register, Vector
from ptxbench.emulator.ptx.isa import Form, Kind, coverage, mnemonics, operands
from ptxbench.emulator.ptx.parse import parse
from ptxbench.emulator.ptx.shapes import OperandSpec

LANES = 256
APPROXIMATE = ("ex2.approx", "lg2.approx", "rsqrt.approx")
"""NumPy's and the C library's functions differ in the last place."""
EMPTY = ".version 9.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n  ret;\n}\n"
NARROW = ("e2m", "e3m", "ue8m0", "x4")
"""Words of forms with formats of Blackwell, for which registers have no type yet."""
FORMS = [
    each
    for each in coverage()
    if each.kind in (Kind.SCALAR, Kind.WARP) and not any(word in each.name for word in NARROW)
]

pytestmark = pytest.mark.skipif(core() is None, reason="no compiled core: a C compiler or Python's headers are missing")


@dataclass
class Unit:
    """What a block's text asks of a unit."""

    lanes: int = LANES
    line: int = 0
    tallied: list[int] = field(default_factory=list)

    def full(self, mask: Any) -> Any:
        return np.ones(self.lanes, np.bool_) if mask is None else mask

    def tally(self, number: int, mask: Any, gate: Any) -> None:
        self.tallied.append(int(np.count_nonzero(gate if mask is None else mask & gate)))


class Registers:
    """Numbers the operands of an instruction, each a register of its own."""

    def __init__(self) -> None:
        self.types: list[str] = []

    def new(self, type_: str) -> Register:
        bits = bits_of(type_ or "b32")
        made = Register(f"%x{len(self.types)}", "pred" if bits == 1 else f"b{max(bits, 16)}", len(self.types))
        self.types.append(made.type)
        return made

    def operand(self, spec: OperandSpec) -> Operand:
        if spec.kind == "register":
            register = self.new(spec.type)
            return Pair(register, self.new("pred")) if spec.pair else register
        if spec.kind == "vector":
            return Vector(tuple(self.new(spec.type) for _ in range(spec.count)))
        return Immediate(spec.value, "int")


def _cases(form: Form) -> Iterator[tuple[Instruction, list[str]]]:
    for mnemonic in mnemonics(form):
        specs = operands(form, mnemonic)
        if any(spec.kind == "address" for spec in specs):
            continue
        words, registers = mnemonic.split("."), Registers()
        made = tuple(registers.operand(spec) for spec in specs)
        for guard in (None, Guard(registers.new("pred"), True)):
            yield Instruction(words[0], tuple(words[1:]), made, guard, 0, 1), registers.types


def _values(types: Sequence[str], rng: np.random.Generator) -> list[Any]:
    """Random bits among which are the numbers that have rules of their own."""
    odd = [0, 1, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00001, 0xFFC00000, 0x00400000, 0x3F800000, 31, 32, 33, 64]
    made = []
    for type_ in types:
        if type_ == "pred":
            made.append(rng.integers(0, 2, LANES).astype(np.bool_))
            continue
        values = rng.integers(0, 2**64, LANES, np.uint64) >> rng.integers(0, 64, LANES, np.uint64)
        values[: LANES // 2] = rng.choice(np.array(odd, np.uint64), LANES // 2)
        values[-32:] = rng.normal(size=32).astype(np.float32).view(np.uint32)
        made.append(values.astype(dtype_of(type_).base))
    return made


def _done(step: Step, types: list[str], values: list[Any], mask: Any, *, compiled: bool) -> tuple[list[Any], list[int]]:
    constants, unit, registers = Constants(), Unit(), list(values)
    writer = BlockWriter(types, constants, set(range(len(types))))
    if not compiled:
        writer.core = None
    code = writer.write([step], None)
    places = [np.full(LANES, spec[1], np.dtype(spec[-1])) for spec in constants.specs]
    (code.full if mask is None else code.masked)()(registers, places, unit, mask)
    return registers, unit.tallied


def _program() -> Program:
    module = parse(EMPTY)
    program = flatten(module, module.functions["k"])
    program.types.append("pred")
    return program


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_the_core_gives_numpys_bits(form: Form) -> None:
    rng, program, found = np.random.default_rng(3), _program(), 0
    for instruction, types in _cases(form):
        op = bind(instruction, program)
        if op.machine or any(bits_of(type_) > 64 for type_ in types) or lower(instruction, op) is None:
            continue
        found += 1
        for mask in (None, rng.integers(0, 2, LANES).astype(np.bool_)):
            values, step = _values(types, rng), Step(instruction, op)
            with np.errstate(all="ignore"):
                want, tallied = _done(step, types, values, mask, compiled=False)
                have, counted = _done(step, types, values, mask, compiled=True)
            assert counted == tallied
            for one, other in zip(want, have, strict=True):
                assert one.dtype == other.dtype, instruction.name
                assert _close(one, other, 1 if instruction.name.startswith(APPROXIMATE) else 0), instruction.name


def _close(one: Any, other: Any, ulps: int) -> bool:
    if one.dtype == np.bool_ or not ulps:
        return bool((one == other).all())
    return bool((np.abs(one.astype(np.int64) - other.astype(np.int64)) <= ulps).all())


def test_the_core_has_the_commonest_instructions() -> None:
    program = _program()
    names = {
        instruction.opcode
        for form in FORMS
        for instruction, types in _cases(form)
        if all(bits_of(type_) <= 64 for type_ in types) and lower(instruction, bind(instruction, program)) is not None
    }
    assert names >= {"add", "mul", "mad", "fma", "ex2", "max", "cvt", "mov", "setp", "selp", "shl", "shr", "shfl"}


def test_a_literal_is_read_as_the_operands_type() -> None:
    registers = Registers()
    target = registers.new("b32")
    instruction = Instruction("add", ("f32",), (target, registers.new("b32"), Immediate(1, "int")), None, 0, 1)
    values = [np.zeros(LANES, np.uint32), np.full(LANES, 0x40000000, np.uint32)]
    have, _ = _done(Step(instruction, bind(instruction, _program())), registers.types, values, None, compiled=True)
    assert have[0].tolist() == [immediate_bits(Immediate(3, "int"), "f32")] * LANES
