"""Calls a candidate on secret draws and says whether its numbers are right (E7, E16-E19); reads no clock.

A candidate's fault becomes a reason with a code, never an exception; an exception means the judge itself is at fault.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ptxbench.evaluate.child.arena import Slot, View, untouched
from ptxbench.evaluate.child.draws import Draw
from ptxbench.evaluate.child.faults import CandidateFault
from ptxbench.evaluate.child.tensors import TORCH, Tensors
from ptxbench.evaluate.outputs import Expectation, check_output
from ptxbench.evaluate.rules import Layout
from ptxbench.schema.problem import Problem
from ptxbench.schema.stages import CheckStage, DrawCheck, Outcome, OutputCheck, Reason
from ptxbench.schema.values import Layer

Enter = Callable[[View], object]
"""Calls the candidate on a view's arguments; raises `CandidateFault`."""

HINTS = {
    "hang": "A barrier is probably waited for with the wrong phase, or fewer bytes or arrivals come than it expects.",
    "crashed": "The host code of `run` ended its process; check pointers, sizes and the launch code.",
    "exited": "The host code of `run` ended its process; return from `run` instead.",
    "raised": "Fix what the error message says; `run` must accept every shape of the problem.",
    "cuda_error": "Run the sanitize stage (memcheck) to find the access or launch at fault.",
    "wrong_numbers": "Compare a small case with the reference, beginning where the failures lie.",
    "imprecise": "Accumulate in float32 and keep 16-bit operands; the published tolerance alone would let this pass.",
    "nan_output": "Look for uninitialised shared memory or accumulators, 0/0 or inf-inf, and missing masks.",
    "missing_output": "The grid or the epilogue does not cover these rows; nothing was ever written there.",
    "changed_input": "Inputs are read-only; use a workspace of your own.",
    "out_of_bounds_write": "A store runs past the tensor; check the bounds of ragged tiles and tensor maps.",
    "hang_at_load": "A static constructor does not return; do no work while the library loads.",
    "load_failed": "Link nothing but the CUDA runtime, and export `run` with TVM_FFI_DLL_EXPORT_TYPED_FUNC.",
    "no_symbol": "Export the entry point with TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, ...).",
    "forged_reply": "Only the return of `run` may answer the judge.",
    "oversized_reply": "Only the return of `run` may answer the judge.",
}
CHEATS = frozenset({"forged_reply", "oversized_reply"})
"""Faults that no mistake explains."""


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
    reason = _memory_reason(intact, changed) or wrong_reason(record, got) or _imprecise(record)
    return Checked(record, reason, got)


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


def stage(results: list[Checked], reference: str) -> CheckStage:
    """The check's result from its draws; `generalises` is added once the neighbours have run."""
    reason = next((result.reason for result in results if result.reason), None)
    records = tuple(result.record for result in results if result.record)
    return CheckStage(
        outcome=outcome_of(reason),
        reason=reason,
        draws=records,
        published=_published(reason, records),
        published_reference=reference,
        contract=_contract(reason, records),
    )


def outcome_of(reason: Reason | None) -> Outcome:
    """What a reason means for the stage."""
    if reason is None:
        return Outcome.PASSED
    return Outcome.CHEATED if reason.code in CHEATS else Outcome.FAILED


def generalises(stage_result: CheckStage, results: list[Checked]) -> CheckStage:
    """The check with the neighbours' draws and what they say."""
    reason = next((result.reason for result in results if result.reason), None)
    records = tuple(result.record for result in results if result.record)
    answer = Layer.unavailable("no neighbour workloads were given")
    if results:
        answer = Layer.yes_or_no(reason is None, reason.message if reason else None)
    return stage_result.model_copy(update={"draws": stage_result.draws + records, "generalises": answer})


def fault_reason(fault: CandidateFault) -> Reason:
    """A fault of the candidate's process as a reason."""
    return Reason(code=fault.code, message=fault.message, hint=HINTS.get(fault.code, ""))


def wrong_reason(record: DrawCheck, got: Tensors) -> Reason | None:
    """Why the first output that misses the published rule does so: never written, not finite, or off.

    An output that keeps the contract is right even so: between two honest bf16 results a few elements in a hundred
    million differ by more than the published rule allows. The verdict still says that they do.
    """
    bad = next((output for output in record.outputs if not output.published and not output.contract), None)
    if bad is None:
        return None
    elements, rows = untouched(got[bad.name])
    if elements:
        layout = Layout.of(tuple(got[bad.name].shape))
        where = f"{bad.name} was not written in {rows} of {layout.heads * layout.rows} rows ({elements} elements)."
        return _reason("missing_output", where)
    share = f"{bad.failing} of {bad.total} elements of {bad.name} ({100 * bad.failing / bad.total:.3g} %)"
    where = f"{share} fail on {record.recipe} inputs: {bad.pattern}."
    if bad.pattern.startswith("NaN"):
        return _reason("nan_output", where)
    return _reason("wrong_numbers", f"{where} {_worst(bad)}")


def _worst(output: OutputCheck) -> str:
    worst = output.worst
    if worst is None:
        return ""
    index = ", ".join(str(i) for i in worst.index)
    return f"Worst: {output.name}[{index}] is {worst.got:.6g}, expected {worst.expected:.6g}."


def _memory_reason(intact: bool, changed: tuple[str, ...]) -> Reason | None:
    if not intact:
        return _reason("out_of_bounds_write", "The kernel wrote outside its tensors.")
    if changed:
        return _reason("changed_input", f"The kernel changed its input {' and '.join(changed)}.")
    return None


def _imprecise(record: DrawCheck) -> Reason | None:
    bad = next((output for output in record.outputs if output.contract is False), None)
    if bad is None or bad.block is None:
        return None
    where = f", in {bad.pattern}" if bad.pattern else ""
    return _reason(
        "imprecise",
        f"{bad.name} is less precise than the library on {record.recipe} inputs{where}: block {bad.block.block} has an "
        f"RMS-relative error of {bad.block.rms_relative_error:.3g}, allowed are {bad.block.bound:.3g}.",
    )


def _published(reason: Reason | None, records: tuple[DrawCheck, ...]) -> Layer:
    """The published rule's answer, on inputs as published: N(0, 1)."""
    if reason is not None and reason.code != "imprecise":
        return Layer.yes_or_no(False, reason.message)
    outputs = [output for record in records if record.recipe == "normal" for output in record.outputs]
    bad = next((output for output in outputs if not output.published), None)
    if bad is None:
        return Layer.yes_or_no(True)
    return Layer.yes_or_no(False, f"{bad.failing} of {bad.total} elements of {bad.name} fail. {_worst(bad)}")


def _contract(reason: Reason | None, records: tuple[DrawCheck, ...]) -> Layer:
    if reason is not None:
        return Layer.yes_or_no(False, reason.message)
    if any(output.contract is None for record in records for output in record.outputs):
        return Layer.unavailable("the library is missing here and its errors are not stored for this workload")
    return Layer.yes_or_no(True)


def _reason(code: str, message: str) -> Reason:
    return Reason(code=code, message=message, hint=HINTS[code])
