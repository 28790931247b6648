"""Tiny Blackwell kernels for the tests: PTX statements in, words of global memory and findings out."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.launch import KernelLaunch, LaunchResult, Policy, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.parse import parse
from ptxbench.settings import Settings
from ptxbench.toolchain.toolkit import find_toolkit

EXECUTED: set[str] = set()
"""Mnemonics that threads executed since somebody cleared this."""
SCHEDULES = ("late", "eager", "seed 1", "seed 2", "seed 3")
_HEAD = """.version 9.0
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 given){directives} {{
.reg .pred %p<20>; .reg .b16 %h<20>; .reg .b32 %r<400>; .reg .b64 %d<60>; .reg .f32 %f<20>;
.shared .align 1024 .b8 tile[{shared}]; .shared .align 8 .b64 bar[16]; .shared .align 4 .b32 slot[4];
ld.param.u64 %d50, [out]; ld.param.u64 %d52, [given];
mov.u32 %r350, %tid.x; mov.u32 %r351, %ctaid.x; mov.u32 %r352, %ntid.x; shr.u32 %r354, %r350, 5;
mad.lo.s32 %r353, %r351, %r352, %r350; mul.wide.u32 %d51, %r353, {pitch}; add.s64 %d51, %d50, %d51;
setp.eq.u32 %p19, %r350, 0; setp.lt.u32 %p18, %r350, 32;
"""
"""%d50 the output, %d51 the thread's place in it, %d52 the input, %r350 the thread, %r354 its warp, %p19 thread 0,
%p18 warp 0."""
ALLOC = """
@!%p18 bra have;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], {columns};
tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
have: bar.sync 0; ld.shared.u32 %r300, [slot];
shl.b32 %r301, %r354, 21; and.b32 %r301, %r301, 0x600000; add.u32 %r301, %r300, %r301;
"""
"""%r300 the allocation, %r301 the warp's quarter of it."""
FREE = """
bar.sync 0;
@!%p18 bra gone;
tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r300, {columns};
gone:
"""


class Ran:
    """A launch with what it left."""

    def __init__(self, result: LaunchResult, words: NDArray[np.uint32]) -> None:
        self.result = result
        self.words = words

    @property
    def rules(self) -> set[str]:
        """The rules of all findings."""
        return {each.rule for each in self.result.findings}

    @property
    def error(self) -> str:
        """CUDA's name of the error that ended it."""
        return self.result.error.split(" ")[0]

    @property
    def messages(self) -> str:
        """What the findings say."""
        return "\n".join(each.message for each in self.result.findings)


def text(body: str, *, per_thread: int = 1, shared: int = 1024, directives: str = "") -> str:
    """A module whose kernel `k(out, given)` has these statements."""
    return _HEAD.format(shared=shared, pitch=4 * per_thread, directives=directives) + body + "\nret;\n}\n"


def allocated(body: str, columns: int = 32) -> str:
    """Statements between an allocation and its end."""
    return ALLOC.format(columns=columns) + body + FREE.format(columns=columns)


def run(
    body: str,
    threads: int = 128,
    *,
    per_thread: int = 1,
    grid: int = 1,
    cluster: int = 1,
    given: bytes | Callable[[int], bytes] = b"",
    shared: int = 1024,
    schedules: Sequence[str] = ("late",),
    **more: Any,
) -> Ran:
    """Run statements; every thread has `per_thread` words of the answer; the input may depend on its address."""
    memory = DeviceMemory(1 << 28)
    count = per_thread * threads * grid
    out = memory.allocate(4 * count)
    source = memory.allocate(1 << 20)
    memory.write(source, given(source) if callable(given) else given)
    launch = KernelLaunch(
        "k",
        (grid, 1, 1),
        (threads, 1, 1),
        (cluster, 1, 1),
        parameters=(struct.pack("<Q", out), struct.pack("<Q", source)),
        explicit_cluster=cluster > 1,
    )
    module = parse(text(body, per_thread=per_thread, shared=shared))
    result = run_launch(module, launch, memory, Policy(tuple(schedules), **more))
    EXECUTED.update(each.name for each in result.counts if each.threads)
    return Ran(result, np.frombuffer(memory.read(out, 4 * count), np.uint32))


def registers(first: int, count: int) -> str:
    """`{%r10, %r11, ...}`."""
    return "{" + ", ".join(f"%r{first + place}" for place in range(count)) + "}"


def stored(first: int, count: int) -> str:
    """Each thread writes `count` registers to its words."""
    return "".join(f"st.global.u32 [%d51+{4 * place}], %r{first + place};\n" for place in range(count))


def numbered(first: int, count: int) -> str:
    """Registers get `thread * 1000 + their number`."""
    return "".join(f"mad.lo.u32 %r{first + place}, %r350, 1000, {place};\n" for place in range(count))


def line_of(body: str, pattern: str, **more: Any) -> int:
    """The PTX line of the first statement that matches."""
    lines = text(body, **more).splitlines()
    return next(number for number, line in enumerate(lines, 1) if re.search(pattern, line))


def refused_by_ptxas(ptx: str, folder: Path) -> str:
    """What ptxas for sm_100a has against a module; empty if it takes it."""
    source = folder / "tiny.ptx"
    source.write_text(ptx)
    ptxas = str(find_toolkit(Settings.load()).ptxas)
    command = [ptxas, "-w", "-arch", "sm_100a", str(source), "-o", str(folder / "tiny.cubin")]
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr
