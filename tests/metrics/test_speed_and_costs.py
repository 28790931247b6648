"""Speedups, work shares and costs, on outcomes that can be counted by hand."""

from __future__ import annotations

from tests.metrics.making import row

from ptxbench.metrics.cells import cells
from ptxbench.metrics.costs import costs
from ptxbench.metrics.speed import WorkShares, best_at_k, peak_at_k, typical_at_k, work_shares

FAST = [row("a", 0, ok=True, speedup=0.5), row("a", 1, ok=True, speedup=0.9), row("a", 2, ok=True, speedup=0.7)]
SLOW = [row("b", 0), row("b", 1, ok=True, speedup=0.2)]
NEVER = [row("c", 0), row("c", 1, speedup=None)]


def test_the_peak_is_the_best_of_all_and_the_typical_the_median_of_the_best() -> None:
    found = [FAST, SLOW, NEVER]
    assert [best_at_k(turns, 8) for turns in found] == [0.9, 0.2, 0.0]
    assert (peak_at_k(found, 8), peak_at_k(found, 1)) == (0.9, 0.5)
    assert (typical_at_k(found, 8), typical_at_k(found, 1)) == (0.2, 0.0)


def test_on_the_emulator_there_is_no_speedup_at_all_rather_than_0() -> None:
    emulated = [[row(ok=True, device="emulator")]]
    assert (peak_at_k(emulated, 8), typical_at_k(emulated, 8)) == (None, None)


def test_devices_are_never_pooled() -> None:
    rows = [row("a", device="NVIDIA H200"), row("b", device="NVIDIA H100 80GB HBM3"), row("c", device="emulator")]
    assert {cell.device for cell in cells(rows)} == {"NVIDIA H200", "NVIDIA H100 80GB HBM3", "emulator"}


def test_cells_sort_turns_that_come_in_any_order() -> None:
    (found,) = cells([row("a", 2), row("b", 0), row("a", 0), row("a", 1)]).values()
    assert [[each.turn for each in turns] for turns in found] == [[0, 1, 2], [0]]


def test_only_correct_turns_have_a_work_share() -> None:
    rows = [row(ok=True, work_share=1.0), row(ok=True, work_share=0.5), row(work_share=1.0), row(ok=True)]
    assert work_shares(rows) == WorkShares(2, 0.75, 1)
    assert work_shares([row(ok=True)]) is None


def test_costs_are_summed_over_all_turns_and_shared_by_different_kernels() -> None:
    rows = [
        row("a", 0, output_tokens=100, cost=0.5),
        row("a", 1, output_tokens=200, cost=0.25, ok=True, candidate="x"),
        row("a", 2, output_tokens=60, cost=0.25, ok=True, candidate="x"),
    ]
    found = costs(rows)
    assert (found.turns, found.correct_kernels, found.output_tokens, found.cost) == (3, 1, 360, 1.0)
    assert (found.per_turn(found.output_tokens), found.per_correct_kernel(found.cost)) == (120, 1.0)


def test_a_cost_that_no_turn_gave_is_unknown_and_not_0() -> None:
    found = costs([row()])
    assert (found.cost, found.input_tokens, found.per_turn(found.cost)) == (None, None, None)
    assert found.per_correct_kernel(1.0) is None
