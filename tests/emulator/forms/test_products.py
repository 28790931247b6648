"""Every mma and wgmma form runs in a kernel on registers laid out by the ISA's figures, against NumPy in float64."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.forms import matrices
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.matrices import WIDTH, Bits, Holder, draw, numbers
from tests.emulator.tensor.test_sparse import Drawn, dense

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.isa import Form
from ptxbench.emulator.tensor.sparse import Sparsity

MMA = [form for form in isa.coverage() if form.section == "9.7.14 Warp-level matrices: mma"]
WGMMA = [form for form in isa.coverage() if form.name.startswith("wgmma.mma_async")]
ORDER = [form for form in isa.coverage() if form.name.startswith(("wgmma.fence", "wgmma.commit", "wgmma.wait"))]
LANES = 64
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)\Z")
TOLERANCE = {"f64": 2.0**-48, "f32": 2.0**-20, "f16": 2.0**-9, "s32": 0.0}
"""Relative to the sum of the magnitudes; tensor cores of the emulator are in their fast mode."""


@dataclass(frozen=True)
class Shape:
    """What a mnemonic says."""

    m: int
    n: int
    k: int
    types: tuple[str, str]
    result: str
    addend: str
    sparsity: Sparsity | None
    combine: str

    @classmethod
    def of(cls, mnemonic: str) -> Shape:
        """Read it."""
        words = mnemonic.split(".")
        found = next(match for word in words if (match := _SHAPE.match(word)))
        types = [word for word in words if word in WIDTH]
        sparse = next((word for word in words if word.startswith("sp") and not word.startswith("sparse")), "")
        ordered = sparse == "sp::ordered_metadata" or types[1] in ("e4m3", "e5m2")
        k = int(found[3])
        sparsity = Sparsity(WIDTH[types[1]], k, 0, ordered) if sparse else None
        combine = next((word for word in words if word in ("xor", "and")), "")
        return cls(int(found[1]), int(found[2]), k, (types[1], types[2]), types[0], types[-1], sparsity, combine)

    @property
    def stored(self) -> int:
        """Elements of A along K that are held."""
        return self.k // 2 if self.sparsity else self.k


def product(shape: Shape, a: Bits, b: Bits) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A times B transposed, and the sums of magnitudes."""
    if shape.combine:
        left, right = a[:, :, None, :].astype(bool), b[:, None, :, :].astype(bool)
        counted = (left ^ right if shape.combine == "xor" else left & right).sum(axis=-1)
        return counted.astype(np.float64), np.zeros(counted.shape)
    left, right = numbers(a, shape.types[0]), numbers(b, shape.types[1])
    return left @ right.swapaxes(1, 2), np.abs(left) @ np.abs(right).swapaxes(1, 2)


def near(shape: Shape, made: Bits, expected: NDArray[np.float64], scale: NDArray[np.float64]) -> bool:
    """Whether results are the expected ones, integers wrapped or clamped to 32 bits."""
    return bool((np.abs(numbers(made, shape.result) - expected) <= TOLERANCE[shape.result] * scale).all())


def _expanded(shape: Shape, a: Bits, positions: NDArray[np.int64]) -> Bits:
    return dense(a.astype(np.float64), positions.reshape(a.shape), shape.k).astype(np.uint64)


@pytest.mark.parametrize("form", MMA, ids=lambda form: form.name)
def test_an_mma_is_the_product(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        shape, specs = Shape.of(mnemonic), isa.operands(form, mnemonic)
        words = mnemonic.split(".")
        quads = "m8n8k4" in words and shape.types[0] == "f16"
        count = LANES // 32 * (4 if quads else 1)
        holders = _quad_holders(words, shape) if quads else _holders(shape)
        rng = np.random.default_rng(shape.k)
        a, b = (
            draw(shape.types[0], (count, shape.m, shape.stored), rng),
            draw(shape.types[1], (count, shape.n, shape.k), rng),
        )
        c = draw(shape.addend, (count, shape.m, shape.n), rng)
        sources: dict[str, Any] = {}
        operands, asked, whole = [], [], a
        letter = "d" if shape.result == "f64" else "r"
        places = iter(zip("abc", (a, b, c), (shape.types[0], shape.types[1], shape.addend), strict=True))
        for spec in specs:
            if spec.kind == "immediate":
                operands.append("0")
            elif spec.kind == "register":
                drawn = Drawn(shape.sparsity, 16 * LANES // 32, 3) if shape.sparsity else None
                assert drawn is not None
                whole = _expanded(shape, a, drawn.positions)
                sources["r90"] = drawn.words
                operands.append("r90")
            elif spec.written:
                asked = [f"{letter}{100 + i}" for i in range(spec.count)]
                operands.append(f"{{{', '.join(asked)}}}")
            else:
                which, matrix, type_ = next(places)
                held = matrices.registers(holders[which], matrix, spec.count, LANES, WIDTH[type_])
                names = [f"{letter}{'abc'.index(which) * 10 + i + 1}" for i in range(spec.count)]
                sources |= dict(zip(names, held, strict=True))
                operands.append(f"{{{', '.join(names)}}}")
        ran = Kernel(threads=LANES, target=form.targets[0]).run(f"{mnemonic} {', '.join(operands)};", sources, asked)
        assert ran.result.ok, (mnemonic, ran.result)
        made = matrices.gathered(holders["d"], ran.columns, c.shape, WIDTH[shape.result])
        exact, scale = product(shape, whole, b)
        addend = numbers(c, shape.addend)
        assert near(shape, made, exact + addend, scale + np.abs(addend)), mnemonic


def _holders(shape: Shape) -> dict[str, Holder]:
    return {
        "a": matrices.factor_a(shape.m, WIDTH[shape.types[0]]),
        "b": matrices.factor_b(WIDTH[shape.types[1]]),
        "c": matrices.accumulator(shape.m, WIDTH[shape.addend]),
        "d": matrices.accumulator(shape.m, WIDTH[shape.result]),
    }


def _quad_holders(words: list[str], shape: Shape) -> dict[str, Holder]:
    layouts = [word for word in words if word in ("row", "col")]
    return {
        "a": matrices.quad_factor(layouts[0] == "row"),
        "b": matrices.quad_factor(layouts[1] == "col"),
        "c": matrices.quad_accumulator(WIDTH[shape.addend]),
        "d": matrices.quad_accumulator(WIDTH[shape.result]),
    }


TILES = ".shared .align 1024 .b8 tiles[32768];"
FILL = """mov.u32 r300, tiles; mov.u32 r301, lane; mov.u64 d300, d9;
FILL: mad.lo.u32 r302, r301, 16, r300; mad.wide.u32 d301, r301, 16, d9;
ld.global.v4.b32 {r303, r304, r305, r306}, [d301]; st.shared.v4.b32 [r302], {r303, r304, r305, r306};
add.u32 r301, r301, 128; setp.lt.u32 p9, r301, 2048; @p9 bra FILL;
fence.proxy.async; bar.sync 0;
shr.u32 r300, r300, 4; cvt.u64.u32 d302, r300; add.u64 d1, d302, d7; add.u64 d2, d302, d8;
wgmma.fence.sync.aligned;
"""
LEAVE = "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
_CHOSEN = ("m64n8k", "m64n24k", "m64n96k")
"""Of all widths N, those that are run."""


def _tile(matrix: Bits, width: int, row_step: int) -> NDArray[np.uint8]:
    """K-major without swizzle: 8 rows of 16 bytes together, 128 bytes to the next 16 bytes along K."""
    made = np.zeros(16384, np.uint8)
    per = 128 // width
    for (row, column), bits in np.ndenumerate(matrix):
        at = row // 8 * row_step + row % 8 * 16 + column // per * 128
        if width >= 8:
            size = width // 8
            made[at + column % per * size :][:size] = np.frombuffer(int(bits).to_bytes(size, "little"), np.uint8)
        else:
            made[at + column % per // 8] |= int(bits) << column % 8
    return made


def _descriptor(row_step: int, offset: int) -> int:
    """LBO 128 bytes, SBO `row_step`, start `offset` bytes after the tiles."""
    return row_step // 16 << 32 | 8 << 16 | offset // 16


@pytest.mark.parametrize("form", WGMMA, ids=lambda form: form.name)
def test_a_wgmma_is_the_product(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        if any(chosen in mnemonic for chosen in _CHOSEN):
            _run_wgmma(form, mnemonic)


def _run_wgmma(form: Form, mnemonic: str) -> None:
    shape, specs = Shape.of(mnemonic), isa.operands(form, mnemonic)
    shape = Shape(shape.m, shape.n, shape.k, shape.types, shape.result, shape.result, shape.sparsity, shape.combine)
    rng = np.random.default_rng(shape.n)
    width = WIDTH[shape.types[0]]
    a = draw(shape.types[0], (1, 64, shape.stored), rng)
    b, c = draw(shape.types[1], (1, shape.n, shape.k), rng), draw(shape.result, (1, 64, shape.n), rng)
    steps = [shape.stored * width // 8 // 16 * 128, shape.k * width // 8 // 16 * 128]
    kernel = Kernel(threads=128, before=TILES)
    tiles = kernel.place(np.concatenate([_tile(a[0], width, steps[0]), _tile(b[0], width, steps[1])]).tobytes())
    drawn = Drawn(shape.sparsity, 64, 5) if shape.sparsity else None
    whole = _expanded(shape, a, drawn.positions) if drawn else a
    target, first = specs[0], specs[1]
    accumulators = [f"r{100 + i}" for i in range(target.count)]
    old = matrices.registers(matrices.accumulator(64, WIDTH[shape.result]), c, target.count, 128, WIDTH[shape.result])
    held = matrices.registers(matrices.factor_a(64, width), a, 4, 128, width) if first.kind == "vector" else []
    names = [f"r{i + 1}" for i in range(len(held))]
    operands = [f"{{{', '.join(accumulators)}}}", f"{{{', '.join(names)}}}" if names else "d1", "d2"]
    for spec in specs[3:]:
        operands.append("p1" if spec.type == "pred" else "r9" if spec.kind == "register" else str(spec.value))
    sources = {
        **{"d9": tiles, "d7": _descriptor(steps[0], 0), "d8": _descriptor(steps[1], 16384), "p1": 1},
        **{"r9": drawn.words if drawn else 0, **dict(zip(names, held, strict=True))},
        **dict(zip(accumulators, old, strict=True)),
    }
    ran = kernel.run(f"{FILL}{mnemonic} {', '.join(operands)};{LEAVE}", sources, accumulators)
    assert ran.result.ok, (mnemonic, ran.result)
    made = matrices.gathered(matrices.accumulator(64, WIDTH[shape.result]), ran.columns, c.shape, WIDTH[shape.result])
    exact, scale = product(shape, whole, b)
    addend = numbers(c, shape.result)
    assert near(shape, made, exact + addend, scale + np.abs(addend)), mnemonic


@pytest.mark.parametrize("form", ORDER, ids=lambda form: form.name)
def test_a_wgmma_is_fenced_committed_and_waited_for(form: Form) -> None:
    """Each product above takes the three in turn; its result is right only after all of them."""
    bf16 = next(each for each in WGMMA if "m64nNk16.f32.bf16" in each.name)
    _run_wgmma(bf16, isa.mnemonics(bf16)[0])
    assert form.name in FILL + LEAVE
