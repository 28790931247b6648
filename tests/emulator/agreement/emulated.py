"""Runs a program on the emulator: its answers as bytes, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.emulator.agreement.program import BLOCK, HEAD, POISON, MapOf, Program

from ptxbench.emulator.async_.encode import encode
from ptxbench.emulator.errors import Fault
from ptxbench.emulator.launch import KernelLaunch, Policy, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.parse import parse

LIMIT = 200_000
"""Warp instructions; the largest program needs a tenth of it."""


@dataclass(frozen=True)
class Answer:
    """What a program left.

    Attributes:
        parts: The bytes of each part's answer.
        error: CUDA's name of the error that ended it; empty.
        unsupported: What the emulator lacks; empty.
        findings: Rules of the findings that say that the program is wrong.
    """

    parts: tuple[bytes, ...]
    error: str = ""
    unsupported: str = ""
    findings: tuple[str, ...] = ()


def block_of(program: Program, out: int, given: int) -> bytes:
    """The parameter `block`."""
    if not isinstance(program.block, MapOf):
        return program.block.ljust(BLOCK, b"\0")
    base = out if program.block.buffer == "out" else given
    made = encode(replace(program.block.shape, address=base + program.block.shape.address))
    assert isinstance(made, bytes), made
    return made


def run(program: Program, schedule: str = "late") -> Answer:
    """The program's answers on the emulator, tensor cores in their exact mode."""
    memory = DeviceMemory(1 << 26)
    out, given = memory.allocate(program.out_bytes), memory.allocate(len(program.given))
    memory.write(out, bytes([POISON]) * program.out_bytes)
    memory.write(given, program.given)
    parameters = (out.to_bytes(8, "little"), given.to_bytes(8, "little"), block_of(program, out, given))
    launch = KernelLaunch(
        program.kernel,
        grid=(program.grid, 1, 1),
        block=(program.threads, 1, 1),
        cluster=(program.cluster, 1, 1),
        parameters=parameters,
        registers=128,
    )
    try:
        result = run_launch(parse(HEAD + program.text()), launch, memory, Policy((schedule,), "exact", limit=LIMIT))
    except Fault as refused:
        return Answer((), error=str(refused))
    parts = tuple(memory.read(out + start, size) for start, size in program.places)
    found = tuple(each.rule for each in result.findings if each.severity == "error")
    return Answer(parts, result.error, result.unsupported, found)
