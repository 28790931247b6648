"""The kernels that are mutated, each with a tiny problem: PTX, launch, inputs and expected outputs; runs nothing.

A problem is as small as it may be while every barrier of the kernel is used in more than one phase: rings wrap, and
each CTA computes several tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.async_.tensormap import Swizzle, TensorMap, Type
from ptxbench.emulator.ptx.ir import Module
from ptxbench.emulator.ptx.parse import parse
from ptxbench.errors import CandidateError
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.values import Target
from ptxbench.settings import Settings
from ptxbench.toolchain.build import build

ROOT = Path(__file__).resolve().parents[2]
BF16 = np.dtype(ml_dtypes.bfloat16)
Array = NDArray[Any]


@dataclass(frozen=True)
class MapOf:
    """A parameter, or a part of one: the tensor map of an array (its place in `Problem.arrays`); `shape` names no
    address."""

    array: int
    shape: TensorMap


@dataclass(frozen=True)
class PointerTo:
    """The address of an array, by its place."""

    array: int


Piece = MapOf | PointerTo | bytes


@dataclass(frozen=True)
class Problem:
    """One launch.

    Attributes:
        arrays: Inputs, and outputs as they are before.
        expected: What must be in which array afterwards.
        tolerances: For some of them the greatest difference, relative to the greatest entry; else every bit counts.
        parameters: Each in pieces, which lie behind one another.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arrays: tuple[Array, ...]
    expected: Mapping[int, Array]
    parameters: tuple[tuple[Piece, ...], ...]
    cluster: tuple[int, int, int] = (1, 1, 1)
    tolerances: Mapping[int, float] = field(default_factory=dict)

    def maps(self) -> list[MapOf]:
        """All tensor maps, in the order of the parameters."""
        return [each for pieces in self.parameters for each in pieces if isinstance(each, MapOf)]

    def with_map(self, number: int, shape: TensorMap) -> Problem:
        """The same launch with another tensor map in place of number `number`."""
        old = self.maps()[number]
        new = MapOf(old.array, shape)
        changed = tuple(tuple(new if each is old else each for each in pieces) for pieces in self.parameters)
        return replace(self, parameters=changed)


@dataclass(frozen=True)
class Kernel:
    """A kernel of this repository.

    Attributes:
        edits: Replacements in its source that make the problem tiny.
    """

    name: str
    target: Target
    source: str
    edits: Mapping[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """The CUDA source, with the edits."""
        text = (ROOT / self.source).read_text()
        for old, new in self.edits.items():
            if old not in text:
                raise CandidateError(f"{self.source} no longer has `{old}`.", "Correct the edits in kernels.py.")
            text = text.replace(old, new)
        return text

    def ptx(self) -> str:
        """Its PTX, with line information."""
        return _built(self.text(), self.target)

    def problem(self) -> Problem:
        """Its tiny problem."""
        return _PROBLEMS[self.name]()


@functools.cache
def _built(text: str, target: Target) -> str:
    made = build(Candidate.from_source(text), target, Settings.load())
    if made.ptx is None:
        raise CandidateError("A kernel of this repository does not compile.", "Read the log of its build.")
    return made.ptx.read_text()


@functools.lru_cache(8)
def parsed(text: str) -> Module:
    """PTX text as a module."""
    return parse(text)


_REFERENCE = "reference/gemm_n7168_k5120"
KERNELS = {
    each.name: each
    for each in (
        Kernel("ring", Target.SM_90A, "reference/demo/gemm.cu"),
        Kernel(
            "cluster",
            Target.SM_90A,
            f"{_REFERENCE}/sm_90a.cu",
            {"constexpr int kN = 7168, kK = 5120;": "constexpr int kN = 512, kK = 512;"},
        ),
        Kernel("attention", Target.SM_90A, "reference/mha_with_lse_d128/sm_90a.cu"),
        Kernel("tmem", Target.SM_100A, f"{_REFERENCE}/sm_100a.cu"),
        Kernel("pair", Target.SM_100A, f"{_REFERENCE}/sm_100a_pair.cu"),
    )
}


def _matrix(array: int, rows: int, columns: int, box_rows: int) -> MapOf:
    """A row-major bf16 matrix in SW128 boxes of 64 columns."""
    shape = TensorMap(
        type=Type.BF16,
        address=0,
        dims=(columns, rows),
        strides=(2 * columns,),
        box=(64, box_rows),
        element_strides=(1, 1),
        swizzle=Swizzle.B128,
    )
    return MapOf(array, shape)


def _words(*values: int) -> bytes:
    return b"".join(value.to_bytes(4, "little") for value in values)


def _product(m: int, n: int, k: int) -> tuple[tuple[Array, ...], Mapping[int, Array]]:
    """A, B and C of a GEMM: small whole numbers, whose sums are exact in every order; and the expected C."""
    random = np.random.default_rng(m + n + k)
    a, b = random.integers(-2, 3, (m, k)).astype(np.float32), random.integers(-2, 3, (n, k)).astype(np.float32)
    return (a.astype(BF16), b.astype(BF16), np.zeros((m, n), BF16)), {2: (a @ b.T).astype(BF16)}


def _ring() -> Problem:
    m, n, k = 128, 128, 768  # twelve slices through a ring of three
    arrays, expected = _product(m, n, k)
    maps: list[tuple[Piece, ...]] = [(_matrix(0, m, k, 128),), (_matrix(1, n, k, 128),)]
    parameters = (*maps, (PointerTo(2),), *[(_words(each),) for each in (m, n, k // 64)])
    return Problem((1, 1, 1), (288, 1, 1), 6 * 128 * 64 * 2 + 1024, arrays, expected, parameters)


def _cluster() -> Problem:
    m, n, k = 256, 512, 512  # one cluster computes two tiles, of eight slices through a ring of four
    arrays, expected = _product(m, n, k)
    maps = ((_matrix(0, m, k, 128),), (_matrix(1, n, k, 128),), (_matrix(2, m, n, 64),))
    parameters = (*maps, (_words(1),))
    shared = 4 * (128 + 256) * 128 + 4 * 64 * 128 + 2 * 4 * 8 + 1024
    return Problem((2, 1, 1), (384, 1, 1), shared, arrays, expected, parameters, (2, 1, 1))


def _heads(array: int, heads: int, rows: int, box_rows: int) -> MapOf:
    """[heads, rows, 128] in bf16 as (64 columns, row, half, head), in SW128 boxes of both halves of some rows."""
    shape = TensorMap(
        type=Type.BF16,
        address=0,
        dims=(64, rows, 2, heads),
        strides=(256, 128, rows * 256),
        box=(64, box_rows, 2, 1),
        element_strides=(1, 1, 1, 1),
        swizzle=Swizzle.B128,
    )
    return MapOf(array, shape)


def _attention() -> Problem:
    heads, rows, dim = 2, 256, 128  # one CTA computes four tiles, of two blocks through rings of three
    random = np.random.default_rng(heads + rows)
    q, k, v = (random.standard_normal((heads, rows, dim), np.float32).astype(BF16) for _ in range(3))
    scores = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1) / np.sqrt(np.float32(dim))
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    out = (weights / total) @ v.astype(np.float32)
    lse = (top + np.log(total))[..., 0]
    arrays = (q, k, v, np.zeros((heads, rows, dim), BF16), np.zeros((heads, rows), np.float32))
    maps: tuple[Piece, ...] = (_heads(0, heads, rows, 64), _heads(1, heads, rows, 128), _heads(2, heads, rows, 128))
    parameter = (*maps, PointerTo(3), PointerTo(4), _words(rows, heads, rows // 128, 1), bytes(96))
    shared = 2 * 64 * 256 + 6 * 128 * 256 + (4 * 3 + 4) * 8 + 8 + 1024
    return Problem(
        (1, 1, 1), (384, 1, 1), shared, arrays, {3: out, 4: lse}, (parameter,), tolerances={3: 0.01, 4: 1e-5}
    )


def _blackwell(ctas: int) -> Problem:
    m, n, k = 128 * ctas, 768, 256  # three tiles through two accumulators, of four slices through a ring of four or six
    arrays, expected = _product(m, n, k)
    maps = ((_matrix(0, m, k, 128),), (_matrix(1, n, k, 256 // ctas),), (_matrix(2, m, n, 128),))
    parameters = (*maps, (_words(1, n // 256, k // 64),))
    return Problem((ctas, 1, 1), (256, 1, 1), 227 << 10, arrays, expected, parameters, (ctas, 1, 1))


_PROBLEMS: Mapping[str, Callable[[], Problem]] = {
    "ring": _ring,
    "cluster": _cluster,
    "attention": _attention,
    "tmem": functools.partial(_blackwell, 1),
    "pair": functools.partial(_blackwell, 2),
}
