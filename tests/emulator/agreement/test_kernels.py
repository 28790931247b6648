"""The repository's Hopper kernels on the emulator against an H200's outputs, and the fate of the seeded bugs there."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.agreement import answers, cases, kernels
from tests.emulator.agreement.cases import Array, Case

from ptxbench.emulator.launch import Policy

DOCUMENT = answers.load("kernels")
CASES = tuple(cases.cases())
EXACT = Policy(("late",), "exact")
ALLOWED_TO_LAG = 2


def device(case: Case) -> dict[str, dict[str, str]]:
    """The outputs that are stored; a kernel that has changed since has none."""
    there = DOCUMENT["kernels"].get(case.name, {}) if DOCUMENT else {}
    made: dict[str, dict[str, str]] = there.get("outputs", {}) if there.get("source") == case.source_digest else {}
    return made


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_kernel_gives_the_devices_bits(case: Case) -> None:
    ran = kernels.run(case, EXACT)
    assert ran.error == ""
    for name, stored in device(case).items():
        mine = ran.outputs[name].reshape(-1)[cases.places(ran.outputs[name].size)]
        there = np.frombuffer(bytes.fromhex(stored["elements"]), mine.dtype)
        assert units(mine, there).max() == 0, f"{name}: {np.count_nonzero(units(mine, there))} of {mine.size}"
        assert cases.stored(ran.outputs[name]) == stored


def units(mine: Array, there: Array) -> NDArray[np.int64]:
    """Distances in units of the last place."""
    unsigned = f"u{mine.dtype.itemsize}"
    return np.abs(mine.view(unsigned).astype(np.int64) - there.view(unsigned).astype(np.int64))


def test_the_answers_are_those_of_todays_kernels() -> None:
    """Few may have changed since they were recorded: `tests/gpu/record_emulator.py --only kernels` makes it none."""
    if DOCUMENT is not None:
        assert sum(bool(device(case)) for case in CASES) >= len(CASES) - ALLOWED_TO_LAG


@pytest.mark.parametrize("switch", cases.BUGS)
def test_what_a_seeded_bug_did_on_the_device_shows_here(switch: str) -> None:
    """A hang or a fault there is an error here; where luck made the numbers right there, findings are allowed."""
    case = cases.bug(switch)
    ran = kernels.run(case, Policy(("late", "eager"), "exact", others=0, limit=1_000_000))
    found = {each.rule for result in ran.results for each in result.findings if each.severity == "error"}
    if DOCUMENT is None:
        return
    there = DOCUMENT["kernels"][case.name]
    if "error" in there:
        assert ran.error or found
    elif there["outputs"] != DOCUMENT["kernels"]["bugs/gemm"]["outputs"]:
        assert found
