"""Every atom and red runs with all orders, scopes and spaces, each lane at its own 16 bytes, and all at one place."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import reduce
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from tests.emulator.forms.floats import FLOATS
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.integers import value
from tests.emulator.forms.numbers import LAYOUT, encode, finite
from tests.emulator.forms.test_memory import operand, registers, space_of
from tests.emulator.forms.values import bits_of, columns

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.examples import width_of
from ptxbench.emulator.ptx.isa import Form, Kind
from ptxbench.emulator.ptx.shapes import OperandSpec

LANES = 32
PLACE = 16
FORMS = [
    form
    for form in isa.coverage()
    if form.section == "9.7.13 Parallel synchronisation: atomics" and form.kind is Kind.MEMORY
]
OPERATIONS = ("and", "or", "xor", "exch", "cas", "add", "inc", "dec", "min", "max")


def operation_of(words: Sequence[str]) -> str:
    """What an atomic does."""
    return next(word for word in words if word in OPERATIONS)


def new_value(words: Sequence[str], type_: str, old: int, given: Sequence[int]) -> int:
    """What one element of memory becomes."""
    name = operation_of(words)
    base = type_.removesuffix("x2")
    if base in LAYOUT:
        size = 1 + sum(LAYOUT[base])
        mask = (1 << size) - 1
        count = 2 if type_.endswith("x2") else 1
        parts = [_number(name, base, old >> size * i & mask, given[0] >> size * i & mask) for i in range(count)]
        return sum(part << size * i for i, part in enumerate(parts))
    a, b = value(old, type_), value(given[0], type_)
    if name == "cas":
        return given[1] if old == given[0] else old
    made = {
        **{"and": a & b, "or": a | b, "xor": a ^ b, "exch": b, "add": a + b, "min": min(a, b), "max": max(a, b)},
        "inc": 0 if a >= b else a + 1,
        "dec": b if a == 0 or a > b else a - 1,
    }[name]
    return made & ((1 << bits_of(type_)) - 1)


def _number(name: str, format_: str, old: int, new: int) -> int:
    made = FLOATS[name]([name, format_], [old, new])[0]
    assert isinstance(made, int)
    return made


def draw(type_: str, count: int, seed: str) -> list[int]:
    """Bits of a type; ordinary numbers of floating-point ones."""
    base = type_.removesuffix("x2")
    if base not in LAYOUT:
        made = columns([type_], count, seed)[0]
        return [each if i % 3 else each & 7 for i, each in enumerate(made)]
    rng = random.Random(seed)
    size = 1 + sum(LAYOUT[base])
    halves = 2 if type_.endswith("x2") else 1
    one = [encode(finite(rng.randrange(-4000, 4000)), base) for _ in range(count * halves)]
    return [sum(one[halves * i + j] << size * j for j in range(halves)) for i in range(count)]


class Case:
    """One mnemonic's operands: memory before, sources, and what comes of it."""

    def __init__(self, name: str, specs: Sequence[OperandSpec]) -> None:
        self.words = name.split(".")
        self.type = self.words[-1]
        self.sources = [each for each in specs if each.read and each.kind != "address" and each.type == self.type]
        self.count = self.sources[0].count
        cells = LANES * self.count
        self.old = draw(self.type, cells, f"old {name}")
        self.given = [draw(self.type, cells, f"{name} {i}") for i in range(len(self.sources))]
        if operation_of(self.words) == "cas":
            self.given[0] = [self.old[i] if i % 2 else new for i, new in enumerate(self.given[0])]

    def element(self, columns_: Sequence[int], place: int) -> list[int]:
        """One register of a vector: its value in each lane."""
        return list(columns_[place :: self.count])

    def memory(self, cells: Sequence[int]) -> bytes:
        """A place for each lane."""
        size = bits_of(self.type) // 8
        rows = [cells[self.count * lane : self.count * (lane + 1)] for lane in range(LANES)]
        return b"".join(b"".join(x.to_bytes(size, "little") for x in row).ljust(PLACE, b"\x5a") for row in rows)

    def after(self) -> list[int]:
        """All cells afterwards."""
        given = zip(*self.given, strict=True)
        return [new_value(self.words, self.type, old, each) for old, each in zip(self.old, given, strict=True)]


_START = "mov.u32 r60, there; mad.lo.u32 r60, lane, 16, r60; cvt.u64.u32 d61, r60;"
_FILL = {"global": "st.global.v2.b64 [d62], {d50, d51};", "shared": "st.shared.v2.b64 [d61], {d50, d51};"}
_BACK = {"global": "ld.global.v2.b64 {{{}, {}}}, [d62];", "shared": "ld.shared.v2.b64 {{{}, {}}}, [d61];"}
_WHERE = {"global": "[d62]", "shared": "[d61]"}


class Statements:
    """The instructions of one kernel: each mnemonic finds the same memory, and has registers of its own."""

    def __init__(self, case: Case, space: str) -> None:
        self.case = case
        self.space = space
        self.lines = [_START]
        self.asked: list[str] = []
        self.sources: dict[str, Any] = {"d63": 0}
        self.next = 100

    def add(self, name: str, specs: Sequence[OperandSpec]) -> None:
        """One more instruction."""
        back = self._take("d", 2)
        old: list[str] = []
        operands, left = [], list(self.case.given)
        for spec in specs:
            if spec.kind == "address":
                operands.append(_WHERE[self.space])
            elif spec.written:
                old = self._take(width_of(spec.type), spec.count)
                operands.append(operand(spec, old))
            elif spec.type != self.case.type:  # the cache policy
                operands.append("d63")
            else:
                operands.append(operand(spec, self._source(spec, left.pop(0), len(left))))
        self.lines += [_FILL[self.space], f"{name} {', '.join(operands)};", _BACK[self.space].format(*back)]
        self.asked += [*back, *old]

    def _take(self, letter: str, count: int) -> list[str]:
        self.next += count
        return [f"{letter}{self.next - count + i}" for i in range(count)]

    def _source(self, spec: OperandSpec, cells: Sequence[int], which: int) -> list[str]:
        made = registers(spec, 1 + 8 * which)
        for place, register in enumerate(made):
            self.sources[register] = self.case.element(cells, place)
        return made


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_an_atomic_changes_its_cells_and_returns_the_old_ones(form: Form) -> None:
    for (space, *_), group in groupby(sorted(isa.mnemonics(form), key=_alike), key=_alike):
        names = list(group)
        case = Case(names[0], isa.operands(form, names[0]))
        statements = Statements(case, space)
        for name in names:
            statements.add(name, isa.operands(form, name))
        kernel = Kernel(threads=LANES, before=f".shared .align 16 .b8 there[{LANES * PLACE}];")
        before = case.memory(case.old)
        words = np.frombuffer(before, np.uint64).reshape(LANES, 2)
        place = kernel.place(before) + PLACE * np.arange(LANES, dtype=np.uint64)
        sources = {"d62": place, "d50": words[:, 0], "d51": words[:, 1], **statements.sources}
        ran = kernel.run("\n".join(statements.lines), sources, statements.asked)
        assert ran.result.ok, (names, ran.result)
        each, after = len(statements.asked) // len(names), case.memory(case.after())
        for number, name in enumerate(names):
            got = ran.columns[each * number : each * (number + 1)]
            assert np.stack(got[:2], axis=1).tobytes() == after, name
            for i, column in enumerate(got[2:]):
                assert list(map(_bits, column.tolist())) == case.element(case.old, i), name


def _alike(name: str) -> tuple[str, str, str]:
    """Mnemonics with the same space, operation and type have the same case."""
    words = name.split(".")
    return space_of(name), operation_of(words), words[-1]


def _bits(register: int | list[int]) -> int:
    return register if isinstance(register, int) else register[0] | register[1] << 64


CONTENDED = [
    "add.u32",
    "add.s32",
    "add.u64",
    "and.b32",
    "or.b32",
    "xor.b64",
    "min.s32",
    "max.u64",
    "inc.u32",
    "dec.u32",
]


@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("name", CONTENDED)
def test_atomics_of_all_lanes_at_one_place_happen_one_after_another(name: str, space: str) -> None:
    operation, type_ = name.split(".")
    given = draw(type_, LANES, name)
    letter = "d" if type_.endswith("64") else "r"
    kernel = Kernel(threads=LANES, before=".shared .align 16 .b8 there[16];")
    place = kernel.place((9).to_bytes(16, "little"))
    chosen = "d61" if space == "shared" else "d62"
    start = f"mov.u64 d61, there; st.shared.b64 [d61], 9; bar.sync 0; mov.b64 d62, {chosen};"
    body = f"{start} red.{space}.{name} [d62], {letter}1; bar.sync 0; ld.{space}.{type_} {letter}2, [d62];"
    ran = kernel.run(body, {"d62": place, f"{letter}1": given}, [f"{letter}2"])
    assert ran.result.error == "", ran.result
    expected = reduce(lambda old, each: new_value([operation], type_, old, [each]), given, 9)
    if operation not in ("inc", "dec"):  # of those the order matters
        assert int(ran.columns[0][0]) == expected
    assert len(set(ran.columns[0].tolist())) == 1
