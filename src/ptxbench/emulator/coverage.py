"""How much of the PTX ISA is emulated, counted: forms that become code, forms that tests execute, forms with truth.

Whether a form is supported is asked of the compiler. Which forms the tests execute, and for which an H200's answer is
kept, is data beside this file; a test holds the first list to what the tests do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ptxbench.emulator.codegen.bind import bind
from ptxbench.emulator.codegen.compile import Compiled
from ptxbench.emulator.codegen.ends import is_end
from ptxbench.emulator.codegen.program import Program
from ptxbench.emulator.ptx import examples, isa
from ptxbench.emulator.ptx.ir import Instruction, Module
from ptxbench.emulator.ptx.parse import parse

EVIDENCE = Path(__file__).parent / "evidence"


@dataclass(frozen=True)
class Covered:
    """What is known of one form on one target."""

    form: isa.Form
    supported: bool
    """Whether it becomes code."""
    executed: bool
    """Whether a test executes it and checks its result against a model of its own."""
    measured: bool
    """Whether its answer is compared with one that an H200 gave."""


@dataclass(frozen=True)
class Share:
    """The forms of a section, or of all sections, counted."""

    section: str
    forms: int
    supported: int
    executed: int
    measured: int


def covered(target: str) -> tuple[Covered, ...]:
    """Every form of a target.

    Args:
        target: `sm_90a` or `sm_100a`.
    """
    tested, measured = names("executed"), names("measured")
    return tuple(
        Covered(form, supported, form.name in tested, form.name in measured) for form, supported in _compiled(target)
    )


def shares(forms: Sequence[Covered]) -> tuple[Share, ...]:
    """A row for each section, in the order of the list, and one for all."""
    sections = dict.fromkeys(each.form.section for each in forms)
    rows = [_share(section, [each for each in forms if each.form.section == section]) for section in sections]
    return (*rows, _share("all", forms))


def _share(section: str, forms: Sequence[Covered]) -> Share:
    return Share(
        section,
        len(forms),
        sum(each.supported for each in forms),
        sum(each.executed for each in forms),
        sum(each.measured for each in forms),
    )


@cache
def names(list_: str) -> frozenset[str]:
    """Names of forms in one of the lists beside this file: `executed` or `measured`; empty if there is none."""
    path = EVIDENCE / f"{list_}.json"
    return frozenset(json.loads(path.read_text("utf-8"))) if path.exists() else frozenset()


@cache
def _compiled(target: str) -> tuple[tuple[isa.Form, bool], ...]:
    """Each form, and whether the compiler takes its example."""
    made = list(examples.instructions(target, variants=False))
    complete, first = examples.text(target, [line for _, line in made])
    instructions = {ins.line: ins for ins in _instructions(parse(complete))}
    empty = parse(examples.text(target, [])[0])
    program = Compiled(empty, empty.functions["kernel"]).program
    return tuple((form, accepts(instructions[first + place], program)) for place, (form, _) in enumerate(made))


def _instructions(module: Module) -> Iterator[Instruction]:
    for block in module.functions["kernel"].blocks:
        yield from block.instructions


def accepts(instruction: Instruction, program: Program) -> bool:
    """Whether an instruction becomes code; one that ends a block always does."""
    return is_end(instruction) or not bind(instruction, program).refused
