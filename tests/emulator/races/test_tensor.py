"""Seeded races on tensor memory that only threads and warps can tell apart, with their repaired twins."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from tests.emulator.blackwell.products import AFTER, COMMIT, WAIT, filled, instruction, mma, read_out
from tests.emulator.blackwell.test_products import BF16, made
from tests.emulator.blackwell.tiny import Ran, allocated, numbered, registers, run

DONE = WAIT.format(phase=0) + AFTER
BEFORE = "tcgen05.fence::before_thread_sync;\n"
BY_GROUPS = "setmaxnreg.dec.sync.aligned.u32 64;\n"
"""Makes the emulator run warpgroups together, whose warps the other checks do not tell apart."""
STORE = numbered(1, 32) + f"tcgen05.st.sync.aligned.32x32b.x32.b32 [%r301], {registers(1, 32)};\n"
STORED = "tcgen05.wait::st.sync.aligned;\n"
LOAD = f"tcgen05.ld.sync.aligned.32x32b.x32.b32 {registers(1, 32)}, [%r301];\n"
LOADED = "tcgen05.wait::ld.sync.aligned;\n"
SYNC = "bar.sync 0;\n"


@dataclass(frozen=True)
class Program:
    """One race.

    Attributes:
        fixed, broken: What stands where `{fix}` is.
        rule: What must be found.
        words: What its message must say.
        first: Statements before the products.
        then: Statements behind them.
        also: Whether the checks of units see it too.
        ending: How the text that gives the columns back is changed.
    """

    fixed: str
    rule: str
    words: str
    first: str = ""
    then: str = COMMIT + DONE
    broken: str = ""
    also: bool = False
    ending: tuple[str, str] | None = None


PROGRAMS = {
    "a commit by another lane of the warp that issued": Program(
        COMMIT,
        "use-before-completion",
        "while no tcgen05.commit covers the tcgen05.mma",
        then="{fix}" + DONE,
        broken="setp.eq.u32 %p13, %r350, 1;\n" + COMMIT.replace("%p19", "%p13"),
    ),
    "an accumulator stored by all warps, and no fence before the barrier": Program(
        BEFORE,
        "tcgen05-fence",
        "without tcgen05.fence::before_thread_sync",
        first=BY_GROUPS + STORE + STORED + "{fix}" + SYNC + AFTER,
    ),
    "an accumulator stored by all warps, and no fence behind the barrier": Program(
        AFTER,
        "tcgen05-fence",
        "without tcgen05.fence::after_thread_sync",
        first=BY_GROUPS + STORE + STORED + BEFORE + SYNC + "{fix}",
    ),
    "an accumulator stored by all warps, and no barrier": Program(
        SYNC,
        "overwrite-before-release",
        "the tcgen05.st of line",
        first=BY_GROUPS + STORE + STORED + BEFORE + "{fix}" + AFTER,
    ),
    "an accumulator stored by all warps, and the stores not waited for": Program(
        STORED,
        "overwrite-before-release",
        "while the tcgen05.st of line",
        first=BY_GROUPS + STORE + "{fix}" + BEFORE + SYNC + AFTER,
        also=True,
    ),
    "an accumulator overwritten while other warps load it": Program(
        SYNC,
        "overwrite-before-release",
        "the tcgen05.ld of line",
        first=BY_GROUPS + STORE + STORED + BEFORE + SYNC + AFTER + LOAD + LOADED + BEFORE + "{fix}" + AFTER,
    ),
    "columns given back while other warps load them": Program(
        SYNC,
        "overwrite-before-release",
        "tcgen05.dealloc",
        first=BY_GROUPS,
        then=COMMIT + DONE + LOAD + LOADED + "{fix}",
        ending=("bar.sync 0;\n@!%p18 bra gone;", "@!%p18 bra gone;"),
    ),
}


def ran(program: Program, *, fixed: bool, races: bool = True) -> Ran:
    """A product into 32 columns, with the program's statements around it."""
    case, _ = made(BF16, 128, 32, 2, (0, 0))
    product = mma("f16", instruction(128, 32), enable=str(int("tcgen05.st" in program.first)))
    last = "" if program.ending else read_out(32)
    body = filled(case.image.size) + case.setup + program.first + product * 2 + program.then + last
    text = allocated(body.replace("{fix}", program.fixed if fixed else program.broken))
    if program.ending:
        assert program.ending[0] in text
        text = text.replace(*program.ending)
    size = case.image.size
    return run(text, per_thread=32, given=case.image.tobytes(), shared=size, races=races)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_race_on_tensor_memory_is_found_and_named(name: str) -> None:
    program = PROGRAMS[name]
    result = ran(program, fixed=False).result
    found = [each for each in result.findings if each.rule == program.rule and each.severity == "error"]
    assert found, result
    assert any(program.words in each.message for each in found), [each.message for each in found]
    assert all(each.line and each.hint for each in found)


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_found_in_its_repaired_twin(name: str) -> None:
    result = ran(PROGRAMS[name], fixed=True).result
    assert (result.error, result.unsupported, result.findings) == ("", "", ())


@pytest.mark.parametrize("name", [name for name, program in PROGRAMS.items() if not program.also])
def test_units_alone_do_not_tell(name: str) -> None:
    """What the threads are needed for; if the other checks learn it, this says so."""
    assert not ran(PROGRAMS[name], fixed=False, races=False).result.findings


@pytest.mark.parametrize("arrive", ["release", "relaxed"])
def test_the_address_of_an_allocation_needs_a_barrier_that_releases(arrive: str) -> None:
    text = allocated("st.global.u32 [%d51], %r300;\n")
    barrier = f"have: barrier.cluster.arrive.{arrive}; barrier.cluster.wait;"
    assert "have: bar.sync 0;" in text
    ran = run(text.replace("have: bar.sync 0;", barrier), grid=2, cluster=2, races=True)
    found = [(each.rule, "tcgen05.alloc" in each.message) for each in ran.result.findings]
    assert found == ([] if arrive == "release" else [("race", True)])
