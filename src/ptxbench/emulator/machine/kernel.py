"""A kernel within one launch: its blocks made on first use, counts, limits, and what all CTAs share; no schedule."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxbench.emulator.codegen.compile import Compiled
from ptxbench.emulator.codegen.op import dtype_of
from ptxbench.emulator.errors import Fault, Trap
from ptxbench.emulator.machine.blocks import RunBlock
from ptxbench.emulator.machine.cta import USER_BASE, Constants, Place, Spec
from ptxbench.emulator.machine.dependence import HeldBack
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.machine.spaces import RANK_SHIFT, GlobalSpace
from ptxbench.emulator.machine.unit import Lanes, Mask, Unit
from ptxbench.emulator.ptx.ir import Space

if TYPE_CHECKING:
    from ptxbench.emulator.machine.cluster import Cluster


_LOOK = 20_000
"""Warp instructions between two looks at the limits."""


@dataclass(frozen=True)
class Shape:
    """What a launch fixes.

    Attributes:
        shared_bytes: Of a CTA, static and dynamic.
        shared_symbols: Offset of each shared variable from the start of shared memory.
        parameters: The parameter block.
        registers: Registers per thread at launch; 0: not known.
        limit: Greatest number of warp instructions.
        numerics: `fast` or `exact`.
        seconds: Greatest time of one run on this machine; 0: no limit.
    """

    grid: Place
    block: Place
    cluster: Place
    dynamic_shared: int
    shared_bytes: int
    shared_symbols: dict[str, int]
    parameters: bytes
    explicit_cluster: bool
    registers: int
    limit: int
    numerics: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Done:
    """What a process counted: warps and threads of each block, guarded threads, bytes of copies by PTX line."""

    blocks: dict[int, tuple[int, int]]
    guarded: dict[int, int]
    moved: dict[int, int]


class Kernel:
    """One launch of a compiled kernel.

    Attributes:
        collective: Blocks with instructions for whole warps (32) or warpgroups (128).
        moved: Bytes of asynchronous copies by PTX line.
        guarded: Per guarded instruction, by its number in the flat program, threads whose guard was true.
        gathers: Whether an observer adds to something that lives longer than its cluster.
        held: What it does not see yet of the kernel in front of it; None when that one ended before.
    """

    def __init__(self, compiled: Compiled, shape: Shape, memory: DeviceMemory, symbols: dict[str, int]) -> None:
        self.compiled = compiled
        self.program = compiled.program
        self.types = compiled.program.types
        self.collective, self.gathering = compiled.collective, compiled.gathering
        self.shape = shape
        self.grid, self.block, self.cluster = shape.grid, shape.block, shape.cluster
        self.dynamic_shared, self.shared_bytes = shape.dynamic_shared, shape.shared_bytes
        self.explicit_cluster = shape.explicit_cluster
        self.parameter_bytes = shape.parameters
        self.memory = memory
        self.global_space = GlobalSpace(memory)
        self.symbols = symbols
        self.threads = shape.block[0] * shape.block[1] * shape.block[2]
        self.unit_lanes = compiled.unit_lanes(self.threads)
        self.units = -(-self.threads // self.unit_lanes)
        self.spent = 0
        self._next_look = min(_LOOK, shape.limit + 1)
        self._begun = time.monotonic()
        self.guarded: dict[int, int] = {}
        self.moved: dict[int, int] = {}
        self.gathers = False
        self.held: HeldBack | None = None
        self.constants = Constants(self)
        self.cancel: Callable[[], Place | None] = lambda: None
        self.observers_of: Callable[[Cluster], list[Any]] = lambda _cluster: []
        self._blocks: list[RunBlock | None] = [None] * len(compiled.program.blocks)
        self._blank: dict[int, list[Lanes]] = {}
        self._zeros: dict[tuple[str, int], Lanes] = {}

    @property
    def specs(self) -> list[Spec]:
        """The constants that units provide."""
        return self.compiled.constants.specs

    def code(self, pc: int) -> RunBlock:
        """The block with this number.

        Raises:
            Unsupported: It has an instruction that the emulator lacks.
        """
        found = self._blocks[pc]
        if found is None:
            found = self._blocks[pc] = self.compiled.block(pc)
        return found

    def executed(self) -> list[RunBlock]:
        """The blocks that have run."""
        return [block for block in self._blocks if block is not None and block.warps]

    def forget(self) -> None:
        """Count from nothing again, but for the limit."""
        for block in self.executed():
            block.warps = block.threads = 0
        self.guarded, self.moved = {}, {}

    def done(self) -> Done:
        """What was counted."""
        return Done({each.index: (each.warps, each.threads) for each in self.executed()}, self.guarded, self.moved)

    def include(self, done: Done) -> None:
        """Count what others did."""
        for index, (warps, threads) in done.blocks.items():
            block = self.code(index)
            block.warps += warps
            block.threads += threads
            self.spent += warps * block.length
        for mine, others in ((self.guarded, done.guarded), (self.moved, done.moved)):
            for key, count in others.items():
                mine[key] = mine.get(key, 0) + count

    def first_line(self, pc: int) -> int:
        """The PTX line at which a block begins."""
        instructions = self.program.blocks[pc].instructions
        return instructions[0].line if instructions else 0

    def zero(self, type_: str, lanes: int) -> Lanes:
        """What a register holds before it is written."""
        found = self._zeros.get((type_, lanes))
        if found is None:
            dtype = dtype_of(type_)
            found = self._zeros[type_, lanes] = np.zeros((lanes, *dtype.shape), dtype.base)
        return found

    def blank(self, lanes: int) -> list[Lanes]:
        """Registers that nobody has written."""
        found = self._blank.get(lanes)
        if found is None:
            found = self._blank[lanes] = [self.zero(type_, lanes) for type_ in self.types]
        return found.copy()

    def tally(self, number: int, mask: Mask | None, guard: Mask) -> None:
        """Count the threads for which a guarded instruction counts."""
        active = guard if mask is None else mask & guard
        self.guarded[number] = self.guarded.get(number, 0) + int(np.count_nonzero(active))

    def spend(self, instructions: int) -> None:
        """Count warp instructions.

        Raises:
            Trap: The launch has more than its limit.
        """
        self.spent += instructions
        if self.spent < self._next_look:
            return
        self._next_look = min(self.spent + _LOOK, self.shape.limit + 1)
        if self.shape.seconds and time.monotonic() - self._begun > self.shape.seconds:
            raise Fault("cudaErrorLaunchTimeout", f"the kernel ran for more than {self.shape.seconds} seconds")
        if self.spent > self.shape.limit:
            raise Fault("cudaErrorLaunchTimeout", f"the kernel ran more than {self.shape.limit} warp instructions")

    def address_of(self, name: str, rank: int) -> int:
        """The address of a variable, in its own space; generic for constants and parameters."""
        if name in self.shape.shared_symbols:
            return USER_BASE + self.shape.shared_symbols[name] | rank << RANK_SHIFT
        if name in self.program.local:
            return self.program.local[name][0]
        if name in self.program.parameters:
            return self.symbols[""] + self.program.parameters[name]
        found = self.symbols.get(name)
        if found is None:
            raise Fault("cudaErrorInvalidDeviceFunction", f"the address of `{name}` is not known")
        return found

    def is_constant(self, addresses: Lanes) -> tuple[Lanes, Lanes]:
        """Which global addresses lie in constant variables, and which in the parameter block."""
        start = np.uint64(self.symbols[""])
        inside = (addresses - start) < max(len(self.parameter_bytes), 1)
        constant = np.zeros(addresses.size, np.bool_)
        for name, variable in self.program.module.variables.items():
            if variable.space is Space.CONST:
                constant |= (addresses - np.uint64(self.symbols[name])) < max(variable.size, 1)
        return constant, inside

    def trap(self, fault: Fault, unit: Unit, block: RunBlock) -> Trap:
        """A fault of a block, with the line of the instruction that ran."""
        line = unit.line or block.line
        return Trap(fault.error, line, f"{fault.reason} ({unit.cta.name()}, warps {unit.warp_numbers(None)})")
