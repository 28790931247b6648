"""Every form of tcgen05.mma executes, for one CTA and for pairs, against NumPy."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.emulator.blackwell.forms import Every
from tests.emulator.blackwell.tiny import refused_by_ptxas

from ptxbench.emulator.ptx import isa

FORMS = [each for each in isa.coverage() if each.name.startswith("tcgen05.mma")]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_form_gives_what_numpy_gives(form: isa.Form) -> None:
    kernel = Every(form)
    ran = kernel.run()
    assert not ran.result.error
    assert not ran.result.unsupported
    assert not ran.result.findings
    assert kernel.name in {each.name for each in ran.result.counts if each.threads}
    assert (kernel.answer(ran) == kernel.wanted()).all()


def test_ptxas_takes_these_programs(tmp_path: Path) -> None:
    for form in FORMS[::5]:
        assert not refused_by_ptxas(Every(form).text(), tmp_path), form.name
