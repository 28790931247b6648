"""Probes of one instruction on many operands: every scalar form of sm_90a, on edge values and random bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from tests.emulator.ptx.samples import width_of
from tests.gpu.probes.operands import Words, Writer, column
from tests.gpu.probes.probe import Probe

from ptxbench.emulator.ptx.isa import Kind, coverage, mnemonics, operands
from ptxbench.emulator.ptx.shapes import OperandSpec

ROWS = 64
ELSEWHERE = ("isspacep", "cvta", "mov", "mapa", "getctarank")
"""Their results are addresses, or no more than a copy."""


def _carries(mnemonic: str, writer: Writer) -> tuple[str, str]:
    """Statements that set the carry before an instruction, and that read it after."""
    before = after = ""
    root = mnemonic.partition(".")[0]
    if root in ("addc", "madc", "subc"):
        carry = writer.source("pred")
        before = f"selp.u32 r340, 1, 0, {carry}; "
        before += "sub.cc.u32 r341, 0, r340;\n" if root == "subc" else "add.cc.u32 r341, r340, 0xffffffff;\n"
    if ".cc" in mnemonic:
        step = "subc" if root.startswith("sub") else "addc"
        after = f"mov.u32 r342, 0; {step}.u32 r343, r342, r342;\n"
        writer.keep("u32", "r343")
    return before, after


def scalar(mnemonic: str, specs: Sequence[OperandSpec], rows: int = ROWS, given: Sequence[Words] = ()) -> Probe:
    """One instruction on `rows` rows of operands, one a thread; `given` operands, or edges of their types."""
    writer = Writer(rows)
    text = f"{mnemonic} {', '.join(writer.operand(spec) for spec in specs)};\n"
    before, after = _carries(mnemonic, writer)
    columns = given or [column(f"{mnemonic} {place}", type_, rows) for place, type_ in enumerate(writer.sources)]
    return Probe(
        name=f"scalar{f' {rows}' if given else ''}: {text.strip()}",
        body=writer.head + writer.loads + before + text + after + writer.stores,
        given=b"".join(each.astype("<u8").tobytes() for each in columns),
        out=writer.out,
        start=bytes(writer.out),
        block=(min(rows, 128), 1, 1),
        grid=(-(-rows // 128), 1, 1),
    )


def _fits(specs: Sequence[OperandSpec]) -> bool:
    return not any(spec.type and width_of(spec.type) == "q" for spec in specs)


def scalars() -> Iterator[Probe]:
    """One probe per mnemonic; all bits of the widening conversions, and every place of the NaN that fills boxes."""
    for form in coverage():
        if form.kind == Kind.SCALAR and "sm_90a" in form.targets and not form.name.startswith(ELSEWHERE):
            for mnemonic in mnemonics(form):
                specs = operands(form, mnemonic)
                if _fits(specs):
                    yield scalar(mnemonic, specs)
                if mnemonic in ("cvt.f32.bf16", "cvt.f32.f16", "cvt.ftz.f32.bf16"):
                    yield scalar(mnemonic, specs, 1 << 16, [np.arange(1 << 16, dtype=np.uint64)])
                if mnemonic.startswith("fma.rn.oob"):
                    names = [f"{mnemonic} more {place}" for place in range(3)]
                    kind = mnemonic.rpartition(".")[2]
                    yield scalar(mnemonic, specs, 1024, [column(name, kind, 1024) for name in names])
