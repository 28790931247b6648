"""multimem on a team of one device: each operation is its plain counterpart on the one copy."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.matrices import draw
from tests.emulator.forms.test_atomics import LANES, Case
from tests.emulator.forms.test_memory import operand, registers

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.isa import Form

FORMS = [form for form in isa.coverage() if form.name.startswith("multimem.")]


def _bytes(type_: str) -> int:
    base, _, times = type_.partition("x")
    digits = "".join(letter for letter in base if letter.isdecimal())
    size = 1 if base in ("e4m3", "e5m2") else int(digits) // 8
    return size * int(times or 1)


def _cells(type_: str, count: int, seed: int) -> np.ndarray:
    """Elements of a type as bytes [count, size], finite numbers where it has such."""
    rng = np.random.default_rng(seed)
    base, _, times = type_.partition("x")
    if base in ("f16", "bf16", "f32", "f64", "e4m3", "e5m2"):
        size = _bytes(base)
        bits = draw(base, (count * int(times or 1),), rng).astype(np.uint64)
        return bits.view(np.uint8).reshape(-1, 8)[:, :size].reshape(count, -1).copy()
    return rng.integers(0, 256, (count, _bytes(type_)), np.uint8)


@pytest.mark.parametrize("form", [each for each in FORMS if "red." not in each.name], ids=lambda form: form.name)
def test_one_copy_is_loaded_and_stored(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        specs = isa.operands(form, mnemonic)
        spec = next(each for each in specs if each.kind != "address")
        size = _bytes(spec.type)
        data = _cells(spec.type, LANES * spec.count, len(mnemonic)).reshape(LANES, spec.count * size)
        rows = np.zeros((LANES, 16), np.uint8)
        kernel = Kernel(threads=LANES, target=form.targets[0])
        stores = ".st" in mnemonic
        rows[:, : data.shape[1]] = 0 if stores else data
        place = kernel.place(rows.tobytes()) + 16 * np.arange(LANES, dtype=np.uint64)
        names = registers(spec, 1)
        elements = [data[:, size * i : size * (i + 1)] for i in range(spec.count)]
        columns = [np.pad(each, ((0, 0), (0, 8 - size))).copy().view(np.uint64)[:, 0] for each in elements]
        if stores:
            body = f"{mnemonic} [d60], {operand(spec, names)};"
            ran = kernel.run(body, {"d60": place, **dict(zip(names, columns, strict=True))}, [])
            assert ran.result.ok, (mnemonic, ran.result)
            rows[:, : data.shape[1]] = data
            assert kernel.memory.read(int(place[0]), rows.size) == rows.tobytes(), mnemonic
        else:
            ran = kernel.run(f"{mnemonic} {operand(spec, names)}, [d60];", {"d60": place}, names)
            assert ran.result.ok, (mnemonic, ran.result)
            assert all((got == want).all() for got, want in zip(ran.columns, columns, strict=True)), mnemonic


@pytest.mark.parametrize("form", [each for each in FORMS if "multimem.red." in each.name], ids=lambda form: form.name)
def test_one_copy_is_reduced(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        specs = isa.operands(form, mnemonic)
        case = Case(mnemonic.removeprefix("multimem."), specs)
        kernel = Kernel(threads=LANES)
        place = kernel.place(case.memory(case.old)) + 16 * np.arange(LANES, dtype=np.uint64)
        names = registers(specs[1], 1)
        sources = {name: case.element(case.given[0], i) for i, name in enumerate(names)}
        ran = kernel.run(f"{mnemonic} [d60], {operand(specs[1], names)};", {"d60": place, **sources}, [])
        assert ran.result.ok, (mnemonic, ran.result)
        assert kernel.memory.read(int(place[0]), 16 * LANES) == case.memory(case.after()), mnemonic
