"""Seeded races: each is found, with both accesses; its repaired twin is clean."""

from __future__ import annotations

import pytest
from tests.emulator.core.small import Ran, run
from tests.emulator.races.programs import GLOBAL, HEAD, PROGRAMS, WORDS, Program


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


def undecided(body: str, **how: object) -> list[str]:
    """What the check says it could not decide; nothing else is found."""
    made = run(body, before=WORDS + GLOBAL, races=True, **how).result  # type: ignore[arg-type]
    assert not made.error
    assert {each.rule for each in made.findings} <= {"race-undecided"}
    return [each.message for each in made.findings]


def test_what_the_check_does_not_watch_is_said_and_never_clean() -> None:
    (said,) = undecided("multimem.red.relaxed.sys.global.add.u32 [%d51], %r50;")
    assert "multimem" in said
    assert not undecided("st.global.u32 [%d51], %r50;")


def test_a_grid_that_ran_in_part_is_said_to_be_undecided() -> None:
    (said,) = undecided("st.global.u32 [%d51], %r50;", grid=4, first=2)
    assert "2 of 4 clusters" in said


ATOMICS = """
mov.u64 %d40, data; setp.lt.u32 %p1, %r50, 64; @%p1 red.global.add.u32 [%d40], 1;
bar.sync 0; @%p1 bra DONE; ld.global.u32 %r1, [%d40]; st.global.u32 [%d51], %r1;\nDONE:
"""


def test_who_comes_behind_the_last_atomic_of_a_place_comes_behind_all() -> None:
    assert not undecided(ATOMICS, threads=96)


def test_an_ordinary_read_beside_the_atomics_of_another_cta_is_a_race() -> None:
    result = run(ATOMICS, grid=2, threads=96, before=WORDS + GLOBAL, races=True).result
    (race,) = result.findings
    assert (race.rule, "red.global.add.u32" in race.message) == ("race", True)


def test_lanes_of_one_store_with_different_values_in_one_place_are_a_warning() -> None:
    found = run("mov.u64 %d40, data; st.global.u32 [%d40], {};".replace("{}", "%r50"), before=GLOBAL, races=True)
    assert [(each.rule, each.severity) for each in found.result.findings] == [("race", "warning")]
    same = run("mov.u64 %d40, data; st.global.u32 [%d40], 7;", before=GLOBAL, races=True)
    assert not same.result.findings


def test_without_the_policy_nothing_is_looked_for() -> None:
    program = PROGRAMS["no syncwarp between lanes"]
    assert not run(program.text(fixed=False), before=WORDS + GLOBAL).result.findings


LEAVING = """
st.shared.u32 [%r42], %r50; bar.sync 0; setp.gt.u32 %p1, %r50, 31; @!%p1 bra stay;
ld.shared.u32 %r1, [%r42]; st.global.u32 [%d51], %r1; exit;
stay: {barrier} st.shared.u32 [%r42+128], 7; st.global.u32 [%d51], %r50;
"""


@pytest.mark.parametrize("barrier", ["bar.sync 0;", "barrier.cluster.arrive; barrier.cluster.wait;"])
def test_what_exited_threads_read_is_over_behind_a_barrier_of_all_threads(barrier: str) -> None:
    assert run(HEAD + LEAVING.format(barrier=barrier), threads=64, before=WORDS + GLOBAL, races=True).result.ok


def test_a_barrier_with_a_count_does_not_wait_for_exits() -> None:
    body = HEAD + LEAVING.format(barrier="bar.sync 1, 32;")
    assert run(body, threads=64, before=WORDS + GLOBAL, races=True).rules == {"race"}
