"""Every scalar form of the tables has an operation that takes its operands and any bits, and answers in its dtypes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from ptxbench.emulator.codegen.scalar.form import ScalarOp, dtype, flat, width
from ptxbench.emulator.codegen.scalar.operations import scalar_operation
from ptxbench.emulator.ptx.ir import Address, Immediate, Instruction, Operand, Pair, Register, Vector
from ptxbench.emulator.ptx.isa import Form, Kind, coverage, mnemonics, operands
from ptxbench.emulator.ptx.shapes import OperandSpec

ELSEWHERE = ("isspacep", "cvta", "bar.warp.sync", "cvt.rs")
"""They need the machine's address windows or waiting; of `cvt.rs` it is unknown which random bit goes where."""
LANES = 64


def _register(type_: str) -> Register:
    bits = width(type_ or "b32")
    return Register("%x", "pred" if bits == 1 else f"b{max(bits, 8)}", 0)


def _operand(spec: OperandSpec) -> Operand:
    if spec.kind == "register":
        register = _register(spec.type)
        return Pair(register, _register("pred")) if spec.pair else register
    if spec.kind == "vector":
        return Vector(tuple(_register(spec.type) for _ in range(spec.count)))
    return Address(_register("b64")) if spec.kind == "address" else Immediate(spec.value, "int")


def _instructions(form: Form) -> Iterator[tuple[Instruction, tuple[OperandSpec, ...]]]:
    for mnemonic in mnemonics(form):
        specs = operands(form, mnemonic)
        words = mnemonic.split(".")
        yield Instruction(words[0], tuple(words[1:]), tuple(map(_operand, specs)), None, 0, 1), specs


FORMS = [each for each in coverage() if each.kind in (Kind.SCALAR, Kind.WARP) and not each.name.startswith(ELSEWHERE)]


def _columns(op: ScalarOp, shape: tuple[int, ...], rng: np.random.Generator) -> list[object]:
    columns: list[object] = [np.ones(LANES, np.bool_)] if op.warp else []
    for type_ in (*op.sources, *(("pred",) if op.carry_in else ())):
        wide = (2,) if width(type_) == 128 else ()
        made = rng.integers(0, 2**64, size=(*shape, *wide), dtype=np.uint64)
        columns.append((made & np.uint64(1)).astype(np.bool_) if type_ == "pred" else made.astype(dtype(type_)))
    return columns


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_form_takes_its_operands_and_any_bits(form: Form) -> None:
    rng = np.random.default_rng(7)
    for instruction, specs in _instructions(form):
        op = scalar_operation(instruction)
        assert op is not None, instruction.name
        pairs = list(zip(instruction.operands, specs, strict=True))
        assert len(op.sources) == flat(tuple(operand for operand, spec in pairs if not spec.written))
        assert len(op.results) == flat(tuple(operand for operand, spec in pairs if spec.written))
        for shape in ((LANES,), ()):
            with np.errstate(all="ignore"):
                made = op.run(*_columns(op, shape, rng))
            several = made if isinstance(made, tuple) else (made,)
            types = (*op.results, *(("pred",) if op.carry_out else ()))
            assert [np.asarray(each).dtype for each in several] == [np.dtype(dtype(type_)) for type_ in types]
            if shape:
                assert all(np.asarray(each).shape[:1] == shape for each in several)


def test_an_instruction_of_another_kind_has_no_scalar_operation() -> None:
    register = _register("b32")
    assert (
        scalar_operation(Instruction("ld", ("global", "b32"), (register, Address(_register("b64"))), None, 0, 1))
        is None
    )
