"""Which mutants are judged: a seeded sample of each operator's sites, from all kernels of a target; runs nothing."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.mutants.kernels import KERNELS, ROOT, Kernel, parsed
from benchmarks.mutants.operators import OPERATORS, Mutant

from ptxbench.emulator.ptx.ir import Location
from ptxbench.schema.values import Target

SEED, EACH = 4, 6


@dataclass(frozen=True)
class Site:
    """A mutant of a kernel.

    Attributes:
        kernel: The kernel's name.
        at: Lines of its CUDA source, the innermost first; empty for a tensor map.
        copy: Which one it is, from 1, of the instructions of one mnemonic that these lines became (loops are unrolled).
    """

    kernel: str
    mutant: Mutant
    at: tuple[int, ...] = ()
    copy: int = 1

    @property
    def name(self) -> str:
        """What it is called everywhere."""
        place = self.mutant.line or f"map{self.mutant.map}"
        return f"{self.kernel}:{self.mutant.operator}:{place}:{self.mutant.what}"


def draw(found: Mapping[str, Iterable[Mutant]], target: Target) -> list[Site]:
    """Mutants of each operator over all kernels of the target, `EACH` of them or one of each kind if that is more.

    Kinds take turns, and within a kind its kernels are equally likely. `found` has all mutants of each kernel.
    """
    kernels = [each for each in KERNELS.values() if each.target is target]
    sample: list[Site] = []
    for operator in OPERATORS:
        kinds: dict[str, dict[str, list[Mutant]]] = {}
        for kernel in kernels:
            for mutant in found[kernel.name]:
                if mutant.operator == operator:
                    kinds.setdefault(mutant.kind, {}).setdefault(kernel.name, []).append(mutant)
        sample += sorted(_chosen(f"{SEED} {target.value} {operator}", kinds), key=_order)
    return sample


def _chosen(seed: str, kinds: dict[str, dict[str, list[Mutant]]]) -> Iterator[Site]:
    dice = random.Random(seed)  # noqa: S311 - a sample, not a secret
    order = sorted(kinds)
    dice.shuffle(order)
    left = max(EACH, len(order))
    while left and any(kinds.values()):
        for kind in order:
            if left and kinds[kind]:
                name = dice.choice(sorted(kinds[kind]))
                sites = kinds[kind][name]
                mutant = sites.pop(dice.randrange(len(sites)))
                if not sites:
                    del kinds[kind][name]
                left -= 1
                yield located(KERNELS[name], mutant)


def _order(site: Site) -> tuple[int, int, int, str]:
    return list(KERNELS).index(site.kernel), site.mutant.line, site.mutant.map, site.mutant.what


def located(kernel: Kernel, mutant: Mutant) -> Site:
    """A mutant with the lines of CUDA source that its PTX line comes from."""
    places = _places(kernel.ptx())
    name, at = places.get(mutant.line, ("", ()))
    return Site(kernel.name, mutant, at, sum(places[line] == (name, at) for line in places if line <= mutant.line) or 1)


@functools.lru_cache(8)
def _places(text: str) -> dict[int, tuple[str, tuple[int, ...]]]:
    """For each PTX line its mnemonic and its lines of CUDA source, innermost first."""
    instructions = [
        ins
        for function in parsed(text).functions.values()
        for block in function.blocks
        for ins in block.instructions
        if ins.location is not None
    ]
    return {ins.line: (ins.name, tuple(_chain(ins.location))) for ins in instructions}


def _chain(place: Location | None) -> Iterator[int]:
    while place is not None:
        if place.file.endswith(".cu"):
            yield place.line
        place = place.inlined_at


def source_text(kernel: Kernel, line: int) -> str:
    """A line of its CUDA source."""
    return (ROOT / kernel.source).read_text().splitlines()[line - 1].strip()
