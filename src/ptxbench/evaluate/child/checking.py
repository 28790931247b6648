"""Calls a candidate on secret draws and says whether its numbers are right (E7, E16-E19); reads no clock.

A candidate's fault becomes a reason with a code, never an exception; an exception means the judge itself is at fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ptxbench.evaluate.checks import HINTS, Untouched, why_not_right
from ptxbench.evaluate.child.arena import Slot, View, untouched
from ptxbench.evaluate.child.draws import Draw
from ptxbench.evaluate.child.faults import CandidateFault
from ptxbench.evaluate.child.tensors import TORCH, Tensors
from ptxbench.evaluate.outputs import Expectation, check_output
from ptxbench.evaluate.rules import Layout
from ptxbench.schema.problem import Problem
from ptxbench.schema.stages import DrawCheck, Reason

Enter = Callable[[View], object]
"""Calls the candidate on a view's arguments; raises `CandidateFault`."""


@dataclass(frozen=True)
class Prepared:
    """A draw with what its outputs are held against, and the candidate's own outputs once they were found right."""

    draw: Draw
    expected: dict[str, Expectation]
    proven: Tensors | None = None


@dataclass(frozen=True)
class Checked:
    """One call's result: the record, the reason where it is not right, and what it wrote."""

    record: DrawCheck | None
    reason: Reason | None
    outputs: Tensors | None = None


def check_draw(enter: Enter, slot: Slot, problem: Problem, prepared: Prepared) -> Checked:
    """Call the candidate once on a draw and judge everything it left in memory."""
    draw = prepared.draw
    view = slot.view(problem, draw.workload)
    view.fill_guards()
    view.load(draw.inputs)
    try:
        enter(view)
    except CandidateFault as fault:
        return Checked(None, fault_reason(fault))
    got = view.take_outputs()
    intact = view.guards_intact()
    changed = view.inputs_changed(draw.inputs)
    record = DrawCheck(
        workload=draw.workload.uuid,
        recipe=draw.recipe,
        outputs=tuple(check_output(TORCH, name, got[name], held) for name, held in prepared.expected.items()),
        inputs_unchanged=not changed,
        guards_intact=intact,
    )
    return Checked(record, why_not_right(record, changed, lambda name: _kept(got[name])), got)


def _kept(output: torch.Tensor) -> Untouched:
    elements, rows = untouched(output)
    layout = Layout.of(tuple(output.shape))
    return Untouched(elements, rows, layout.heads * layout.rows)


def proven(draws: list[Prepared], results: list[Checked]) -> list[Prepared]:
    """The draws with the outputs that passed, so that a timed call can be held against them bit for bit."""
    return [replace(draw, proven=result.outputs) for draw, result in zip(draws, results, strict=True)]


def right(held: Expectation, name: str, got: torch.Tensor) -> bool:
    """Whether one output passes: by the contract where it is known, else by the published rule."""
    found = check_output(TORCH, name, got, held)
    return found.published if found.contract is None else found.contract


def check_all(enter: Enter, slots: list[Slot], problem: Problem, draws: list[Prepared]) -> list[Checked]:
    """Judge every draw, each in the next slot; stops after a fault that left no process to call."""
    results: list[Checked] = []
    for number, prepared in enumerate(draws):
        results.append(check_draw(enter, slots[number % len(slots)], problem, prepared))
        if results[-1].record is None:
            break
    return results


def fault_reason(fault: CandidateFault) -> Reason:
    """A fault of the candidate's process as a reason."""
    return Reason(code=fault.code, message=fault.message, hint=HINTS.get(fault.code, ""))
