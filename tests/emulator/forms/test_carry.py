"""Extended-precision arithmetic: each form with and without a carry before it, its own carry read back."""

from __future__ import annotations

import pytest
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.integers import carry, width
from tests.emulator.forms.values import columns

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.examples import width_of
from ptxbench.emulator.ptx.isa import Form

LANES = 64
FORMS = [form for form in isa.coverage() if form.section == "9.7.2 Extended-precision arithmetic"]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_carry_goes_in_and_out(form: Form) -> None:
    words = form.name.split(".")
    type_ = words[-1]
    letter = width_of(type_)
    subtracts = words[0].startswith("sub")
    sources = [f"{letter}{i}" for i in range(1, len(isa.operands(form, form.name)))]
    first = "sub.cc.u32 r40, 0, r50;" if subtracts else "add.cc.u32 r40, r50, -1;"
    told = "subc.u32 r41, 0, 0;" if subtracts else "addc.u32 r41, 0, 0;"
    body = f"{first}\n{form.name} {letter}20, {', '.join(sources)};\n{told}"
    given = columns([type_] * len(sources), LANES, form.name)
    inward = [lane % 2 for lane in range(LANES)]
    kernel = Kernel(threads=LANES)
    ran = kernel.run(body, {**dict(zip(sources, given, strict=True)), "r50": inward}, [f"{letter}20", "r41"])
    assert ran.result.ok, ran.result
    for lane in range(LANES):
        result, outward = carry(words, [*(each[lane] for each in given), inward[lane]])
        # Without `.cc` the flag stays as it was.
        flag = outward if "cc" in words else inward[lane]
        assert int(ran.columns[0][lane]) == result
        assert int(ran.columns[1][lane]) == (-flag & 0xFFFFFFFF if subtracts else flag)
    assert width(type_) in (32, 64)
