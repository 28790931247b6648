"""Small kernels for the tests of the machine: PTX statements in, words of global memory out."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.launch import KernelLaunch, LaunchResult, Policy, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.parse import parse

REGISTERS = """
.reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<60>; .reg .b64 %d<60>; .reg .f32 %f<20>;
"""
OUT = """
ld.param.u64 %d50, [out];
mov.u32 %r50, %tid.x; mov.u32 %r51, %ctaid.x; mov.u32 %r52, %ntid.x;
mad.lo.s32 %r53, %r51, %r52, %r50;
mul.wide.u32 %d51, %r53, 4; add.s64 %d51, %d50, %d51;
"""
"""%d50 the output, %r50 the thread, %r53 the thread in the grid, %d51 the address of its word."""


class Ran:
    """A launch with what it left."""

    def __init__(self, result: LaunchResult, words: NDArray[np.uint32]) -> None:
        self.result = result
        self.words = words

    @property
    def rules(self) -> set[str]:
        """The rules of all findings that make a result wrong."""
        return {each.rule for each in self.result.findings if each.severity == "error"}

    @property
    def error(self) -> str:
        """CUDA's name of the error that ended it."""
        return self.result.error.split(" ")[0]


def text(body: str, before: str = "", directives: str = "") -> str:
    """A module whose kernel `k(out, given)` has these statements."""
    head = f".version 9.0\n.target sm_90a\n.address_size 64\n{before}\n"
    entry = f".visible .entry k(.param .u64 out, .param .u64 given){directives} {{"
    return f"{head}{entry}{REGISTERS}{OUT}\n{body}\nret;\n}}\n"


def run(
    body: str,
    threads: int = 32,
    grid: int = 1,
    *,
    cluster: int = 1,
    before: str = "",
    given: bytes = b"",
    shared: int = 0,
    words: int = 0,
    registers: int = 0,
    schedules: Sequence[str] = ("late",),
    **more: Any,
) -> Ran:
    """Run statements; the answer has `words` words, by default one per thread."""
    memory = DeviceMemory(1 << 28)
    count = words or threads * grid
    out = memory.allocate(4 * count)
    source = memory.allocate(max(len(given), 16))
    memory.write(source, given)
    launch = KernelLaunch(
        "k",
        (grid, 1, 1),
        (threads, 1, 1),
        (cluster, 1, 1),
        dynamic_shared=shared,
        registers=registers,
        parameters=(struct.pack("<Q", out), struct.pack("<Q", source)),
    )
    result = run_launch(parse(text(body, before)), launch, memory, Policy(tuple(schedules), **more))
    return Ran(result, np.frombuffer(memory.read(out, 4 * count), np.uint32))


def store(register: str = "%r1") -> str:
    """Each thread writes a register to its word."""
    return f"st.global.u32 [%d51], {register};\n"
