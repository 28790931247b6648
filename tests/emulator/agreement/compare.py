"""Whether an answer of the emulator is the device's: bit for bit, or for approximations within the measured error."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from tests.emulator.agreement import answers
from tests.emulator.agreement.emulated import Answer
from tests.emulator.agreement.program import Program

Document = dict[str, dict[str, dict[str, str]]]
"""As `answers.py` describes it."""
_CODES = {
    "CUDA_ERROR_LAUNCH_FAILED": "cudaErrorLaunchFailure",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": "cudaErrorIllegalInstruction",
    "CUDA_ERROR_ILLEGAL_ADDRESS": "cudaErrorIllegalAddress",
    "CUDA_ERROR_MISALIGNED_ADDRESS": "cudaErrorMisalignedAddress",
}
_DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
_RELATIVE = {"f16": 2.0**-10, "bf16": 2.0**-7, "f32": 2.0**-21, "f64": 2.0**-20}
"""Least distance that is allowed, from the scans of all inputs on an H200."""
_ABSOLUTE = {"tanh": 2.0**-16, "sin": 2.0**-20, "cos": 2.0**-20, "lg2": 2.0**-21}
_SMALLEST = {"f16": 2.0**-24, "bf16": 2.0**-133, "f32": 2.0**-149, "f64": 2.0**-1074}


KNOWN = dict.fromkeys(
    ("ld.param::func.b128", "st.param.b128", "st.param::func.b128"),
    "ptxas 13.0 loses the upper half of a 128-bit parameter of a function, and stores 64 bits",
)
"""Mnemonics whose answers are the assembler's mistake, and which."""


@dataclass(frozen=True)
class Outcome:
    """One part's comparison.

    Attributes:
        kind: `equal`, `near`, `different`, `ran` (nothing to compare with), `refused`, `unstable` or
            `known` (a difference that is explained in `KNOWN`).
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
        allowed = np.maximum(np.abs(y) * _RELATIVE[type_], _ABSOLUTE.get(operation, _SMALLEST[type_]))
        return (a.view(f"u{dtype.itemsize}") == b.view(f"u{dtype.itemsize}")) | (np.abs(x - y) <= allowed)


def outcomes(program: Program, answer: Answer, document: Document) -> list[Outcome]:
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
            made.append(_bits(program, place, answer.parts[place], entry, document))
    return made


def _bits(program: Program, place: int, mine: bytes, key: str, document: Document) -> Outcome:
    mnemonic = program.parts[place].mnemonic
    if answers.digest(mine) == key:
        return Outcome("equal")
    if program.bound != "exact":
        _, operation, type_ = program.bound.split(" ")
        good = near(mine, bytes.fromhex(str(document["whole"][key])), operation, type_)
        places = np.flatnonzero(~good)[:8].tolist()
        return Outcome("near") if good.all() else Outcome("different", f"{(~good).sum()} results, at {places}")
    if mnemonic in KNOWN:
        return Outcome("known", KNOWN[mnemonic])
    return Outcome("different", f"sample {document['samples'][key]}; here {answers.sample(mine)}")
