"""What a draw's record means: which reason a failed output has, and the check stage of all draws; compares no numbers.

Used by the judge of a GPU and by the emulator alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from ptxbench.schema.stages import CheckStage, DrawCheck, Outcome, OutputCheck, Reason
from ptxbench.schema.values import Layer

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


class Judged(Protocol):
    """One call's result."""

    @property
    def record(self) -> DrawCheck | None:
        """What was compared; None where the call did not return."""

    @property
    def reason(self) -> Reason | None:
        """Why it is not right."""


@dataclass(frozen=True)
class Untouched:
    """How much of an output still holds the poison."""

    elements: int
    rows: int
    of_rows: int


def stage(results: Sequence[Judged], reference: str) -> CheckStage:
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


def generalises(stage_result: CheckStage, results: Sequence[Judged]) -> CheckStage:
    """The check with the neighbours' draws and what they say."""
    reason = next((result.reason for result in results if result.reason), None)
    records = tuple(result.record for result in results if result.record)
    answer = Layer.unavailable("no neighbour workloads were given")
    if results:
        answer = Layer.yes_or_no(reason is None, reason.message if reason else None)
    return stage_result.model_copy(update={"draws": stage_result.draws + records, "generalises": answer})


def why_not_right(record: DrawCheck, changed: tuple[str, ...], untouched: Callable[[str], Untouched]) -> Reason | None:
    """Why one call's result does not pass, the most telling reason first; None when it does.

    Args:
        record: What was compared.
        changed: Names of the inputs that are not what they were.
        untouched: How much of an output was never written.
    """
    return _memory_reason(record.guards_intact, changed) or _wrong_reason(record, untouched) or _imprecise(record)


def _wrong_reason(record: DrawCheck, untouched: Callable[[str], Untouched]) -> Reason | None:
    """Why the first output that misses the published rule does so: never written, not finite, or off.

    An output that keeps the contract is right even so: between two honest bf16 results a few elements in a hundred
    million differ by more than the published rule allows. The verdict still says that they do.
    """
    bad = next((output for output in record.outputs if not output.published and not output.contract), None)
    if bad is None:
        return None
    kept = untouched(bad.name)
    if kept.elements:
        where = f"{bad.name} was not written in {kept.rows} of {kept.of_rows} rows ({kept.elements} elements)."
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
