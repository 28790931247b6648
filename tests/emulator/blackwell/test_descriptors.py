"""Descriptors of tcgen05: what each field means, and which values are refused with the name of their bits."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.blackwell.products import Case, descriptor, instruction, mma

from ptxbench.emulator.errors import Fault
from ptxbench.emulator.tensor.shared_descriptor import SharedDescriptor
from ptxbench.emulator.tensor.tcgen05 import Form, decode

VALID = 1 << 46


def form(kind: str = "f16", group: int = 1, *, weight: bool = False, block: int = 0, in_tensor: bool = False) -> Form:
    return Form(kind, group, weight, False, block, in_tensor)


def test_known_descriptors_are_read() -> None:
    one = decode(form(), 0x08400490)
    assert (one.m, one.n, one.types, one.result) == (128, 256, ("bf16", "bf16"), "f32")
    two = decode(form(group=2), 0x10400490)
    assert (two.m, two.n) == (256, 256)
    shared = SharedDescriptor.decode(0x4000404000010040)
    assert (shared.fields.start, shared.fields.leading, shared.fields.stride) == (0x400, 16, 1024)
    assert (shared.fields.span, shared.wide_atoms) == (128, False)


PLAIN = instruction(128, 64)
SCALED = form("mxf8f6f4", block=32)
REFUSED = {
    "sparse flag": (form(), PLAIN | 4, "bit 2 (sparsity) hold 0x1; the instruction is dense"),
    "selector": (form(), PLAIN | 1, "bits 0-1 (sparsity selector of a dense product)"),
    "saturation": (form(), PLAIN | 8, "bit 3 (saturation, for kind::i8 only)"),
    "type of D": (form(), PLAIN ^ 0x30, "bits 4-5 (type of D) hold 0x2; f16 is 0, f32 is 1"),
    "f16 D of bf16": (form(), instruction(128, 64, result=0), "D of f16 takes A and B of f16, not bf16"),
    "bit 6": (form(), PLAIN | 1 << 6, "bit 6 (reserved)"),
    "type of A": (form(), instruction(128, 64, (2, 1)), "bits 7-9 (type of A) hold 0x2; f16 is 0, bf16 is 1"),
    "two types": (form(), instruction(128, 64, (0, 1)), "A is f16, and both must have one type"),
    "negated integer": (form("i8"), instruction(128, 64, (1, 1), 2, more=1 << 13), "bits 13-14 (negation"),
    "A in tensor memory": (form(in_tensor=True), instruction(128, 64, major=(1, 0)), "bit 15 (A is MN-major)"),
    "narrow and MN-major": (form("f8f6f4"), instruction(128, 64, (5, 0), major=(1, 0)), "e2m1 is K-major only"),
    "bit 23": (form(), PLAIN | 1 << 23, "bit 23 (reserved)"),
    "N": (form(), instruction(128, 0), "bits 17-22 (N >> 3, N = 0) hold 0x0; N is 8 to 256 in steps of 8"),
    "N too large": (form(), instruction(128, 264), "N = 264"),
    "N of a pair": (form(group=2), instruction(256, 24), "N is 16 to 256 in steps of 16"),
    "N of integers": (form("i8"), instruction(128, 40, (1, 1), 2), "N = 40"),
    "M in elements": (form(), PLAIN & ~(31 << 24) | 16 << 24, "M = 256) hold 0x10; M is 64 or 128"),
    "M of a pair": (form(group=2), instruction(64, 64), "M is 128 or 256, of both CTAs together"),
    "M of a block": (SCALED, instruction(64, 64, (0, 0), 0, more=1 << 23), "M is 128"),
    "shift": (form(), PLAIN | 1 << 30, "bits 30-31 (greatest shift, for .ws only)"),
    "N of .ws": (form(weight=True), instruction(128, 32), "N is 64, 128 or 256"),
    "scale type": (SCALED, instruction(128, 64, (0, 0), 0), "bit 23 (type of the scale factors) hold 0x0; ue8m0 is 1"),
    "scale id": (
        form("mxf4", block=32),
        instruction(128, 64, (1, 1), 0, more=1 << 23 | 1 << 29),
        "bits 29-30 (first scale factor) hold 0x1; 2 factors begin at 0 or 2",
    ),
    "ue4m3 of 32": (form("mxf4nvf4", block=32), instruction(128, 64, (1, 1), 0), "ue4m3 is for blocks of 16"),
    "selector of bytes": (
        Form("i8", 1, False, True, 0, False),
        instruction(128, 64, (1, 1), 2, more=5),
        "bits 0-1 (sparsity selector, of which kind::i8 has no choice) hold 0x1",
    ),
    "dense": (Form("f16", 1, False, True, 0, False), PLAIN, "bit 2 (sparsity) hold 0x0; the instruction is sparse"),
    "M of a sparse pair": (
        Form("mxf4", 2, False, True, 32, False),
        instruction(128, 64, (1, 1), 0, more=1 << 23 | 4),
        "M is 256, of both CTAs together",
    ),
    "N of .ws.sp": (Form("f16", 1, True, True, 0, False), instruction(128, 256, more=4), "N is 64 or 128"),
    "K of 96": (
        form("mxf4", block=32),
        instruction(128, 64, (1, 1), 0, more=1 << 23 | 1 << 31),
        "bit 31 (K of 96, for sm_103a) hold 0x1",
    ),
    "M of .ashift": (Form("f16", 1, False, False, 0, True, True), instruction(64, 64), "M is 128"),
    "MN-major bytes": (form("f8f6f4"), instruction(128, 24, (0, 0), major=(0, 1)), "has N in steps of 16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_instruction_descriptor_is_refused_by_the_name_of_its_bits(name: str) -> None:
    which, value, reason = REFUSED[name]
    with pytest.raises(Fault) as caught:
        decode(which, value)
    assert reason in caught.value.reason
    assert f"instruction descriptor {value:#010x}" in caught.value.reason


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (1 << 62, "bits 46-48 hold 0x0; the version must be 0b001: a descriptor of wgmma, whose bit 46 is 0?"),
        (2 << 46, "bits 46-48 hold 0x2"),
        (VALID | 1 << 14, "bits 14-15"),
        (VALID | 1 << 31, "bits 30-31"),
        (VALID | 1 << 52, "bits 52 hold 0x1; absolute leading offsets are for sm_103a"),
        (VALID | 1 << 53, "bits 53-60"),
        (VALID | 1 << 49, "bits 49-51 hold 0x1; without a swizzle no pattern has a base offset"),
        (VALID | 3 << 61, "bits 61-63 hold 0x3; the swizzle is 0 (none), 1 (128 bytes in 32-byte atoms), 2 (128)"),
    ],
)
def test_a_matrix_descriptor_is_refused_by_the_name_of_its_bits(value: int, reason: str) -> None:
    with pytest.raises(Fault) as caught:
        SharedDescriptor.decode(value)
    assert reason in caught.value.reason


def kernel(flags: int, code: int = 2, offset: int = 0) -> Case:
    case = Case(32)
    case.place(np.zeros(1 << 14, np.uint8))
    case.setup = descriptor(1, offset, 16, 1024, code) + descriptor(2, offset, 16, 1024, code)
    case.body = mma("f16", flags)
    return case


def test_a_kernel_is_stopped_at_the_product_with_a_bad_descriptor() -> None:
    case = kernel(instruction(96, 32))
    ran = case.run()
    assert ran.error == "cudaErrorIllegalInstruction"
    assert "bits 24-28 (M >> 4, M = 96)" in ran.messages


def test_a_width_that_sources_disagree_about_is_a_warning() -> None:
    case = kernel(instruction(128, 24))
    case.columns = 16
    ran = case.run()
    assert [(each.rule, each.severity) for each in ran.result.findings] == [("tensor-shape", "warning")]
    assert "N = 24 with M = 128: the PTX ISA allows steps of 8, libraries keep to 16" in ran.messages


def test_a_product_that_overwrites_its_own_a_is_found() -> None:
    case = Case(32)
    case.place(np.zeros(1 << 14, np.uint8))
    case.setup = descriptor(2, 0, 16, 1024, 2) + "add.u32 %r204, %r300, 24;\n"
    case.body = mma("f16", instruction(128, 32), first="[%r204]")
    ran = case.run(allocate=64)
    assert ("tensor-overlap", "error") in {(each.rule, each.severity) for each in ran.result.findings}
    assert "A of the product at line" in ran.messages


def test_an_operand_beyond_shared_memory_is_out_of_bounds() -> None:
    ran = kernel(instruction(128, 32), offset=1 << 17).run()
    assert ran.error == "cudaErrorIllegalAddress"
    assert "beyond the shared memory" in ran.messages


def test_an_accumulator_beyond_its_allocation_is_refused() -> None:
    ran = kernel(instruction(128, 64)).run()
    assert "uses column 32 of tensor memory, which is not allocated" in ran.messages


def test_an_accumulator_at_a_lane_that_the_layout_does_not_have_is_refused() -> None:
    case = kernel(instruction(128, 32))
    case.setup += "add.u32 %r201, %r300, 0x100000;\n"
    case.body = mma("f16", instruction(128, 32), target="%r201")
    assert "the accumulator begins at lane 16 of tensor memory; M = 128 needs lane 0" in case.run().messages
