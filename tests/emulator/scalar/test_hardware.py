"""What an H200 answered: edge cases recorded once, compared bit for bit (approximations: within their error bounds)."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RECORDED = json.loads((Path(__file__).parent / "h200.json").read_text("utf-8"))


def _columns(rows: list[list[str]]) -> list[list[int]]:
    return [[int(cell, 16) for cell in column] for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("case", RECORDED["exact"], ids=lambda case: case["instruction"])
def test_results_are_the_devices_bits(case: dict[str, Any], execute: Callable[..., Any]) -> None:
    *sources, expected = _columns(case["rows"])
    assert [hex(each) for each in execute(case["instruction"], *sources)] == [hex(each) for each in expected]


def _f32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def _near(mine: int, device: int, absolute: float) -> bool:
    """Equal bits, or two numbers that differ by a few units in the last place."""
    a, b = _f32(mine), _f32(device)
    special = device & 0x7FFFFFFF in (0, 0x7F800000) or math.isnan(a) or math.isnan(b)
    return mine == device if special else abs(a - b) <= max(abs(b) * 2.0**-21, absolute)


@pytest.mark.parametrize("case", RECORDED["approximate"], ids=lambda case: case["instruction"])
def test_approximations_have_the_devices_special_values(case: dict[str, Any], execute: Callable[..., Any]) -> None:
    """Ordinary values within 4 ulp, tanh within 2^-16, sine and cosine within 2^-20 (far from zero 2^-14)."""
    name = case["instruction"]
    absolute = 2.0**-16 if name.startswith("tanh") else 2.0**-20 if name.startswith(("sin", "cos")) else 2.0**-149
    *sources, expected = _columns(case["rows"])
    for row, mine, device in zip(case["rows"], execute(name, *sources), expected, strict=True):
        far = name.startswith(("sin", "cos")) and 6.3 < abs(_f32(int(row[0], 16))) < float("inf")
        assert _near(mine, device, 2.0**-14 if far else absolute), (row, hex(mine))


@pytest.mark.parametrize("case", RECORDED["shuffles"], ids=lambda case: f"{case['mode']}-{case['b'][0]}-{case['c']:#x}")
def test_shuffles_reach_the_devices_lanes(case: dict[str, Any], execute: Callable[..., Any]) -> None:
    lanes = list(range(32))
    text = f"shfl.sync.{case['mode']}.b32 %r1|%p1,%r2,%r3,%r4,%r5;"
    values, inside = execute(text, lanes, case["b"], [case["c"]] * 32, [0xFFFFFFFF] * 32, active=[True] * 32)
    assert values == case["values"]
    assert sum(bit << lane for lane, bit in enumerate(inside)) == int(case["pred"], 16)
