"""A test of a form must have executed it: what the kernels of one test ran is held against the form's mnemonics."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.emulator.forms import harness

from ptxbench.emulator.ptx import isa


@pytest.fixture(autouse=True)
def _the_form_is_executed(request: pytest.FixtureRequest) -> Iterator[None]:
    harness.EXECUTED.clear()
    yield
    form = getattr(request.node, "callspec", None) and request.node.callspec.params.get("form")
    if isinstance(form, isa.Form):
        assert harness.EXECUTED & set(isa.mnemonics(form)), f"no thread executed {form.name}"
