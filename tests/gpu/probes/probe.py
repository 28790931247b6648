"""A probe: a small PTX program with its data, the same text for a GPU and for the emulator; it runs nothing itself.

A program gets its input at `d0` and its output at `d1`; dynamic shared memory is `data`, the thread is `r0`.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.async_.tensormap import TensorMap

Shape = tuple[int, int, int]

MODULE = ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 data[];\n"
REGISTERS = ".reg .pred p<16>; .reg .b8 b<8>; .reg .b16 h<160>; .reg .b32 r<400>; .reg .b64 d<160>;"
START = "ld.param.u64 d0, [given]; ld.param.u64 d1, [out]; mov.u32 r0, %tid.x;"
_MOST = 5000
UNTOUCHED = 0xEE
"""Every byte of the output before the launch."""


@dataclass(frozen=True)
class Probe:
    """One launch.

    Attributes:
        name: Unique; `TOPIC: CASE`.
        body: The statements.
        given: The input.
        out: Bytes of the output.
        maps: Tensor maps, parameters `map0`, ...; their address is an offset in the output buffer.
        start: First bytes of the output; what is not given is `UNTOUCHED`.
        shared: Bytes of dynamic shared memory.
        first: Where the answer begins in the output.
        shown: Where it ends; 0: at the end.
        compared: Whether every run gives the same bytes; otherwise the output is a count to be read by people.
    """

    name: str
    body: str
    given: bytes = b""
    out: int = 4
    maps: tuple[TensorMap, ...] = ()
    start: bytes = b""
    grid: Shape = (1, 1, 1)
    block: Shape = (32, 1, 1)
    cluster: Shape = (1, 1, 1)
    shared: int = 0
    first: int = 0
    shown: int = 0
    compared: bool = True

    def entry(self, name: str) -> str:
        """The kernel's text under this name."""
        parameters = [".param .u64 given", ".param .u64 out"]
        parameters += [f".param .align 64 .b8 map{place}[128]" for place in range(len(self.maps))]
        threads = self.block[0] * self.block[1] * self.block[2]
        head = f".visible .entry {name}({', '.join(parameters)}) .maxntid {threads} .minnctapersm 1"
        return f"{head}\n{{\n{REGISTERS}\n{START}\n{self.body}\nret;\n}}\n"

    def answer(self, out: bytes) -> bytes:
        """The part of an output that is the answer."""
        return out[self.first : self.shown or None]

    @property
    def output(self) -> bytes:
        """The output before the launch."""
        return self.start.ljust(self.out, bytes([UNTOUCHED]))


def module(probes: Sequence[Probe]) -> str:
    """One PTX text with the entries `k0`, `k1`, ... of these probes."""
    return MODULE + "\n".join(probe.entry(f"k{place}") for place, probe in enumerate(probes))


def kept(probe: Probe, out: bytes) -> str:
    """An output as it is stored: all its bytes (zlib, base64), or the digest of many."""
    shown = probe.answer(out)
    packed = base64.b64encode(zlib.compress(shown, 9)).decode()
    return packed if len(packed) <= _MOST else digest(shown)


def digest(shown: bytes) -> str:
    """What is kept of many bytes."""
    return f"sha256 {hashlib.sha256(shown).hexdigest()}"


def unpacked(text: str) -> bytes | None:
    """The bytes of `kept`; None where there is only a digest."""
    return None if text.startswith("sha256") else zlib.decompress(base64.b64decode(text))


def bits(name: str, count: int) -> NDArray[np.uint64]:
    """`count` random 64-bit words that the name determines, on every machine: uint64 [count]."""
    return np.frombuffer(hashlib.shake_256(name.encode()).digest(8 * count), "<u8")
