"""Instructions that the compiled core executes together, as one call in the text of a block; no PTX, no lanes."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ptxbench.emulator.codegen.lanes import MOST_OPERANDS, Core
from ptxbench.emulator.codegen.lower import Tree

_NAME = re.compile(r"\bv\d+\b")
_PLACE = re.compile(r"K\[(\d+)\]\Z")


@dataclass
class Run:
    """Operations in their order; operands and results are names or other expressions of the block's text.

    Attributes:
        after: Lines that follow the call.
    """

    steps: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    after: list[str] = field(default_factory=list)

    def emit(self, tree: Tree, sources: Sequence[str], fresh: Callable[[], str]) -> str:
        """Add a tree's operations; the name of its value."""
        if isinstance(tree, int):
            return sources[tree]
        operation, *parts = tree
        operands = tuple(self.emit(part, sources, fresh) for part in parts)
        name = fresh()
        self.steps.append((name, str(operation), operands))
        return name


@dataclass
class Texts:
    """Turns runs into calls.

    Attributes:
        core: What executes them.
        specs: The constants of the kernel's blocks; literals among them go into the segment.
        constant: Gives an object a name in the block's text.
    """

    core: Core
    specs: Sequence[tuple[Any, ...]]
    constant: Callable[[object], str]

    def resolved(self, lines: Sequence[Any], answer: str) -> list[Any]:
        """The lines with calls in place of runs; results that nobody uses are not computed."""
        used = set(_NAME.findall(answer))
        made: list[Any] = []
        for line in reversed(lines):
            if isinstance(line, Run):
                for text in line.after:
                    used.update(_NAME.findall(text))
                made.extend(reversed(line.after))
                call = self._call(line, used)
                made.extend([call] if call else [])
                used.update(_NAME.findall(call))
                continue
            made.append(line)
            used.update([line[1]] if isinstance(line, tuple) else _NAME.findall(line))
        return made[::-1]

    def _call(self, run: Run, used: set[str]) -> str:
        steps = _needed(run.steps, used)
        if not steps:
            return ""
        results = {name for name, _, _ in steps}
        outputs = [name for name, _, _ in steps if name in used]
        operands = dict.fromkeys(each for _, _, parts in steps for each in parts if each not in results)
        literals = {each: spec for each in operands if (spec := self._literal(each)) is not None}
        inputs = [each for each in operands if each not in literals]
        sizes = self._sizes(steps, [*inputs, *literals])
        numbers = {name: place for place, name in enumerate([*inputs, *literals, *(name for name, _, _ in steps)])}
        program = b"".join(self._step(step, numbers) for step in steps)
        outward = struct.pack(f"{len(outputs)}i", *(numbers[name] for name in outputs))
        constants = struct.pack(f"{len(literals)}Q", *(spec[1] for spec in literals.values()))
        name = self.constant(self.core.segment(sizes, constants, program, outward))
        return f"{', '.join(outputs)} = {name}({', '.join(['u.lanes', *inputs])})"

    def _literal(self, operand: str) -> tuple[Any, ...] | None:
        found = _PLACE.match(operand)
        spec = self.specs[int(found[1])] if found else ("",)
        return spec if spec[0] == "imm" else None

    def _step(self, step: tuple[str, str, tuple[str, ...]], numbers: dict[str, int]) -> bytes:
        _, operation, operands = step
        places = [numbers[each] for each in operands]
        return struct.pack(
            f"{1 + MOST_OPERANDS}i",
            self.core.operations[operation].number,
            *places,
            *(0 for _ in range(MOST_OPERANDS - len(places))),
        )

    def _sizes(self, steps: Sequence[tuple[str, str, tuple[str, ...]]], values: Sequence[str]) -> bytes:
        """Bytes of an element of the values that the steps do not make: as the operations take them."""
        taken = {
            name: self.core.operations[operation].takes[place]
            for _, operation, operands in steps
            for place, name in enumerate(operands)
        }
        return bytes(taken[name] for name in values)


def _needed(
    steps: Sequence[tuple[str, str, tuple[str, ...]]], used: set[str]
) -> list[tuple[str, str, tuple[str, ...]]]:
    """The steps whose results are used, by others or by each other."""
    wanted, kept = set(used), []
    for step in reversed(steps):
        if step[0] in wanted:
            wanted.update(step[2])
            kept.append(step)
    return kept[::-1]
