"""Operand bits for every type: the edges of each format, and random ones; knows no instruction."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tests.emulator.forms.numbers import LAYOUT

from ptxbench.emulator.ptx.examples import width_of

LETTER_BITS = {"p": 1, "b": 8, "h": 16, "r": 32, "d": 64, "q": 128}
_SMALL = (0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 23, 30, 31, 32, 33, 40, 63, 64, 65, 100, 127, 128, 255)


def bits_of(type_: str) -> int:
    """Width of the register that holds a type."""
    return LETTER_BITS[width_of(type_)]


def edges(type_: str) -> list[int]:
    """Bits at the edges of a type's range."""
    size = bits_of(type_)
    base = type_.partition("x")[0]
    if base in LAYOUT and base != "tf32":
        one = _float_edges(base)
        times = int(type_.partition("x")[2] or 1)
        width = 1 + sum(LAYOUT[base])
        if times == 1:
            return one
        return [sum(one[(i * 7 + j * 5) % len(one)] << width * j for j in range(times)) for i in range(len(one))]
    if size == 1:
        return [0, 1]
    top = 1 << (size - 1)
    near = [top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, top >> 1]
    return [each for each in (*_SMALL, *near) if each < 2 * top]


def _float_edges(format_: str) -> list[int]:
    exponent, fraction = LAYOUT[format_]
    top = 1 << (exponent + fraction)
    infinity = ((1 << exponent) - 1) << fraction
    bias = ((1 << (exponent - 1)) - 1) << fraction
    plain = [0, 1, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1, infinity - 1, infinity, infinity + 1]
    plain += [0x7FF7] if format_ in ("f16", "bf16") else []
    plain += [top - 1, infinity | 1 << (fraction - 1) if fraction > 1 else infinity]
    plain += [bias, bias - 1, bias + 1, bias + (1 << fraction), bias - (1 << fraction), bias + (3 << (fraction - 1))]
    return [each | sign for each in plain for sign in (0, top) if each < top]


def column(type_: str, lanes: int, rng: random.Random) -> list[int]:
    """A value for each lane: edges first, shuffled, then random bits of all magnitudes."""
    known = edges(type_)
    rng.shuffle(known)
    made = known[: lanes * 2 // 3]
    while len(made) < lanes:
        made.append(_random(type_, rng))
    rng.shuffle(made)
    return made


def _random(type_: str, rng: random.Random) -> int:
    size = bits_of(type_)
    base = type_.partition("x")[0]
    if base in ("f32", "f64", "f16", "bf16") and "x" not in type_:
        exponent, fraction = LAYOUT[base]
        bias = (1 << (exponent - 1)) - 1
        field = rng.randrange(bias - 4, bias + 9) if rng.random() < 0.7 else rng.randrange(1 << exponent)
        return rng.getrandbits(1) << (exponent + fraction) | field << fraction | rng.getrandbits(fraction)
    return rng.getrandbits(size) if rng.random() < 0.6 else rng.getrandbits(rng.randrange(1, size + 1))


def columns(types: Sequence[str], lanes: int, seed: str) -> list[list[int]]:
    """A column for each type, the same for the same seed."""
    rng = random.Random(seed)
    return [column(each, lanes, rng) for each in types]
