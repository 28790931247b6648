"""Kernels around single instructions: columns of bits go in per lane, columns of bits come out; knows no instruction.

Registers are named by width: p, b (8), h (16), r (32), d (64), q (128), each with a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.launch import KernelLaunch, LaunchResult, Policy, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.parse import parse

Column = NDArray[np.uint64]
WIDTHS = {"p": 32, "b": 8, "h": 16, "r": 32, "d": 64, "q": 128}
EXECUTED: set[str] = set()
"""Mnemonics that threads executed since somebody cleared this."""
_REGISTER = re.compile(r"(?<![\w.])([pbhrdq])(\d+)\b")
SLOT = 16
"""Bytes of one lane's value of one register in memory."""
_HEAD = """.version 9.0
.target {target}
.address_size 64
{before}
.visible .entry k(.param .u64 out, .param .u64 given, .param .align 64 .b8 block[128]) {{
{declared}
.reg .b32 cell, lane, word; .reg .b64 to, from;
ld.param.u64 to, [out]; ld.param.u64 from, [given];
mov.u32 word, %ctaid.x; mov.u32 lane, %ntid.x; mul.lo.u32 word, word, lane; mov.u32 lane, %tid.x;
add.u32 cell, word, lane; mad.wide.u32 to, cell, {slot}, to; mad.wide.u32 from, cell, {slot}, from;
"""


@dataclass(frozen=True)
class Ran:
    """What a kernel left."""

    columns: tuple[Any, ...]
    """For each asked register: uint64 per lane, and [lanes, 2] for 128 bits."""
    result: LaunchResult
    memory: DeviceMemory

    @property
    def rules(self) -> set[str]:
        """The rules of findings that make the result wrong."""
        return {each.rule for each in self.result.findings if each.severity == "error"}


@dataclass
class Kernel:
    """A kernel under construction, and its memory."""

    threads: int = 32
    grid: int = 1
    cluster: int = 1
    target: str = "sm_90a"
    before: str = ""
    shared: int = 0
    registers: int = 0
    numerics: str = "fast"
    schedule: str = "late"
    block: bytes = b""
    memory: DeviceMemory = field(default_factory=lambda: DeviceMemory(1 << 26))

    @property
    def lanes(self) -> int:
        """Threads of the grid."""
        return self.threads * self.grid

    def place(self, data: bytes) -> int:
        """Global memory with these bytes, its address a multiple of 256."""
        address = self.memory.allocate(max(len(data), 16))
        self.memory.write(address, data)
        return address

    def run(self, body: str, sources: Mapping[str, Any], results: Sequence[str]) -> Ran:
        """Run statements.

        Args:
            body: PTX.
            sources: Register -> bits per lane, as an array or a list, or one number for all; for q a list.
            results: Registers to bring back.
        """
        step = SLOT * self.lanes
        given = self.place(b"".join(self._column(name, value) for name, value in sources.items()))
        out = self.place(bytes(step * len(results)))
        loads = "\n".join(_load(name, place * step) for place, name in enumerate(sources))
        stores = "\n".join(_store(name, place * step) for place, name in enumerate(results))
        inner = f"{loads}\n{body}\n{stores}"
        head = _HEAD.format(target=self.target, before=self.before, slot=SLOT, declared=_declared(inner))
        text = f"{head}{inner}\nret;\n}}\n"
        launch = KernelLaunch(
            "k",
            (self.grid, 1, 1),
            (self.threads, 1, 1),
            (self.cluster, 1, 1),
            self.shared,
            (out.to_bytes(8, "little"), given.to_bytes(8, "little"), self.block.ljust(128, b"\0")),
            registers=self.registers,
        )
        done = run_launch(parse(text), launch, self.memory, Policy((self.schedule,), self.numerics, limit=200_000))
        EXECUTED.update(each.name for each in done.counts if each.threads)
        if done.error:  # a run that ends in an error counts nothing; what ended it was executed
            lines = text.splitlines()
            EXECUTED.update(word for each in done.findings for word in re.split(r"[\s;]+", lines[each.line - 1]))
        raw = np.frombuffer(self.memory.read(out, step * len(results)), np.uint64).reshape(len(results), self.lanes, 2)
        columns = tuple(_bits(name, raw[place]) for place, name in enumerate(results))
        return Ran(columns, done, self.memory)

    def _column(self, name: str, value: Any) -> bytes:
        if isinstance(value, list):
            return b"".join(each.to_bytes(SLOT, "little") for each in value)
        slots = np.zeros((self.lanes, 2), np.uint64)
        slots[:, 0] = np.asarray(value, np.uint64)
        return slots.tobytes()


def _declared(body: str) -> str:
    """Registers of each width, as many as the statements use."""
    found: dict[str, int] = {}
    for letter, number in _REGISTER.findall(body):
        found[letter] = max(found.get(letter, 0), int(number) + 1)
    types = {"p": "pred", "b": "b8", "h": "b16", "r": "b32", "d": "b64", "q": "b128"}
    return " ".join(f".reg .{types[letter]} {letter}<{count}>;" for letter, count in found.items())


def _load(name: str, place: int) -> str:
    if name[0] == "p":
        return f"ld.global.b32 word, [from+{place}]; setp.ne.b32 {name}, word, 0;"
    return f"ld.global.b{WIDTHS[name[0]]} {name}, [from+{place}];"


def _store(name: str, place: int) -> str:
    if name[0] == "p":
        return f"selp.b32 word, 1, 0, {name}; st.global.b32 [to+{place}], word;"
    return f"st.global.b{WIDTHS[name[0]]} [to+{place}], {name};"


def _bits(name: str, slots: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return slots if name[0] == "q" else slots[:, 0]
