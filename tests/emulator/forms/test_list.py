"""The package's list of executed forms says what the tests do, and the counts follow from it and from the compiler."""

from __future__ import annotations

import json

import pytest
from tests.emulator.forms.registry import executed, measured
from typer.testing import CliRunner

from ptxbench.cli.app import app
from ptxbench.emulator import coverage
from ptxbench.emulator.ptx import isa


def test_the_list_of_executed_forms_is_what_the_tests_execute() -> None:
    """After a new test: `python -m tests.emulator.forms.registry`."""
    assert sorted(coverage.names("executed")) == executed()


def test_the_list_of_measured_forms_is_what_an_h200_answered() -> None:
    """After a new recording: `python -m tests.emulator.forms.registry`."""
    assert sorted(coverage.names("measured")) == measured()


@pytest.mark.parametrize("target", isa.TARGETS)
def test_every_form_is_supported_and_executed(target: str) -> None:
    forms = coverage.covered(target)
    assert [each.form.name for each in forms if not each.supported] == []
    assert [each.form.name for each in forms if not each.executed] == []


def test_no_form_that_is_executed_is_unsupported() -> None:
    for target in isa.TARGETS:
        assert [each.form.name for each in coverage.covered(target) if each.executed and not each.supported] == []


@pytest.mark.parametrize("list_", ["executed", "measured"])
def test_listed_names_are_names_of_forms(list_: str) -> None:
    assert coverage.names(list_) <= {form.name for form in isa.coverage()}


def test_the_shares_add_up() -> None:
    *sections, whole = coverage.shares(coverage.covered("sm_90a"))
    assert whole.forms == sum(each.forms for each in sections)
    assert whole.executed == sum(each.executed for each in sections)


def test_the_command_prints_counts_what_is_missing_and_json() -> None:
    runner = CliRunner()
    plain = runner.invoke(app, ["emulator", "coverage", "--target", "sm_90a"])
    assert plain.exit_code == 0
    assert "9.7.15 Warpgroup-level matrices" in plain.output
    document = json.loads(runner.invoke(app, ["emulator", "coverage", "--json"]).output)
    assert set(document) == set(isa.TARGETS)
    missing = runner.invoke(app, ["emulator", "coverage", "--target", "sm_100a", "--missing"]).output
    assert all(f"not supported: {name}" in missing for name in document["sm_100a"]["unsupported"])


def test_an_unknown_target_is_a_users_mistake() -> None:
    result = CliRunner().invoke(app, ["emulator", "coverage", "--target", "sm_80"])
    assert result.exit_code != 0
