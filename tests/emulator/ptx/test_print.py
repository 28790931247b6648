"""An instruction in a message looks as in the source."""

from __future__ import annotations

import pytest
from tests.emulator.ptx.texts import all_instructions, compiled, only

from ptxbench.emulator.ptx.parse import parse
from ptxbench.emulator.ptx.print import text

DECLARED = ".reg .pred p<5>; .reg .b16 h<9>; .reg .b32 r<40>; .reg .b64 d<9>; .shared .b32 s[4]; .param .b32 q;\n"


@pytest.mark.parametrize(
    "statement",
    [
        "@!p1 add.s32 r1, r2, -3",
        "@p2 setp.lt.and.f32 p1|p3, r1, 0f3F99999A, !p2",
        "mov.f32 r1, 1.5",
        "mov.u32 r1, %tid.x",
        "ld.shared.v2.u32 {r1, _}, [s+4]",
        "st.global.u32 [d1-8], r1",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [r1], [d1, {r2, r3}], [r4]",
        "cp.async.bulk.prefetch.tensor.3d.L2.global.im2col [d1, {r2, r3, r4}], {h1}",
        "call f, (q)",
        "ret",
    ],
)
def test_a_statement_is_printed_as_it_was_written(statement: str) -> None:
    printed = text(only(f"{DECLARED}{statement};", before=".func f(.param .b32 x) { ret; }"))
    assert printed.replace("1.2", "0f3F99999A") == statement


def test_offsets_of_an_im2col_load_stand_behind_its_barrier() -> None:
    loads = [
        text(each) for each in all_instructions(parse(compiled("blackwell.sm_100a"))) if "im2col" in each.modifiers
    ]
    assert loads[0].endswith("[%r1], [%rd2, {%r16, %r16, %r16, %r16}], [%r5], {%rs1, %rs1}")


def test_long_register_lists_are_shortened() -> None:
    products = [text(each) for each in all_instructions(parse(compiled("gemm.sm_90a"))) if each.opcode == "wgmma"]
    assert max(len(line) for line in products) < 160
