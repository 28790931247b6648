"""The H200's tensor-core arithmetic bit for bit; knows no instruction and no layout.

One step adds all products and the addend at once: each term is aligned to the largest exponent of any, its magnitude
truncated to F fraction bits, the terms summed exactly, and the sum rounded once. A product's exponent is the sum of its
factors' exponents, not normalised. Measured on an H200, no mismatch in 327680 results of each type; the published
account of the scheme is "MMA-Sim: Bit-Accurate Reference Model of Tensor Cores and Matrix Cores" (arXiv 2511.10909).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxbench.emulator.codegen.scalar.floating import fma_f32
from ptxbench.emulator.tensor.fast import to_f16, to_f32
from ptxbench.emulator.tensor.formats import FORMATS, NOTHING, Bits, Format, Parts, parts


@dataclass(frozen=True)
class Step:
    """How a kind of unit rounds."""

    fraction: int
    """Fraction bits kept of each aligned term."""
    result: str
    """`f32`: truncated to 23 fraction bits; `f32short`: truncated to 13; `f16`: to nearest even."""


WIDE = Step(25, "f32")
SHORT = Step(13, "f32short")
WIDE_HALF = Step(25, "f16")
SHORT_HALF = Step(13, "f16")


@np.errstate(all="ignore")
def fused(a: Bits, b: Bits, types: tuple[Format, Format], addend: NDArray[np.float32] | None, step: Step) -> Bits:
    """One step: A times B transposed plus the addend.

    Args:
        a: Element bits [..., M, K].
        b: Element bits [..., N, K].
        types: Formats of A and B.
        addend: float32 [..., M, N] (a float16 addend converted), or None for no addend.
        step: The unit's rounding.

    Returns:
        Bits [..., M, N]: uint32 of float32, or uint16 of float16.
    """
    left, right = parts(a, types[0]), parts(b, types[1])
    added = None if addend is None else parts(np.ascontiguousarray(addend).view(np.uint32), FORMATS["f32"])
    bits = _rounded(_sum(left, right, added, step.fraction), step)
    if any(each is not None and each.special is not None for each in (left, right, added)):
        bits = _with_specials(bits, left, right, added)
    return bits


def _sum(a: Parts, b: Parts, c: Parts | None, fraction: int) -> NDArray[np.float64]:
    """The aligned, truncated terms' sum; float64 holds every number on the way exactly."""
    depth = range(a.values.shape[-1])
    largest = np.full((), NOTHING, np.int32) if c is None else c.exponents
    for k in depth:
        largest = np.maximum(largest, a.exponents[..., :, None, k] + b.exponents[..., None, :, k])
    down = np.where(largest < NOTHING // 2, 0, fraction - largest)
    scale = np.ldexp(1.0, down)
    total = np.zeros(scale.shape) if c is None else np.trunc(c.values * scale)
    for k in depth:
        total += np.trunc(a.values[..., :, None, k] * b.values[..., None, :, k] * scale)
    exact: NDArray[np.float64] = np.ldexp(total, -down)
    return exact


def _rounded(exact: NDArray[np.float64], step: Step) -> Bits:
    if step.result == "f16":
        halves = to_f16(exact)
        return np.where((halves & np.uint16(0x7FFF)) == 0, np.uint16(0), halves)  # a zero is positive
    bits = truncated(exact).view(np.uint32)
    return bits & np.uint32(0xFFFFFC00) if step.result == "f32short" else bits


@np.errstate(all="ignore")
def truncated(exact: NDArray[np.float64]) -> NDArray[np.float32]:
    """float64 to float32 toward zero; what is 2^128 or more becomes infinite, and zero is positive."""
    nearest = exact.astype(np.float32)
    beyond = np.abs(nearest.astype(np.float64)) > np.abs(exact)
    result = np.where(beyond & (np.abs(exact) < 2.0**128), np.nextafter(nearest, np.float32(0)), nearest)
    return np.where(result == 0, np.float32(0), result)


def _with_specials(bits: Bits, a: Parts, b: Parts, c: Parts | None) -> Bits:
    """The results where an operand is infinite or NaN: as if all finite operands were 1, -1 or 0."""
    left, right = _signs(a), _signs(b)
    outcome = (left[..., :, None, :] * right[..., None, :, :]).sum(axis=-1)
    if c is not None and c.special is not None:
        outcome = outcome + np.where(np.isfinite(c.special), 0.0, c.special)
    special: NDArray[np.float64] = outcome
    shown: Bits = to_f16(special) if bits.dtype == np.uint16 else to_f32(special.astype(np.float32))
    return np.where(np.isfinite(special), bits, shown)


def _signs(of: Parts) -> NDArray[Any]:
    return np.sign(of.values) if of.special is None else of.special


@np.errstate(all="ignore")
def split_eight_bit(a: Bits, b: Bits, types: tuple[Format, Format], addend: Bits) -> Bits:
    """mma.sync on fp8 operands: Hopper converts them to float16 and takes two steps, then adds C on its own.

    The first step takes bytes 0 and 1 of every 32-bit register, the second bytes 2 and 3 on top of it; a float32
    addition (to nearest even), or a float16 one, brings in C.

    Args:
        a: Element bits [..., M, K]; K a multiple of 4.
        b: Element bits [..., N, K].
        types: Formats of A and B.
        addend: uint32 bits of float32 or uint16 bits of float16, [..., M, N].
    """
    half = addend.dtype == np.uint16
    step = WIDE_HALF if half else WIDE
    first = np.arange(a.shape[-1]) % 4 < 2
    low = fused(a[..., first], b[..., first], types, None, step)
    high = fused(a[..., ~first], b[..., ~first], types, as_f32(low), step)
    total = as_f32(high) + as_f32(addend)
    return to_f16(total) if half else to_f32(total)


@np.errstate(all="ignore")
def chained(a: Bits, b: Bits, addend: NDArray[np.float32], half: bool) -> Bits:
    """float16 products of mma.sync.m8n8k4, for which Hopper has no unit: float32 fused multiply-adds along K, then C.

    Args:
        a: Element bits [..., M, K].
        b: Element bits [..., N, K].
        addend: C as float32, [..., M, N].
        half: Whether the result is rounded to float16.
    """
    left, right = as_f32(a), as_f32(b)
    total = np.zeros((), np.float32)
    for k in range(a.shape[-1]):
        total = fma_f32(left[..., :, None, k], right[..., None, :, k], total, "rn")
    total = total + addend
    return to_f16(total) if half else to_f32(total)


def as_f32(bits: Bits) -> NDArray[np.float32]:
    """Bits of float16 or float32 as float32."""
    return bits.view(np.float16).astype(np.float32) if bits.dtype == np.uint16 else bits.view(np.float32)
