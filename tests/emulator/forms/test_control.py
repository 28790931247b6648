"""Branches, calls, exits, stacks, traps and register budgets: what a thread does next, seen in what it stores."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.forms.harness import Kernel

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.isa import Form

FLOW = [form for form in isa.coverage() if form.section == "9.7.12 Control flow"]
STACK = [form for form in isa.coverage() if form.section == "9.7.17 Stack manipulation"]
REST = [form for form in isa.coverage() if form.name.split(".")[0] in ("trap", "brkpt", "setmaxnreg", "griddepcontrol")]
LANES = 64
TWICE = """.func (.param .b32 o) twice(.param .b32 i)
{ .reg .b32 x; ld.param.b32 x, [i]; add.u32 x, x, x; st.param.b32 [o], x; ret; }"""
_LANE = np.arange(LANES)
BODIES = {
    "bra": (
        "setp.lt.u32 p1, lane, 20; @p1 bra LOW; mov.u32 r1, 7; {} DONE;\nLOW: mov.u32 r1, 9;\nDONE:",
        7 + 2 * (_LANE < 20),
    ),
    "brx": (
        "TABLE: .branchtargets A, B, C; rem.u32 r2, lane, 3; {} r2, TABLE;\nA: mov.u32 r1, 1; bra.uni OUT;\n"
        "B: mov.u32 r1, 2; bra.uni OUT;\nC: mov.u32 r1, 3;\nOUT:",
        _LANE % 3 + 1,
    ),
    "call": (
        ".param .b32 x; .param .b32 y; st.param.b32 [x], lane; {} (y), twice, (x); ld.param.b32 r1, [y];",
        2 * _LANE,
    ),
    "ret": ("setp.lt.u32 p1, lane, 20; mov.u32 r1, 4; @p1 {};", np.where(_LANE < 20, 0, 4)),
    "exit": ("setp.lt.u32 p1, lane, 20; mov.u32 r1, 4; @p1 {};", np.where(_LANE < 20, 0, 4)),
}


@pytest.mark.parametrize("form", FLOW, ids=lambda form: form.name)
def test_control_goes_where_the_form_says(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        name = mnemonic.split(".")[0]
        if name == "brx" and mnemonic.endswith("uni"):
            body, expected = BODIES["brx"][0].replace("rem.u32 r2, lane, 3", "mov.u32 r2, 1"), np.full(LANES, 2)
        elif mnemonic == "ret.uni":
            body, expected = "mov.u32 r1, 4; setp.lt.u32 p1, lane, 64; @p1 {};", np.zeros(LANES)
        else:
            body, expected = BODIES[name]
        ran = Kernel(threads=LANES, before=TWICE).run(body.format(mnemonic), {}, ["r1"])
        assert ran.result.error == "", (mnemonic, ran.result)
        assert ran.columns[0].tolist() == expected.tolist(), mnemonic


@pytest.mark.parametrize("form", STACK, ids=lambda form: form.name)
def test_the_stack_grows_and_is_given_back(form: Form) -> None:
    """Two allocations hold their words apart; after a restore the second's place is taken again."""
    type_ = form.name.split(".")[1]
    letter, size = ("r", "b32") if type_ == "u32" else ("d", "b64")
    for align in (", 32", ""):
        one, two, three, top = (f"{letter}{i}" for i in range(1, 5))
        body = f"""mov.{size} {letter}20, 24; alloca.{type_} {one}, {letter}20{align};
        stacksave.{type_} {top}; alloca.{type_} {two}, {letter}20{align};
        st.local.u32 [{one}], lane; add.u32 r10, lane, 100; st.local.u32 [{two}], r10;
        ld.local.u32 r11, [{one}]; ld.local.u32 r12, [{two}];
        stackrestore.{type_} {top}; alloca.{type_} {three}, {letter}20{align};"""
        ran = Kernel(threads=LANES).run(body, {}, ["r11", "r12", one, two, three])
        assert ran.result.ok, ran.result
        first, second, *places = (column.astype(np.int64) for column in ran.columns)
        assert first.tolist() == _LANE.tolist()
        assert second.tolist() == (_LANE + 100).tolist()
        assert (places[1] == places[2]).all()
        assert (places[1] - places[0] >= 24).all()
        assert (places[0] % (32 if align else 8) == 0).all()


@pytest.mark.parametrize("form", REST, ids=lambda form: form.name)
def test_traps_end_the_kernel_and_the_others_do_not(form: Form) -> None:
    if form.name in ("trap", "brkpt"):  # a breakpoint with no debugger is a trap on an H200
        ran = Kernel().run(f"setp.eq.u32 p1, lane, 3; @p1 {form.name};", {}, [])
        assert ran.result.error.startswith("cudaErrorLaunchFailure")
        return
    operand = " 40" if "dec" in form.name else " 232" if "inc" in form.name else ""
    others = "setp.lt.u32 p1, lane, 128; @p1 bra FIRST; setmaxnreg.{}.sync.aligned.u32 {}; bra DONE;\nFIRST: {};\nDONE:"
    other = ("inc", 200) if "dec" in form.name else ("dec", 40)
    body = others.format(*other, form.name + operand) if operand else f"{form.name};"
    threads = 256 if operand else LANES
    ran = Kernel(threads=threads, registers=168).run(f"mov.u32 r1, 6; {body}", {}, ["r1"])
    assert ran.result.ok, ran.result
    assert set(ran.columns[0].tolist()) == {6}
