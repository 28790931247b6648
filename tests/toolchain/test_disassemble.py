"""Machine code becomes lines with opcode, predicate and address; it is disassembled once per content."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from ptxbench.settings import Settings
from ptxbench.toolchain.build import Built
from ptxbench.toolchain.disassemble import SassLine, disassemble, parse_listing
from ptxbench.toolchain.native import native_binary
from ptxbench.toolchain.toolkit import Toolkit

LISTING = """
Fatbin elf code:
================
arch = sm_90a

	code for sm_90a
		Function : _Z1kv
	.headerflags	@"EF_CUDA_SM90"
        /*0000*/                   LDC R1, c[0x0][0x28] ;                                /* 0x00000a00ff017b82 */
                                                                                         /* 0x000ff00000000800 */
        /*0060*/              @!P0 BRA 0x560 ;                                           /* 0x00000004003c8947 */
        /*0160*/                   HGMMA.64x8x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ;   /* 0x00000000081879f0 */
        /*10a0*/             @!UP1 UTMALDG.2D [UR4], [UR6] ;                             /* 0x0 */
        /*10b0*/                   NOP;                                                  /* 0x0 */
		..........
		Function : _Z1lv
        /*0000*/               @PT EXIT ;                                                /* 0x0 */
"""


def test_each_function_has_its_instructions() -> None:
    first, second = parse_listing(LISTING)
    assert first.name == "_Z1kv"
    assert first.lines == (
        SassLine(0x0, "LDC", "", "LDC R1, c[0x0][0x28]"),
        SassLine(0x60, "BRA", "@!P0", "@!P0 BRA 0x560"),
        SassLine(0x160, "HGMMA.64x8x16.F32.BF16", "", "HGMMA.64x8x16.F32.BF16 R24, gdesc[UR8], R24, gsb0"),
        SassLine(0x10A0, "UTMALDG.2D", "@!UP1", "@!UP1 UTMALDG.2D [UR4], [UR6]"),
        SassLine(0x10B0, "NOP", "", "NOP"),
    )
    assert (second.name, second.lines) == ("_Z1lv", (SassLine(0, "EXIT", "@PT", "@PT EXIT"),))


@given(st.text())
def test_any_text_is_read_without_an_exception(text: str) -> None:
    parse_listing(text)


def test_a_real_kernel_is_disassembled_whole_and_only_once(
    settings: Settings, built: Built, library: Path, toolkit: Toolkit
) -> None:
    (code,) = disassemble(library, toolkit, settings)
    assert code.name == built.stage.kernels[0].name
    opcodes = [line.opcode.partition(".")[0] for line in code.lines]
    assert {"STS", "LDS", "BAR", "EXIT"} <= set(opcodes)
    assert [line.address for line in code.lines] == list(range(0, 16 * len(code.lines), 16))
    broken = dataclasses.replace(toolkit, nvdisasm=Path("/nowhere"))
    assert disassemble(library, broken, dataclasses.replace(settings, path="/nowhere")) == (code,)


def test_a_library_without_device_code_has_no_kernels(settings: Settings, toolkit: Toolkit, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int x;\n")
    library = native_binary("libx.so", [tmp_path / "x.c"], settings, kind="shared")
    assert disassemble(library, toolkit, settings) == ()
