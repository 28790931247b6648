"""Every Hopper form in a tiny program, run on the emulator and compared with an H200's answer where there is one."""

from __future__ import annotations

import pytest
from tests.emulator.agreement import answers, catalogue, compare, emulated
from tests.emulator.agreement.program import Program

from ptxbench.emulator.ptx.isa import Form

DOCUMENT = answers.load("programs")
FORMS = tuple(catalogue.forms())


def some(form: Form) -> list[Program]:
    """The programs of a form; of warpgroup products, whose shapes are many, only the first."""
    made = catalogue.made(form)
    return made[:1] if form.name.startswith("wgmma.mma_async") else made


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_form_gives_what_the_device_gave(form: Form) -> None:
    for program in some(form):
        answer = emulated.run(program)
        assert answer.unsupported == ""
        assert program.ends or answer.error == "", answer.error
        assert program.ends or answer.findings == ()
        found = compare.outcomes(program, answer, DOCUMENT or {"answers": {}})
        wrong = [
            (part.mnemonic, each.detail)
            for part, each in zip(program.parts, found, strict=True)
            if each.kind == "different"
        ]
        assert not wrong


def test_every_form_has_a_program_or_a_reason_why_not() -> None:
    for form in FORMS:
        assert catalogue.made(form) or catalogue.opcode(form) in catalogue.UNANSWERED, form.name
