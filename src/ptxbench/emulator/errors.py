"""What the emulator raises: text it cannot read, forms it lacks, and what CUDA would report; nothing here prints.

A kernel's own fault (`Trap`) and a form the emulator lacks (`Unsupported`) are raised inside the emulator and become
stage results at its border; only there is decided what they mean for a verdict.
"""

from __future__ import annotations

from ptxbench.errors import PtxbenchError


class PtxError(PtxbenchError):
    """The text is not PTX, uses a name that nothing declares, or is larger than the limits allow.

    Attributes:
        line: Line of the PTX text, from 1.
        message: What is wrong there, without the line.
    """

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"PTX line {line}: {message}")
        self.line = line
        self.message = message


class Unsupported(PtxbenchError):  # noqa: N818  (a state of the emulator, not a mistake of anybody)
    """An instruction form that the emulator does not have; never a wrong number instead.

    Attributes:
        opcode: The whole mnemonic, such as `tex.2d.v4.f32.f32`.
        line: Line of the PTX text, from 1.
    """

    def __init__(self, opcode: str, line: int, reason: str = "") -> None:
        super().__init__(f"unsupported: {opcode} at PTX line {line}{f' ({reason})' if reason else ''}")
        self.opcode = opcode
        self.line = line
        self.reason = reason


class Trap(PtxbenchError):  # noqa: N818  (the device's word for it)
    """The kernel did what makes a device stop it.

    Attributes:
        error: CUDA's name for it, such as `cudaErrorIllegalAddress`.
        line: Line of the PTX text, from 1.
        reason: What happened, with addresses and lanes.
    """

    def __init__(self, error: str, line: int, reason: str) -> None:
        super().__init__(f"{error} at PTX line {line}: {reason}")
        self.error = error
        self.line = line
        self.reason = reason


class Fault(PtxbenchError):  # noqa: N818  (becomes a Trap)
    """What a part that knows no lines reports in place of a `Trap`; whoever runs the instruction adds its line.

    Attributes:
        error: CUDA's name for it, such as `cudaErrorIllegalInstruction`.
        reason: What happened.
    """

    def __init__(self, error: str, reason: str) -> None:
        super().__init__(f"{error}: {reason}")
        self.error = error
        self.reason = reason

    def at(self, line: int) -> Trap:
        """The trap of the instruction in this line of the PTX text."""
        return Trap(self.error, line, self.reason)
