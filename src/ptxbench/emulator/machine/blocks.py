"""A block that runs: its functions, made when needed, what follows it, how often it ran; runs nothing itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ptxbench.emulator.codegen.block import BlockCode, BlockFunction
from ptxbench.emulator.machine.unit import Answer, Mask, Unit

End = Callable[[Unit, Mask | None, Answer], int]


@dataclass
class RunBlock:
    """A block that runs, and how often it has.

    Attributes:
        warps: Executions, counted by warps with an active lane.
        threads: Executions, counted by active lanes.
        slots: Registers that it uses outside of asynchronous products.
        written: Those of them that it writes.
        constants: How many constants a unit must have for it.
    """

    index: int
    makers: BlockCode
    end: End | None
    next: int
    length: int
    slots: frozenset[int]
    written: frozenset[int]
    constants: int
    line: int
    warps: int = 0
    threads: int = 0
    full: BlockFunction | None = None
    masked: BlockFunction | None = None

    def function(self, mask: Mask | None) -> BlockFunction:
        """The function for all lanes or for some, made on first use."""
        if mask is None:
            self.full = self.makers.full()
            return self.full
        self.masked = self.makers.masked()
        return self.masked
