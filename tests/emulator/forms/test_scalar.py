"""Every scalar form runs in a kernel, with all its modifiers, on edges and random bits, against models of the ISA."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import pytest
from tests.emulator.forms.compares import COMPARES, convert, convert_packed
from tests.emulator.forms.floats import FLOATS, Expected, Model, mixed
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.integers import INTEGERS
from tests.emulator.forms.judge import mismatch
from tests.emulator.forms.numbers import LAYOUT
from tests.emulator.forms.values import bits_of, columns

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.examples import width_of
from ptxbench.emulator.ptx.isa import Form, Kind
from ptxbench.emulator.ptx.shapes import OperandSpec

LANES = 64
MOST = 30
"""Mnemonics in one kernel."""
OTHERS = ("cvta", "isspacep", "mapa", "getctarank")
"""They need the machine."""
FORMS = [
    form
    for form in isa.coverage()
    if form.kind is Kind.SCALAR
    and not form.name.startswith(OTHERS)
    and form.section != "9.7.2 Extended-precision arithmetic"
]


def model_of(words: Sequence[str], specs: Sequence[OperandSpec]) -> Model:
    """What an instruction does, by its opcode and types."""
    name, last = words[0], words[-1].removesuffix("x2")
    if name == "mov":
        return moved(specs)
    if name in COMPARES:
        return COMPARES[name]
    if name == "cvt" and words[1] != "pack":
        packed = any("x2" in word or "x4" in word for word in words[-2:])
        return convert_packed if packed else convert
    if name == "cvt":
        return INTEGERS["cvt"]
    if "f32" in words[:-1] and last in ("f16", "bf16"):
        return mixed
    return FLOATS[name] if last in LAYOUT else INTEGERS[name]


def moved(specs: Sequence[OperandSpec]) -> Model:
    """mov: a register, or one taken apart or put together, the lowest part first."""
    target, source = specs

    def model(_: Sequence[str], given: Sequence[int]) -> Sequence[Expected]:
        size = bits_of(source.type)
        whole = sum(bits << size * i for i, bits in enumerate(given))
        size = bits_of(target.type)
        return [whole >> size * i & ((1 << size) - 1) for i in range(target.count)]

    return model


def result_format(words: Sequence[str]) -> str:
    """The format of a floating-point result."""
    if words[0] == "cvt" and words[1] != "pack":
        return words[-2].partition("x")[0]
    if "f32" in words[:-1] and words[-1] in ("f16", "bf16"):
        return "f32"
    return words[-1].partition("x")[0]


def _batches(form: Form) -> Iterator[tuple[tuple[OperandSpec, ...], list[str]]]:
    """Mnemonics with the same operands, as many as fit a kernel."""
    pairs = [(isa.operands(form, each), each) for each in isa.mnemonics(form)]
    for specs, group in groupby(sorted(pairs, key=lambda pair: str(pair[0])), key=lambda pair: pair[0]):
        names = [name for _, name in group]
        for start in range(0, len(names), MOST):
            yield specs, names[start : start + MOST]


class Statements:
    """One kernel's instructions: the sources are shared, each mnemonic has results of its own."""

    def __init__(self, specs: Sequence[OperandSpec]) -> None:
        self.specs = specs
        self.used = dict.fromkeys("pbhrdq", 0)
        self.sources = [self._name(each.type) for each in self._read()]
        self.lines: list[str] = []
        self.results: list[str] = []

    def _read(self) -> list[OperandSpec]:
        return [part for each in self.specs if each.read and each.kind != "immediate" for part in _parts(each)]

    def types(self) -> list[str]:
        """Of the sources."""
        return [each.type for each in self._read()]

    def _name(self, type_: str) -> str:
        letter = width_of(type_)
        self.used[letter] += 1
        return f"{letter}{self.used[letter]}"

    def add(self, mnemonic: str) -> list[str]:
        """One more instruction; the registers of its results."""
        left = list(self.sources)
        operands, made = [], []
        for spec in self.specs:
            if spec.kind == "immediate":
                operands.append(str(spec.value))
            elif spec.read:
                names = [left.pop(0) for _ in _parts(spec)]
                operands.append(names[0] if spec.kind == "register" else f"{{{', '.join(names)}}}")
            else:
                names = [self._name(spec.type) for _ in _parts(spec)]
                if spec.pair:
                    names.append(self._name("pred"))
                made += names
                operands.append(f"{{{', '.join(names)}}}" if spec.kind == "vector" else "|".join(names))
        self.lines.append(f"{mnemonic} {', '.join(operands)};")
        self.results += made
        return made


def _parts(spec: OperandSpec) -> list[OperandSpec]:
    return [spec] * spec.count if spec.kind == "vector" else [spec]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_scalar_form_gives_what_the_isa_says(form: Form) -> None:
    for specs, names in _batches(form):
        statements = Statements(specs)
        places = [statements.add(name) for name in names]
        given = columns(statements.types(), LANES, form.name)
        kernel = Kernel(threads=LANES, target=form.targets[0])
        ran = kernel.run(
            "\n".join(statements.lines), dict(zip(statements.sources, given, strict=True)), statements.results
        )
        assert ran.result.ok, (names, ran.result)
        answers = {name: column.tolist() for name, column in zip(statements.results, ran.columns, strict=True)}
        literal = [spec.value for spec in specs if spec.kind == "immediate"]
        for name, registers in zip(names, places, strict=True):
            words = name.split(".")
            model = model_of(words, specs)
            for lane in range(LANES):
                sources = [_bits(each[lane]) for each in given]
                if literal:
                    sources.insert(3, literal[0])
                expected = model(words, sources)
                got = [_bits(answers[each][lane]) for each in registers]
                assert not _differs(words, got, expected), (
                    name,
                    [hex(x) for x in sources],
                    [hex(x) for x in got],
                    expected,
                )


def _bits(value: int | list[int]) -> int:
    return value if isinstance(value, int) else value[0] | value[1] << 64


def _differs(words: Sequence[str], got: Sequence[int], expected: Sequence[Expected]) -> bool:
    format_ = result_format(words)
    size = 1 + sum(LAYOUT[format_]) if format_ in LAYOUT else 8
    if words[0] in ("set", "setp"):
        expected = expected[: len(got)]
    return mismatch(got, expected, 8 if format_ in ("e2m3", "e3m2") else size, format_)
