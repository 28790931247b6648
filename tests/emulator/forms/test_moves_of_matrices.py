"""ldmatrix, stmatrix, movmatrix and whole wmma chains (load, multiply, store) run on matrices in memory."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.matrices import WIDTH, Bits, draw, numbers
from tests.emulator.forms.test_products import TOLERANCE

from ptxbench.emulator.coverage import covered
from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.isa import Form

SUPPORTED = {each.form.name for target in isa.TARGETS for each in covered(target) if each.supported}
MOVES = [
    form for form in isa.coverage() if form.section == "9.7.14 Warp-level matrices: movement" and form.name in SUPPORTED
]
WMMA = [form for form in isa.coverage() if form.section == "9.7.14 Warp-level matrices: wmma"]
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)\Z")


def _registers_of(matrices: NDArray[np.uint16], transposed: bool) -> list[NDArray[np.uint64]]:
    """Lane l has row l / 4, columns 2 (l % 4) and the next, of each 8x8 matrix."""
    made = []
    for matrix in matrices:
        shown = matrix.T if transposed else matrix
        pairs = shown.reshape(32, 2).astype(np.uint64)
        made.append(pairs[:, 0] | pairs[:, 1] << np.uint64(16))
    return made


def _unpacked(rows: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Sixteen elements of a few bits, the first in the lowest ones of 16 bytes, each to a byte of its own."""
    numbers = [int.from_bytes(row.tobytes(), "little") for row in rows]
    made = [[number >> bits * place & ((1 << bits) - 1) for place in range(16)] for number in numbers]
    return np.array(made, np.uint8)


def _rows_of(rows: NDArray[np.uint8]) -> list[NDArray[np.uint64]]:
    """Lane l has four neighbours, from 4 (l % 4), of row l / 4, of each matrix of 8 rows."""
    return [four.astype(np.uint64) for four in rows.reshape(-1, 128).view(np.uint32)]


def _bytes_of(rows: NDArray[np.uint8], loads: bool) -> list[NDArray[np.uint64]]:
    """Registers of 8-bit elements: ldmatrix of 16 rows gives four of a column, stmatrix takes two of two columns."""
    made = []
    height = 16 if loads else 8
    for first in range(0, len(rows), height):
        for half in (0, 8) if loads else (0,):
            words = np.zeros(32, np.uint64)
            for lane in range(32):
                g, q = divmod(lane, 4)
                if loads:
                    four = rows[first + 4 * q : first + 4 * q + 4, g + half]
                else:
                    two = rows[first + 2 * q : first + 2 * q + 2]
                    four = np.concatenate([two[:, g], two[:, g + 8]])
                words[lane] = int.from_bytes(four.tobytes(), "little")
            made.append(words)
    return made


@pytest.mark.parametrize("form", MOVES, ids=lambda form: form.name)
def test_matrices_move_between_memory_and_registers(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        rng = np.random.default_rng(len(mnemonic))
        if words[0] == "movmatrix":
            matrix = rng.integers(0, 1 << 16, (1, 8, 8), np.uint16)
            ran = Kernel().run(f"{mnemonic} r2, r1;", {"r1": _registers_of(matrix, False)[0]}, ["r2"])
            assert ran.columns[0].tolist() == _registers_of(matrix, True)[0].tolist()
            continue
        count = next(int(word[1:]) for word in words if word in ("x1", "x2", "x4"))
        data = rng.integers(0, 1 << 16, (4, 8, 8), np.uint16)
        order = rng.permutation(32)  # rows lie anywhere
        memory = np.zeros((32, 8), np.uint16)
        memory[order] = data.reshape(32, 8)
        kernel = Kernel(target=form.targets[0], before=".shared .align 16 .b8 rows[512];")
        place = kernel.place(memory.tobytes()) + 16 * np.arange(32, dtype=np.uint64)
        copy = "mov.u32 r50, rows; mad.lo.u32 r51, lane, 16, r50; add.u32 r52, r50, r53;"
        sources = {"d1": place, "r53": 16 * order}
        lines = count * (16 if "m16n16" in words else 8)
        rows = data.reshape(32, 8)[:lines]
        expected = _registers_of(data[:count], "trans" in words)
        narrow = bool({"b8", "b8x16"} & set(words))
        if narrow:
            raw = rows.view(np.uint8)
            bits = next((int(word[1]) for word in words if word in ("b6x16_p32", "b4x16_p64")), 0)
            raw = _unpacked(raw, bits) if bits else raw
            expected = _rows_of(raw) if "m8n16" in words else _bytes_of(raw, words[0] == "ldmatrix")
        names = [f"r{i + 1}" for i in range(len(expected))]
        if words[0] == "ldmatrix":
            fill = "ld.global.v2.b64 {d2, d3}, [d1]; st.shared.v2.b64 [r51], {d2, d3}; bar.warp.sync -1;"
            ran = kernel.run(f"{copy}{fill}{mnemonic} {{{', '.join(names)}}}, [r52];", sources, names)
            assert ran.result.ok, ran.result
            assert all((got == want).all() for got, want in zip(ran.columns, expected, strict=True)), mnemonic
        else:
            back = "bar.warp.sync -1; ld.shared.v2.b64 {d2, d3}, [r51];"
            given = {**sources, **dict(zip(names, expected, strict=True))}
            clear = "st.shared.v2.b64 [r51], {0, 0}; bar.warp.sync -1;"
            ran = kernel.run(f"{copy}{clear}{mnemonic} [r52], {{{', '.join(names)}}};{back}", given, ["d2", "d3"])
            assert ran.result.ok, ran.result
            stored = np.zeros((32, 8), np.uint16)
            stored[order[:lines]] = rows
            assert np.stack(ran.columns, axis=1).tobytes() == stored.tobytes(), mnemonic


@dataclass(frozen=True)
class Chain:
    """One wmma product with its loads and its store, as mnemonics without their layouts."""

    shape: tuple[int, int, int]
    name: str
    factor: str
    addend: str
    result: str
    multiply: str

    @classmethod
    def of(cls, form: Form) -> Chain:
        """The chain of a `wmma.mma` form."""
        words = isa.mnemonics(form)[0].split(".")
        name = next(word for word in words if _SHAPE.match(word))
        match = _SHAPE.match(name)
        assert match
        types = [word for word in words if word in WIDTH]
        factor = "f16" if len(types) == 2 else types[1]
        shape = (int(match[1]), int(match[2]), int(match[3]))
        return cls(shape, name, factor, types[-1], types[0], form.name)


CHAINS = [Chain.of(form) for form in WMMA if form.name.startswith("wmma.mma")]


def _chain_with(form: Form) -> Chain:
    """A chain that a form is part of."""
    if form.name.startswith("wmma.mma"):
        return Chain.of(form)
    words = isa.mnemonics(form)[0].split(".")
    shape, type_ = next(word for word in words if _SHAPE.match(word)), words[-1]
    role = "result" if words[1] == "store" else "addend" if words[2] == "c" else "factor"
    return next(chain for chain in CHAINS if chain.name == shape and getattr(chain, role) == type_)


def _stored(matrix: Bits, type_: str, layout: str) -> bytes:
    """A matrix in memory, row after row or column after column, without gaps."""
    width = WIDTH[type_]
    flat = (matrix if layout == "row" else matrix.T).ravel()
    if width >= 8:
        return flat.astype(f"u{width // 8}").tobytes()
    bits = [int(x) >> i & 1 for x in flat for i in range(width)]
    return np.packbits(np.array(bits, np.uint8), bitorder="little").tobytes()


def _count(form_name: str, chain: Chain, type_: str, layout: str) -> tuple[str, int]:
    """Mnemonic of a load or store in generic memory, and its registers."""
    for form in WMMA:
        for mnemonic in isa.mnemonics(form) if form.name.startswith(form_name) else ():
            words = mnemonic.split(".")
            plain = not {"global", "shared"} & set(words)
            if plain and chain.name in words and words[-1] == type_ and layout in words:
                spec = next(each for each in isa.operands(form, mnemonic) if each.kind == "vector")
                return mnemonic, spec.count
    raise AssertionError((form_name, chain, type_))


@pytest.mark.parametrize("form", WMMA, ids=lambda form: form.name)
def test_a_chain_of_wmma_is_the_product(form: Form) -> None:
    chain = _chain_with(form)
    product = next(each for each in WMMA if each.name == chain.multiply)
    names = isa.mnemonics(product) if form is product else isa.mnemonics(product)[:1]
    variants = isa.mnemonics(form) if form is not product else [""]
    for name in names:
        for variant in variants:
            _run_chain(chain, name, variant)


def _run_chain(chain: Chain, name: str, variant: str) -> None:
    """Load A, B and C, multiply, store D; `variant` takes the place of the load or store that it is."""
    m, n, k = chain.shape
    rng = np.random.default_rng(m + k)
    layouts = [word for word in name.split(".") if word in ("row", "col")]
    given = draw(chain.factor, (m, k), rng), draw(chain.factor, (k, n), rng), draw(chain.addend, (m, n), rng)
    kernel = Kernel(before=".shared .align 32 .b8 there[4096];")
    writer = Writer("d" if chain.factor == "f64" else "r")
    sources = {}
    types = (chain.factor, chain.factor, chain.addend)
    for number, (role, matrix, type_, stored) in enumerate(zip("abc", given, types, [*layouts, "row"], strict=True)):
        mnemonic, count = _count(f"wmma.load.{role}", chain, type_, stored)
        if variant.startswith(f"wmma.load.{role}"):
            mnemonic = variant
        layout = _layout(mnemonic)
        if role != "c":
            name = _relaid(name, number, layout)
        data = _stored(matrix, type_, layout)
        sources[f"d{number + 1}"] = kernel.place(data.ljust(2048, b"\0"))
        writer.load(mnemonic, number, count, len(data))
    store, count = _count("wmma.store.d", chain, chain.result, "row")
    store = variant if variant.startswith("wmma.store") else store
    width = WIDTH[chain.result]
    writer.multiply_and_store(name, store, count, m * n * width // 8)
    out = kernel.place(bytes(2048))
    ran = kernel.run("\n".join(writer.lines), {**sources, "d4": out}, [])
    assert ran.result.ok, (name, variant, ran.result)
    made = np.frombuffer(kernel.memory.read(out, m * n * width // 8), f"u{width // 8}").astype(np.uint64)
    _check(chain, name, given, made.reshape(m, n) if _layout(store) == "row" else made.reshape(n, m).T)


def _layout(mnemonic: str) -> str:
    return next(word for word in mnemonic.split(".") if word in ("row", "col"))


class Writer:
    """The statements of a chain: d1 to d3 are the places of A, B and C, d4 that of D."""

    def __init__(self, letter: str) -> None:
        self.letter = letter
        self.lines = ["mov.u32 r200, there; cvt.u64.u32 d204, r200; mad.lo.u32 r201, lane, 16, r200;"]
        self.lists: list[str] = []

    def _registers(self, first: int, count: int) -> str:
        return f"{{{', '.join(f'{self.letter}{first + i}' for i in range(count))}}}"

    def load(self, mnemonic: str, number: int, count: int, size: int) -> None:
        """One of A, B and C, from global memory or through shared memory."""
        self.lists.append(self._registers(20 * number + 10, count))
        shared = ".shared" in mnemonic
        if shared:
            self.lines.append(f"mad.wide.u32 d201, lane, 16, d{number + 1};")
            for at in range(0, size, 512):
                self.lines.append(f"ld.global.v2.b64 {{d202, d203}}, [d201+{at}];")
                self.lines.append(f"st.shared.v2.b64 [r201+{at}], {{d202, d203}};")
            self.lines.append("bar.warp.sync -1;")
        self.lines.append(f"{mnemonic} {self.lists[-1]}, [{'d204' if shared else f'd{number + 1}'}];")

    def multiply_and_store(self, product: str, store: str, count: int, size: int) -> None:
        """D, to global memory or through shared memory."""
        made = self._registers(80, count)
        shared = ".shared" in store
        self.lines.append(f"{product} {', '.join([made, *self.lists])};")
        if shared:
            self.lines += [f"st.shared.v2.b64 [r201+{at}], {{0, 0}};" for at in range(0, size, 512)]
            self.lines.append("bar.warp.sync -1;")
        self.lines.append(f"{store} [{'d204' if shared else 'd4'}], {made};")
        if shared:
            self.lines.append("bar.warp.sync -1; mad.wide.u32 d201, lane, 16, d4;")
            for at in range(0, size, 512):
                self.lines.append(f"ld.shared.v2.b64 {{d202, d203}}, [r201+{at}];")
                self.lines.append(f"st.global.v2.b64 [d201+{at}], {{d202, d203}};")


def _relaid(name: str, number: int, layout: str) -> str:
    """The product's mnemonic with another layout of A (0) or B (1)."""
    words = name.split(".")
    place = [i for i, word in enumerate(words) if word in ("row", "col")][number]
    return ".".join([*words[:place], layout, *words[place + 1 :]])


def _check(chain: Chain, name: str, given: tuple[Bits, Bits, Bits], result: Bits) -> None:
    a, b, c = given
    addend = numbers(c, chain.addend)
    if chain.factor == "b1":
        left, right = a[:, :, None].astype(bool), b[None].astype(bool)
        exact = (left ^ right if "xor" in name.split(".") else left & right).sum(axis=1).astype(np.float64)
        scale = np.zeros(exact.shape)
    else:
        left, right = numbers(a, chain.factor), numbers(b, chain.factor)
        exact, scale = left @ right, np.abs(left) @ np.abs(right)
    error = np.abs(numbers(np.ascontiguousarray(result), chain.result) - (exact + addend))
    assert (error <= TOLERANCE[chain.result] * (scale + np.abs(addend))).all(), name
