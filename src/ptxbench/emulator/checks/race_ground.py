"""Where the accesses of a launch lie: addresses to places of memories, threads to names; orders and judges nothing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ptxbench.emulator.checks.clocks import WARP, Ints
from ptxbench.emulator.checks.history import Entries, History, Places
from ptxbench.emulator.checks.race_order import Flag
from ptxbench.emulator.codegen.bind_memory import space_of
from ptxbench.emulator.codegen.op import bits_of
from ptxbench.emulator.machine.memory import Allocation, DeviceMemory
from ptxbench.emulator.machine.spaces import OFFSET_MASK, RANK_SHIFT, split_generic
from ptxbench.emulator.ptx.ir import Immediate, Instruction

if TYPE_CHECKING:
    from ptxbench.emulator.async_.boxes import Box
    from ptxbench.emulator.codegen.program import Program

_CHUNK = 16
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_MOST_PLACES = 1 << 30
_PLAIN = ("ld", "ldu", "st", "atom", "red")


@dataclass(eq=False)
class Ground:
    """What all clusters of a launch share.

    Attributes:
        grains: Bytes of a place of shared and of global memory: those of the kernel's smallest access.
        ctas: The places in the grid of a cluster's CTAs, by the cluster's number.
        per_cta: Threads of a CTA, whole units.
        fences: Whether the kernel has any fence.
        undecided: What could not be decided, with a PTX line.
    """

    memory: DeviceMemory
    grains: tuple[int, int]
    ctas: Callable[[int], list[tuple[int, int, int]]]
    per_cta: int
    fences: bool
    entries: Entries = field(default_factory=Entries)
    flags: dict[Hashable, Flag] = field(default_factory=dict)
    undecided: dict[str, int] = field(default_factory=dict)
    histories: dict[int, History] = field(default_factory=dict)
    _latest: Allocation = field(default_factory=lambda: Allocation(0, 0))

    def history(self, address: int, line: int) -> tuple[History, int, int] | None:
        """The history of the allocation of an address, with its first and last address; None: there is none."""
        there = self._latest
        if not there.start <= address < there.end:
            found = self.memory.find(address)
            if found is None:
                return None
            there = self._latest = found
        made = self.histories.get(there.start)
        if made is None:
            size = -(-(there.end - there.start) // self.grains[1])
            if size > _MOST_PLACES:
                self.undecided.setdefault("an allocation that is too large to be watched", line)
                return None
            made = self.histories[there.start] = History(f"global {there.start:#x}", size, 0, self.entries)
        return made, there.start, there.end

    def global_places(self, addresses: Ints, size: int, line: int) -> Iterator[tuple[History, Ints, Ints]]:
        """Places [addresses, places of one], by allocation, with the numbers of those addresses."""
        left = np.arange(addresses.size)
        while left.size:
            found = self.history(int(addresses[left[0]]), line)
            if found is None:
                left = left[1:]
                continue
            history, start, end = found
            chosen = addresses[left]
            inside = (chosen >= np.uint64(start)) & (chosen < np.uint64(end))
            mine = left[inside]
            offsets = (addresses[mine] - np.uint64(start)).astype(np.int64)
            yield history, spread(offsets, size, self.grains[1]), mine
            left = left[~inside]

    def box(self, box: Box, line: int) -> tuple[History, Ints] | None:
        """The places that a tensor copy touches in global memory."""
        if not box.rows.count:
            return None
        found = self.history(box.first, line)
        if found is None:
            return None
        history, start, end = found
        places = np.unique(spread(box.rows.offsets + (box.first - start), box.width, self.grains[1]))
        # What lies outside of the allocation is an error of the copy itself, which is found when it lands.
        return history, places[(places >= 0) & (places < -(-(end - start) // self.grains[1]))]

    def name(self, cluster: int, thread: int) -> str:
        """Who a thread is, for reports."""
        place = self.ctas(cluster)[thread // self.per_cta]
        inside = thread % self.per_cta
        return f"CTA {','.join(map(str, place))} warp {inside // WARP} lane {inside % WARP}"


def spread(offsets: Ints, size: int, grain: int) -> Ints:
    """The places of accesses of `size` bytes, flat: those of the first access, then those of the second, ..."""
    first = offsets // grain
    count = -(-size // grain)
    if count == 1:
        return first
    made: Ints = (first[:, None] + np.arange(count)).reshape(-1)
    return made


def run_of(start: int, size: int, grain: int) -> slice:
    """The places of bytes that lie together."""
    return slice(start // grain, -(-(start + size) // grain))


def of_chunks(chunks: Places, grain: int) -> Places:
    """The places of chunks of 16 bytes, each once."""
    if isinstance(chunks, slice):
        return slice(chunks.start * _CHUNK // grain, chunks.stop * _CHUNK // grain)
    return np.unique(spread(chunks.ravel() * _CHUNK, _CHUNK, grain))


def by_space(space: str, addresses: Ints) -> Iterator[tuple[str, Ints, Ints]]:
    """Accesses by the space in which they are: its name, addresses there, their numbers."""
    everything = np.arange(addresses.size)
    if space != "generic":
        yield space, addresses, everything
        return
    one = split_generic(addresses)
    if one is not None:
        yield one, addresses if one == "global" else addresses.astype(np.uint32), everything
        return
    for place in everything.tolist():
        yield from (
            (name, there, everything[place : place + 1])
            for name, there, _ in by_space(space, addresses[place : place + 1])
        )


def by_rank(addresses: Ints) -> Iterator[tuple[int, Ints, Ints]]:
    """Shared addresses by the rank of the CTA whose memory they name: rank, offsets, their numbers."""
    ranks = addresses.astype(np.int64) >> RANK_SHIFT
    offsets = addresses.astype(np.int64) & OFFSET_MASK
    if (ranks == ranks[0]).all():
        yield int(ranks[0]), offsets, np.arange(offsets.size)
        return
    for rank in np.unique(ranks).tolist():
        mine = np.flatnonzero(ranks == rank)
        yield int(rank), offsets[mine], mine


def size_of(ins: Instruction) -> int:
    """Bytes that one lane of a load, store or atomic operation touches; `st.bulk` has its zeros in words of 8."""
    if ins.modifiers[0] == "bulk":
        return 8
    count = next((_VECTORS[word] for word in ins.modifiers if word in _VECTORS), 1)
    return max(bits_of(ins.modifiers[-1]) // 8, 1) * count


def grains_of(program: Program) -> tuple[int, int]:
    """The smallest access to shared and to global memory: at most 16 bytes."""
    least = {"shared": _CHUNK, "global": _CHUNK}
    for block in program.blocks:
        for ins in block.instructions:
            space, size = _touches(ins)
            for name in ("shared", "global"):
                if space in (name, "generic"):
                    least[name] = min(least[name], size)
    return least["shared"], least["global"]


def _touches(ins: Instruction) -> tuple[str, int]:
    """Space and bytes of an access; other instructions touch whole chunks."""
    if ins.opcode in _PLAIN and not any(word.startswith(("param", "const", "local")) for word in ins.modifiers):
        shared = ins.modifiers[:1] == ("async",)
        return "shared" if shared else space_of(ins), size_of(ins)
    if ins.opcode == "cp" and ins.modifiers[0] == "async" and len(ins.operands) > 2 and "bulk" not in ins.modifiers:
        size = ins.operands[2]
        return "generic", size.value if isinstance(size, Immediate) else 4
    return ("generic", 1) if ins.opcode in ("wmma", "multimem") else ("", _CHUNK)
