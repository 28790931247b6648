"""Whether an answer of the emulator is the device's: bit for bit, or for approximations within the measured error."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from tests.emulator.agreement import answers
from tests.emulator.agreement.emulated import Answer
from tests.emulator.agreement.program import Program

_CODES = {
    "CUDA_ERROR_LAUNCH_FAILED": "cudaErrorLaunchFailure",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "cudaErrorIllegalInstruction",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "cudaErrorIllegalAddress",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "cudaErrorMisalignedAddress",
}
_DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
_RELATIVE = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-21, "f64": 2.0**-20}
"""Least distance that is allowed, from the scans of all inputs on an H200."""
_ABSOLUTE = {"tanh": 2.0**-16, "sin": 2.0**-20, "cos": 2.0**-20}


@dataclass(frozen=True)
class Outcome:
    """One part's comparison.

    Attributes:
        kind: `equal`, `near`, `different`, `ran` (nothing to compare with), `refused` or `unstable`.
        detail: What differs.
    """

    kind: str
    detail: str = ""


def near(mine: bytes, device: bytes, operation: str, type_: str) -> NDArray[np.bool_]:
    """Which results are near enough; special values must be the same, and so must what lies between the results."""
    type_ = type_.removesuffix("x2")
    dtype = np.dtype(_DTYPES[type_])
    a, b = np.frombuffer(mine, dtype), np.frombuffer(device, dtype)
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float64), b.astype(np.float64)
        allowed = np.maximum(np.abs(y) * _RELATIVE[type_], _ABSOLUTE.get(operation, 0.0))
        return (a.view(f"u{dtype.itemsize}") == b.view(f"u{dtype.itemsize}")) | (np.abs(x - y) <= allowed)


def outcomes(program: Program, answer: Answer, document: dict[str, dict[str, dict[str, str]]]) -> list[Outcome]:
    """One for each part, given the stored document."""
    entries = document["answers"].get(program.form, {})
    made = []
    for place, part in enumerate(program.parts):
        entry = entries.get(part.mnemonic, "")
        if not entry:
            made.append(Outcome("ran"))
        elif entry.startswith("refused") or entry == "unstable":
            made.append(Outcome(entry.split(":")[0], entry))
        elif not answers.is_digest(entry):
            wanted = "deadlock" if entry == "hangs" else _CODES.get(entry.removeprefix("error: "), entry)
            same = answer.error.startswith(wanted)
            made.append(Outcome("equal" if same else "different", f"{entry}; here {answer.error or 'no error'}"))
        elif place >= len(answer.parts) or answer.error:
            made.append(Outcome("different", f"an answer; here {answer.error}"))
        else:
            made.append(_bits(program, answer.parts[place], entry, document))
    return made


def _bits(program: Program, mine: bytes, key: str, document: dict[str, dict[str, dict[str, str]]]) -> Outcome:
    if answers.digest(mine) == key:
        return Outcome("equal")
    if program.bound != "exact":
        _, operation, type_ = program.bound.split(" ")
        good = near(mine, bytes.fromhex(str(document["whole"][key])), operation, type_)
        places = np.flatnonzero(~good)[:8].tolist()
        return Outcome("near") if good.all() else Outcome("different", f"{(~good).sum()} results, at {places}")
    return Outcome("different", f"sample {document['samples'][key]}; here {answers.sample(mine)}")
