"""What an H200 said of replayed calls beside live ones: the same outputs, launches and times; attacks gain nothing."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
MADE: dict[str, dict[str, Any]] = json.loads((ROOT / "data" / "gpu" / "replay.json").read_text())
EXPECTED: dict[str, dict[str, dict[str, Any]]] = tomllib.loads((ROOT / "kernels" / "expected.toml").read_text())
HONEST = [f"{group}.{name}" for group in ("reference", "simple") for name in EXPECTED[group]]
ATTACKS = [f"attacks.{name}" for name in EXPECTED["attacks"] if name != "runtime_compile"]  # it takes two minutes


def test_every_kernel_was_compared() -> None:
    assert set(MADE) == {*HONEST, *ATTACKS}


@pytest.mark.parametrize("label", HONEST)
def test_a_replayed_kernel_does_what_it_does_live(label: str) -> None:
    pair = MADE[label]["pair"]
    assert pair["host"] == "replayed"
    assert pair["outputs_equal"] or not pair["live_repeats"]
    assert pair["launches"]["live"] == pair["launches"]["replayed"]
    assert len(pair["launches"]["live"]) == 1
    assert pair["ratio"] == pytest.approx(1.0, abs=0.01)
    assert pair["own_machine_code"]


@pytest.mark.parametrize("label", HONEST)
def test_both_ways_lead_to_the_same_verdict(label: str) -> None:
    live, auto = (MADE[label]["verdicts"][mode] for mode in ("live", "auto"))
    assert (live["host"], auto["host"]) == ("live: as asked", "replayed")
    assert live["state"] == auto["state"]
    assert (live["check"], live["time"]) == (auto["check"], auto["time"]) == ("passed", "passed")
    assert live["launches"] == auto["launches"]


@pytest.mark.parametrize("label", ATTACKS)
def test_an_attack_is_stopped_or_gains_nothing(label: str) -> None:
    auto = MADE[label]["verdicts"]["auto"]
    refused = auto["state"] in ("failed", "cheated") or auto["check"] in ("failed", "cheated")
    doubted = auto["time"] in ("cheated", "inconclusive")
    honest = MADE["attacks.side_stream"]["verdicts"]["live"]["median_ms"]
    assert refused or doubted or auto["median_ms"] > 0.98 * honest


@pytest.mark.parametrize("name", ["forge_spans"])
def test_what_works_on_the_clock_side_has_nothing_to_work_on(name: str) -> None:
    assert MADE[f"attacks.{name}"]["verdicts"]["auto"]["host"] == "replayed"
