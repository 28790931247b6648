"""What documents leave open, asked of an H200: the emulator runs the same programs and must answer the same.

tests/gpu/probes has the programs, tests/data/emulator/probes.json the answers. Approximations may differ within their
bounds; a few differences that are known stand in a table here, and must be no fewer and no more.
"""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Iterator

import numpy as np
import pytest
from tests.emulator.evidence.bench import ROOT
from tests.emulator.evidence.probing import emulated
from tests.gpu.probes.accesses import accesses
from tests.gpu.probes.atomics import atomics
from tests.gpu.probes.copies import copies
from tests.gpu.probes.probe import Probe, digest, unpacked
from tests.gpu.probes.products import products
from tests.gpu.probes.proxies import proxies
from tests.gpu.probes.scalars import scalars
from tests.gpu.probes.warpgroups import warpgroups

from ptxbench.emulator.errors import Unsupported

ANSWERS: dict[str, dict[str, str]] = json.loads((ROOT / "tests" / "data" / "emulator" / "probes.json").read_text())
TOPICS = (accesses, atomics, copies, products, warpgroups, scalars)
PARTS = 24

KNOWN = {
    r"m8n8k4\.col\.row\.f16\.f16": "made of other instructions; one result in a thousand is rounded otherwise",
}
"""Names of probes (patterns) that the emulator answers otherwise, and why."""


@functools.cache
def recorded() -> tuple[Probe, ...]:
    """All probes with an answer, each once; of the 1,550 comparisons, which are alike, one in three."""
    made = {probe.name: probe for topic in TOPICS for probe in topic() if probe.name in ANSWERS}
    compared = [name for name in made if name.startswith("scalar: set")]
    left_out = set(compared) - set(compared[::3])
    return tuple(probe for name, probe in made.items() if name not in left_out)


def emulator_answer(probe: Probe) -> tuple[str, bytes]:
    """Error and output, `unsupported` for a form that is lacking."""
    try:
        error, out, result = emulated(probe)
    except Unsupported:
        return "unsupported", b""
    return ("unsupported" if result is not None and result.unsupported else error), out


# Greatest difference to the device of results that are numbers: in units in the last place, or absolute.
BOUNDS = {
    **{"ex2.approx": (4, 0.0), "lg2.approx": (5, 2.0**-21), "rcp.approx": (2, 0.0), "rsqrt.approx": (3, 0.0)},
    **{
        "sqrt.approx": (2, 0.0),
        "tanh.approx": (1, 2.0**-15.9),
        "sin.approx": (1, 2.0**-13),
        "cos.approx": (1, 2.0**-13),
    },
    **{"div.approx": (4, 0.0), "div.full": (4, 0.0)},
}
DTYPES = {"f16": (np.uint16, 10), "bf16": (np.uint16, 7), "f32": (np.uint32, 23), "f64": (np.uint64, 52)}


def approximate(name: str) -> tuple[int, float] | None:
    """The bound of an instruction that need not be exact."""
    found = re.match(r"scalar: (\w+\.\w+)", name)
    return BOUNDS.get(found[1]) if found else None


def near(name: str, made: bytes, device: bytes, bound: tuple[int, float]) -> bool:
    """Whether two outputs of an approximation are the same special values and close numbers."""
    kind = re.findall(r"\.(f16|bf16|f32|f64)", name)[0]
    width, mantissa = DTYPES[kind]
    a, b = (np.frombuffer(each, "<u8") for each in (made, device))
    if "x2" in name:
        a, b = (np.concatenate([each & np.uint64(0xFFFF), each >> np.uint64(16)]) for each in (a, b))
    ulp = np.abs(a.astype(width).astype(np.float64) - b.astype(width).astype(np.float64))
    ulp /= 2.0 ** (30 if "approx.ftz.f64" in name or "approx.f64" in name else 0)
    return bool(((ulp <= bound[0]) | (_distance(a, b, width, mantissa) <= bound[1])).all())


def _distance(a: np.ndarray, b: np.ndarray, width: type, mantissa: int) -> np.ndarray:
    shift = np.uint32(16 if mantissa == 7 else 0)
    if mantissa in (7, 23):
        x, y = ((each.astype(np.uint32) << shift).view(np.float32).astype(np.float64) for each in (a, b))
    else:
        x, y = (
            each.astype(width).view(np.float16 if mantissa == 10 else np.float64).astype(np.float64) for each in (a, b)
        )
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.abs(x - y), nan=math.inf)


def agrees(probe: Probe) -> bool:
    """Whether the emulator answers as the device did."""
    answer, (error, out) = ANSWERS[probe.name], emulator_answer(probe)
    if error or answer["error"]:
        return error == answer["error"]
    bound, device, shown = approximate(probe.name), unpacked(answer["out"]), probe.answer(out)
    if device is None:
        return digest(shown) == answer["out"]
    return shown == device if bound is None else near(probe.name, shown, device, bound)


def known(name: str) -> bool:
    return any(re.search(pattern, name) for pattern in KNOWN)


def _part(number: int) -> Iterator[Probe]:
    return iter(recorded()[number::PARTS])


@pytest.mark.parametrize("number", range(PARTS))
def test_the_emulator_answers_as_the_hardware(number: int) -> None:
    others = {probe.name for probe in _part(number) if not agrees(probe)}
    assert others == {probe.name for probe in _part(number) if known(probe.name)}


def test_no_probe_is_without_an_answer() -> None:
    every = {probe.name for topic in TOPICS for probe in topic()} | {probe.name for probe in proxies()}
    assert every == set(ANSWERS)
    assert len(every) > 3700


def test_a_proxy_fence_on_either_side_was_enough_in_every_round() -> None:
    """Without one up to nine words in ten were wrong, of tens of thousands of millions."""
    wrong = {name: unpacked(answer["out"]) for name, answer in ANSWERS.items() if name.startswith("race")}
    assert len(wrong) == 12
    for name, count in wrong.items():
        words = int(name.rpartition(" ")[2])
        assert count is not None
        share = int.from_bytes(count, "little") / words
        assert (share > 0.1) == ("nobody" in name), (name, share)
        assert (share == 0) == ("nobody" not in name), (name, share)
