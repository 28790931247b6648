"""PTX texts for the tests: those nvcc wrote, and small ones around a few statements."""

from __future__ import annotations

import gzip
from pathlib import Path

from ptxbench.emulator.ptx.ir import Function, Instruction, Module
from ptxbench.emulator.ptx.parse import parse

DATA = Path(__file__).resolve().parents[2] / "data" / "ptx"
COMPILED = tuple(sorted(path.name.removesuffix(".ptx.gz") for path in DATA.glob("*.ptx.gz")))


def compiled(name: str) -> str:
    """A text as nvcc wrote it."""
    return gzip.decompress((DATA / f"{name}.ptx.gz").read_bytes()).decode()


def module(body: str, before: str = "", target: str = "sm_90a") -> str:
    """A module with a kernel `k(a, b)` of these statements; line 6 is the body's first."""
    head = f".version 9.0\n.target {target}\n.address_size 64\n{before}"
    return f"{head}\n.visible .entry k(.param .u64 a, .param .align 8 .b8 b[24]) {{\n{body}\n}}\n"


def kernel(body: str, before: str = "") -> Function:
    """The kernel of `module(body)`."""
    return parse(module(body, before)).functions["k"]


def instructions(function: Function) -> list[Instruction]:
    """All of them, in order."""
    return [each for block in function.blocks for each in block.instructions]


def only(body: str, before: str = "") -> Instruction:
    """The last instruction of the statements."""
    return instructions(kernel(body, before))[-1]


def all_instructions(parsed: Module) -> list[Instruction]:
    """Of all functions."""
    return [each for function in parsed.functions.values() for each in instructions(function)]
