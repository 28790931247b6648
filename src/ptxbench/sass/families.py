"""Opcode families per target, read from `families.toml`, and static counts of them; executed counts are `ncu`'s.

A family groups machine instructions by base opcode. Whether any of them matters for a problem is the problem's data.
"""

from __future__ import annotations

import functools
import tomllib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources

from ptxbench.schema.stages import KernelFamilies
from ptxbench.schema.values import Target
from ptxbench.toolchain.disassemble import KernelCode


@dataclass(frozen=True)
class FamilyTable:
    """The families of one target.

    Attributes:
        patterns: (family, pattern of base opcodes), in the order in which they are tried.
        portable: Tensor-core instructions that no single architecture owns.
        mma_counters: (hardware counter of operations, pattern of the opcodes whose work it counts).
    """

    patterns: tuple[tuple[str, str], ...]
    portable: str
    mma_counters: tuple[tuple[str, str], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Every family of the target, in the table's order."""
        return tuple(dict.fromkeys(family for family, _ in self.patterns))


@functools.cache
def table(target: Target) -> FamilyTable:
    """The families of `target`."""
    text = resources.files("ptxbench.sass").joinpath("families.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)[target.value]
    patterns = tuple((family, pattern) for family, globs in data["families"].items() for pattern in globs)
    counters = tuple(data["mma_counters"].items())
    return FamilyTable(patterns, data["portable"], counters)


def family_of(opcode: str, target: Target) -> str | None:
    """The family of an opcode as a disassembler prints it (`HGMMA.64x256x16.F32.BF16`); None for all others."""
    base = opcode.partition(".")[0]
    return next((family for family, pattern in table(target).patterns if fnmatchcase(base, pattern)), None)


def count(kernels: Iterable[KernelCode], target: Target) -> tuple[KernelFamilies, ...]:
    """Static counts per kernel: how many of its instructions belong to each family; families without any are left out.

    Unrolling multiplies these counts, so they say that an instruction is there, not how much work it does.
    """
    found = []
    for kernel in kernels:
        families = Counter(family_of(line.opcode, target) for line in kernel.lines)
        del families[None]
        found.append(
            KernelFamilies(name=kernel.name, instructions=len(kernel.lines), families=dict(sorted(families.items())))
        )
    return tuple(found)


def total(kernels: Iterable[KernelFamilies]) -> dict[str, int]:
    """Sums of the static counts over kernels, by family."""
    return dict(sorted(sum((Counter(kernel.families) for kernel in kernels), Counter[str]()).items()))
