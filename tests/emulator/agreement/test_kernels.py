"""The repository's Hopper kernels on the emulator against an H200's outputs, and the fate of the seeded bugs there."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.agreement import answers, cases, kernels
from tests.emulator.agreement.cases import Array, Case

from ptxbench.emulator.launch import Policy

DOCUMENT = answers.load("kernels")
CASES = tuple(cases.cases())
EXACT = Policy(("late",), "exact")
ULPS = 1
"""Between 16-bit outputs that went through `ex2.approx` here and on the device, where both are not tiny."""


def device(case: Case) -> dict[str, dict[str, str]]:
    """The outputs that are stored."""
    assert DOCUMENT is not None
    made: dict[str, dict[str, str]] = DOCUMENT["kernels"][case.name]["outputs"]
    return made


def elements(array: Array) -> Array:
    """Those that are stored."""
    return array.reshape(-1)[cases.places(array.size)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_kernel_gives_what_the_device_gave(case: Case) -> None:
    ran = kernels.run(case, EXACT)
    assert ran.error == ""
    if DOCUMENT is None:
        return
    for name, array in ran.outputs.items():
        stored = device(case)[name]
        if case.exact:
            assert cases.stored(array) == stored, f"{case.name} {name}: not the device's bits"
        else:
            there = np.frombuffer(bytes.fromhex(stored["elements"]), array.dtype)
            assert distance(elements(array), there) <= 2.0**-8, f"{case.name} {name}"


def distance(mine: Array, there: Array) -> float:
    """The greatest difference over the greatest value."""
    x, y = mine.astype(np.float64), there.astype(np.float64)
    return float(np.abs(x - y).max() / np.abs(y).max())


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
