"""A test of a form must have executed it: what the kernels of one test ran is held against the form's mnemonics."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from tests.emulator.forms import harness

from ptxbench.emulator.ptx import isa


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Run the test; if it passed, its form was among what it executed."""
    harness.EXECUTED.clear()
    yield
    callspec = getattr(item, "callspec", None)
    form = callspec.params.get("form") if callspec else None
    if isinstance(form, isa.Form):
        assert harness.EXECUTED & set(isa.mnemonics(form)), f"no thread executed {form.name}"
