"""A test of a form must have executed it, as in the folder `forms`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.emulator.blackwell import tiny

from ptxbench.emulator.ptx import isa


@pytest.fixture(autouse=True)
def _the_form_is_executed(request: pytest.FixtureRequest) -> Iterator[None]:
    tiny.EXECUTED.clear()
    yield
    form = getattr(request.node, "callspec", None) and request.node.callspec.params.get("form")
    if isinstance(form, isa.Form):
        assert tiny.EXECUTED & set(isa.mnemonics(form)), f"no thread executed {form.name}"
