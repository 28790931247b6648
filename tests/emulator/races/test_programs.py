"""Seeded races: each is found, with both accesses; its repaired twin is clean."""

from __future__ import annotations

import pytest
from tests.emulator.core.small import Ran, run
from tests.emulator.races.programs import GLOBAL, PROGRAMS, WORDS, Program


def ran(program: Program, *, fixed: bool) -> Ran:
    """A launch that looks for races."""
    how = {"before": WORDS + GLOBAL, "given": bytes(64), **program.how}
    how["before"] = how["before"] if ".global" in str(how["before"]) else f"{how['before']}{GLOBAL}"
    return run(program.text(fixed=fixed), **how, races=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_race_is_found_with_both_accesses_and_a_hint(name: str) -> None:
    program = PROGRAMS[name]
    result = ran(program, fixed=False).result
    assert (result.error, result.unsupported) == ("", "")
    found = [each for each in result.findings if each.rule == program.finding and each.severity == "error"]
    assert found, result.findings
    for word in program.words:
        assert any(word in each.message for each in found), (word, [each.message for each in found])
    for each in found:
        assert each.line
        assert each.hint
        assert each.message.count("line ") >= 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_found_in_the_repaired_twin(name: str) -> None:
    result = ran(PROGRAMS[name], fixed=True).result
    assert (result.error, result.unsupported, result.findings) == ("", "", ())
