"""Probes of matrix products: every mma.sync and mma.sp of sm_90a, on tiles of numbers and special values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np
from tests.emulator.ptx.samples import width_of
from tests.gpu.probes.operands import FLOATS, WIDTHS, Words, Writer, numbers, packed
from tests.gpu.probes.probe import Probe, bits

from ptxbench.emulator.ptx.isa import coverage, mnemonics, operands
from ptxbench.emulator.ptx.shapes import OperandSpec

TYPES = re.compile(r"\.(f16|bf16|tf32|f32|f64|e4m3|e5m2|s8|u8|s4|u4|b1|s32)(?=\.|$)")
ELEMENT_BITS = {"s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1, "s32": 32}
REGIMES = ((2, 0), (12, 0), (3, 12))
"""Spread of the exponents, and one in how many elements is special."""
PAIRS = {"tf32": (0x4, 0xE)}
QUADS = (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)
"""Metadata of one group: two places of four, the lower first; of two places the one, for 32-bit elements."""


def element_bits(kind: str) -> int:
    """Bits of an element in its container."""
    return FLOATS[kind][0] if kind in FLOATS else ELEMENT_BITS[kind]


def registers(name: str, kind: str, type_: str, lanes: int, floats: bool) -> Words:
    """One register of every lane, of elements of this kind: uint64 [lanes]; warp w takes regime w % 3."""
    container, width = WIDTHS[width_of(type_)], element_bits(kind)
    per = container // width
    made = [numbers(f"{name} {place}", kind, lanes * per, *regime) for place, regime in enumerate(REGIMES)]
    columns = [packed(each, width, container) for each in made]
    return np.choose(np.arange(lanes) // 32 % 3, columns) if floats else columns[0]


def metadata(name: str, kind: str, lanes: int) -> Words:
    """Words of valid sparsity metadata: uint64 [lanes]."""
    choice = np.array(PAIRS.get(kind, QUADS), np.uint64)
    drawn = choice[bits(name, 8 * lanes) % np.uint64(choice.size)]
    return packed(drawn, 4, 32)


def product(mnemonic: str, specs: Sequence[OperandSpec], selector: int = 0) -> Probe:
    """One instruction on a few tiles, a warp each."""
    kinds = TYPES.findall(mnemonic)
    floats = kinds[1] in FLOATS
    lanes = 32 * (9 if floats else 2)
    writer = Writer(lanes)
    parts = [str(selector) if spec.kind == "immediate" else writer.operand(spec) for spec in specs]
    text = f"{mnemonic} {', '.join(parts)};\n"
    of = [kind for spec, kind in zip(specs[1:4], kinds[1:4], strict=True) for _ in range(spec.count)]
    columns = [
        registers(f"{mnemonic} {selector} {place}", kind, type_, lanes, floats)
        for place, (kind, type_) in enumerate(zip(of, writer.sources, strict=False))
    ]
    if len(writer.sources) > len(of):
        columns.append(metadata(f"{mnemonic} {selector} metadata", kinds[1], lanes))
    return Probe(
        name=f"mma: {mnemonic} {selector}" if ".sp" in mnemonic else f"mma: {mnemonic}",
        body=writer.head + writer.loads + text + writer.stores,
        given=b"".join(each.astype("<u8").tobytes() for each in columns),
        out=writer.out,
        start=bytes(writer.out),
        grid=(lanes // 32, 1, 1),
    )


def _selectors(mnemonic: str) -> range:
    """Which lanes of four may hold the metadata: four bits for two (32 bits), eight (4 bits), else four elements."""
    depth = int(re.findall(r"k(\d+)", mnemonic)[0])
    group = {32: 2, 4: 8}.get(element_bits(TYPES.findall(mnemonic)[1]), 4)
    return range(1024 // (16 * 4 * depth // group))


def products() -> Iterator[Probe]:
    """One probe per mnemonic of mma, and per selector of mma.sp."""
    for form in coverage():
        if form.name.startswith("mma") and "sm_90a" in form.targets:
            for mnemonic in mnemonics(form):
                for selector in _selectors(mnemonic) if ".sp" in mnemonic else (0,):
                    yield product(mnemonic, operands(form, mnemonic), selector)
