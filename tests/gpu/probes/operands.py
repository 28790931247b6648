"""Operands of a probed instruction: values of every type, and the statements that load and store them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tests.emulator.ptx.samples import width_of
from tests.gpu.probes.probe import bits

from ptxbench.emulator.ptx.shapes import OperandSpec

Words = NDArray[np.uint64]
MOVES = {"b": "b8", "h": "b16", "r": "b32", "d": "b64"}
WIDTHS = {"p": 1, "b": 8, "h": 16, "r": 32, "d": 64}
HALF = "0 8000 1 8001 3ff 400 8400 3c00 bc00 3555 4000 7bff fbff 7c00 fc00 7e00 fe00 7c01 7fff ffff 7ff7 fff7"
BRAIN = "0 8000 1 8001 7f 80 8080 3f80 bf80 3eab 4000 7f7f ff7f 7f80 ff80 7fc0 ffc0 7f81 7fff ffff 7ff7 fff7"
SINGLE = """0 80000000 1 80000001 7fffff 800000 80800000 3f800000 bf800000 3f000000 40490fdb 7f7fffff ff7fffff 7f800000
    ff800000 7fc00000 ffc00000 7f800001 7fffffff ffffffff 4b000000 4b7fffff 3f7fffff 3effffff c2fa2804 477fe000
    33800000 38800000 7ff77ff7 cf000000 4effffff 4f000000 5f000000"""
DOUBLE = """0 8000000000000000 1 8000000000000001 000fffffffffffff 0010000000000000 3ff0000000000000 bff0000000000000
    7fefffffffffffff 7ff0000000000000 fff0000000000000 7ff8000000000000 fff8000000000001 7ff0000000000001
    47efffffe0000000 36a0000000000000 3690000000000000 40f0000000000000 c1e0000000000000 43e0000000000000"""
EDGES: dict[str, Words] = {
    kind: np.array([int(each, 16) for each in text.split()], np.uint64)
    for kind, text in {"f16": HALF, "bf16": BRAIN, "f32": SINGLE, "f64": DOUBLE, "tf32": SINGLE}.items()
}
EDGES["e4m3"] = np.array([0, 0x80, 1, 7, 8, 0x38, 0xB8, 0x7E, 0xFE, 0x7F, 0xFF], np.uint64)
EDGES["e5m2"] = np.array([0, 0x80, 1, 3, 4, 0x3C, 0xBC, 0x7B, 0xFB, 0x7C, 0xFC, 0x7E, 0xFF], np.uint64)
FLOATS = {
    "f16": (16, 15, 10),
    "bf16": (16, 127, 7),
    "tf32": (32, 127, 23),
    "f32": (32, 127, 23),
    "f64": (64, 1023, 52),
    "e4m3": (8, 7, 3),
    "e5m2": (8, 15, 2),
}
"""Bits of the container, bias of the exponent, bits of the mantissa."""


def _integers(width: int) -> Words:
    top = 1 << width
    near = [0, 1, 2, 3, 5, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 255, 256]
    values = [*near, top - 1, top - 2, top // 2, top // 2 - 1, top // 2 + 1, top // 3, top - 33]
    return np.array([value % top for value in values], np.uint64)


def column(name: str, type_: str, rows: int) -> Words:
    """Operands of a type: uint64 [rows], two in three from the edges of the type, the rest any bits."""
    if type_.endswith("x2") and type_[:-2] in ("f16", "bf16"):
        return column(name, type_[:-2], rows) | column(name + "'", type_[:-2], rows) << np.uint64(16)
    width = WIDTHS[width_of(type_)]
    edges = EDGES.get(type_, _integers(width))
    which, random = bits(name + "?", rows), bits(name, rows)
    mask = np.uint64((1 << width) - 1)
    return np.where(which % np.uint64(3) > 0, edges[(which >> np.uint64(8)) % np.uint64(edges.size)], random) & mask


def numbers(name: str, kind: str, count: int, spread: int, special: int = 0) -> Words:
    """Random elements of a matrix as bits: uint64 [count].

    Args:
        name: Determines them.
        kind: An element type; other types than floats give random bits.
        count: How many.
        spread: Exponents lie within ± this.
        special: One in so many is an edge of the type; 0: none.
    """
    random, which = bits(name, count), bits(name + "?", count)
    if kind not in FLOATS:
        return random
    width, bias, mantissa = FLOATS[kind]
    low = max(bias - spread, 1)
    high = min(bias + spread, 2 * bias - (kind != "e4m3"))
    exponent = np.uint64(low) + (random >> np.uint64(52)) % np.uint64(high - low + 1)
    drawn = random & np.uint64((1 << mantissa) - 1) | exponent << np.uint64(mantissa)
    drawn |= (which >> np.uint64(63)) << np.uint64(width - 1)
    if special:
        edge = EDGES[kind][(which >> np.uint64(8)) % np.uint64(EDGES[kind].size)]
        drawn = np.where((which & np.uint64(0xFF)) % np.uint64(special) == 0, edge, drawn)
    return drawn


def packed(elements: Words, width: int, container: int) -> Words:
    """Elements of `width` bits side by side in words of `container` bits, the first in the low bits."""
    per = container // width
    shifts = (np.arange(per) * width).astype(np.uint64)
    parts = (elements & np.uint64((1 << width) - 1)).reshape(-1, per) << shifts
    made: Words = np.bitwise_or.reduce(parts, axis=1)
    return made


class Writer:
    """Text of one instruction's operands, with what loads the sources from `d2` and stores the results at `d3`.

    Operand number i of a thread lies `8 * rows * i` bytes on.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.sources: list[str] = []
        self.results: list[str] = []
        self.loads = ""
        self.stores = ""

    def source(self, type_: str) -> str:
        """A register that is loaded before."""
        place, letter = len(self.sources), width_of(type_)
        self.sources.append(type_)
        where = f"[d2+{8 * self.rows * place}]"
        if letter == "p":
            self.loads += f"ld.global.b32 r{300 + place}, {where}; setp.ne.u32 p{place}, r{300 + place}, 0;\n"
            return f"p{place}"
        register = f"{letter}{place if letter == 'b' else 40 + place}"
        self.loads += f"ld.global.{MOVES[letter]} {register}, {where};\n"
        return register

    def result(self, type_: str) -> str:
        """A register that is stored after."""
        place, letter = len(self.results), width_of(type_)
        register = {"p": f"p{8 + place}", "b": f"b{4 + place}"}.get(letter, f"{letter}{10 + place}")
        self.keep(type_, register)
        return register

    def keep(self, type_: str, register: str) -> None:
        """Store a register after the instruction."""
        place, letter = len(self.results), width_of(type_)
        self.results.append(type_)
        if letter == "p":
            self.stores += f"selp.u32 r{320 + place}, 1, 0, {register};\n"
            letter, register = "r", f"r{320 + place}"
        self.stores += f"st.global.{MOVES[letter]} [d3+{8 * self.rows * place}], {register};\n"

    def operand(self, spec: OperandSpec) -> str:
        """The text of an operand."""
        take = self.result if spec.written else self.source
        if spec.kind == "vector":
            return "{" + ", ".join(take(spec.type) for _ in range(spec.count)) + "}"
        if spec.kind == "register":
            return take(spec.type) + ("|" + self.result("pred") if spec.pair else "")
        return str(spec.value)

    @property
    def head(self) -> str:
        """Statements that set `d2` and `d3` for thread `r0` of blocks of at most 128 threads."""
        text = "mov.u32 r1, %ctaid.x; mov.u32 r2, %ntid.x; mad.lo.u32 r1, r1, r2, r0; mul.wide.u32 d3, r1, 8;\n"
        return text + "add.u64 d2, d0, d3; add.u64 d3, d1, d3;\n"

    @property
    def out(self) -> int:
        """Bytes of the output."""
        return 8 * self.rows * max(1, len(self.results))
