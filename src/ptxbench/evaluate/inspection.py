"""The inspect stage (E6): static opcode families of a built library's kernels; what executed is `profiler`'s work."""

from __future__ import annotations

import time
from pathlib import Path

from ptxbench.sass.families import count
from ptxbench.schema.stages import InspectStage, Outcome
from ptxbench.schema.values import Target, ToolVersion
from ptxbench.settings import Settings
from ptxbench.toolchain.disassemble import disassemble
from ptxbench.toolchain.toolkit import find_toolkit


def inspect_code(library: Path, target: Target, settings: Settings) -> InspectStage:
    """Disassemble `library` and count the opcode families of `target` in each kernel.

    Raises:
        ToolError: The disassembler is missing or fails.
    """
    started = time.time()
    toolkit = find_toolkit(settings)
    kernels = count(disassemble(library, toolkit, settings), target)
    totals: dict[str, int] = {}
    for kernel in kernels:
        for family, number in kernel.families.items():
            totals[family] = totals.get(family, 0) + number
    return InspectStage(
        outcome=Outcome.PASSED,
        started=started,
        seconds=time.time() - started,
        instrument=ToolVersion(name="nvdisasm", version=toolkit.version, path=str(toolkit.nvdisasm)),
        kernels=kernels,
        families=totals,
    )
