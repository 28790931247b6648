"""Tiny PTX programs, one per instruction form, as values and as text; runs nothing.

A program is one kernel `name(out, given, block)`. Its parts run one after another, each in a scope of its own; a part
is one mnemonic, and its answer is its own stretch of `out`: `stride` bytes per thread. Names that a body may use:
`t` thread of the CTA, `warp`, `lane`, `rank` in the cluster (b32), `out`, `given` (b64), and `od`, where this thread's
answer of the part goes. `@K` stands for the kernel's name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from ptxbench.emulator.async_.tensormap import TensorMap

HEAD = ".version 9.0\n.target sm_90a\n.address_size 64\n"
BLOCK = 128
"""Bytes of the parameter `block`: data, or a tensor map."""
POISON = 0xA5
"""What `out` is filled with before the launch."""


@dataclass(frozen=True)
class Part:
    """One mnemonic: statements that leave `stride` bytes at `od`."""

    mnemonic: str
    body: str
    stride: int


@dataclass(frozen=True)
class MapOf:
    """A tensor map over one of the buffers, which is given to the kernel in `block`.

    Attributes:
        buffer: `out` or `given`.
        shape: The map's arguments; its address is the offset in the buffer.
    """

    buffer: str
    shape: TensorMap


@dataclass(frozen=True)
class Program:
    """One kernel.

    Attributes:
        form: The instruction form that it is for.
        parts: Its mnemonics; answers are kept per part.
        bound: How near an answer must be to the device's: `exact`, or the rule of `compare.py`.
        threads: Of a CTA.
        grid: CTAs.
        cluster: CTAs of a cluster.
        given: What lies in the buffer `given`.
        before: Statements at module level.
        start: Declarations and statements before the first part.
        directives: Of the entry.
        block: Bytes of the parameter, or the map that it is made from.
        ends: The kernel ends in an error on purpose.
    """

    form: str
    parts: tuple[Part, ...]
    bound: str = "exact"
    threads: int = 128
    grid: int = 1
    cluster: int = 1
    given: bytes = bytes(16)
    before: str = ""
    start: str = ""
    directives: str = ""
    block: bytes | MapOf = bytes(BLOCK)
    ends: bool = False

    @cached_property
    def kernel(self) -> str:
        """A name that no other form's kernel has."""
        bodies = (part.body for part in self.parts)
        text = "\n".join((self.form, self.start, str(self.threads), repr(self.block), *bodies))
        return f"k{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"

    @cached_property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Start and length of each part's answer in `out`, all starts multiples of 128."""
        made, start = [], 0
        for part in self.parts:
            size = part.stride * self.threads * self.grid
            made.append((start, size))
            start += -(-size // 128) * 128
        return tuple(made)

    @cached_property
    def out_bytes(self) -> int:
        """Size of `out`."""
        start, size = self.places[-1]
        return max(start + size, 128)

    def text(self) -> str:
        """What the kernel adds to a module."""
        parameters = "\n".join(
            (
                ".param .u64 @K_out, .param .u64 @K_given,",
                f".param .align 64 .b8 @K_block[{BLOCK}]",
            )
        )
        cluster = f".reqnctapercluster {self.cluster}, 1, 1" if self.cluster > 1 else ""
        head = f".visible .entry @K({parameters}) .maxntid {self.threads}, 1, 1 {cluster} {self.directives}"
        parts = "\n".join(map(self._scope, self.parts, self.places))
        return f"{self.before}\n{head} {{\n{_PROLOGUE}\n{self.start}\n{parts}\nDONE: ret;\n}}\n".replace(
            "@K", self.kernel
        )

    def _scope(self, part: Part, place: tuple[int, int]) -> str:
        where = f"add.u64 ob, out, {place[0]}; mad.wide.u32 od, cell, {part.stride}, ob;"
        return f"{{ // {part.mnemonic}\n{where}\n{part.body}\n}}"


_PROLOGUE = """.reg .b32 t, lane, warp, rank, cell; .reg .b64 out, given, ob, od;
ld.param.u64 out, [@K_out]; ld.param.u64 given, [@K_given]; cvta.to.global.u64 out, out;
cvta.to.global.u64 given, given;
mov.u32 t, %tid.x; and.b32 lane, t, 31; shr.u32 warp, t, 5; mov.u32 rank, %cluster_ctarank;
{ .reg .b32 a, b; mov.u32 a, %ctaid.x; mov.u32 b, %ntid.x; mad.lo.u32 cell, a, b, t; }"""


def module_text(programs: Sequence[Program]) -> str:
    """One module with these kernels."""
    return HEAD + "".join(each.text() for each in programs)
