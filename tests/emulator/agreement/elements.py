"""Elements of matrices as bits: near 1, widely spread, subnormal and special ones, by stretches; no text."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tests.emulator.agreement.values import random_bytes

Bits = NDArray[np.uint64]
_LAYOUT = {
    **{"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "tf32": (8, 23), "f64": (11, 52), "e4m3": (4, 3)},
    "e5m2": (5, 2),
}
WIDTH = {
    **{"b1": 1, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "f16": 16, "bf16": 16, "tf32": 32},
    **{"f32": 32, "s32": 32, "f64": 64},
}
NIBBLES = {"tf32": (0b0100, 0b1110)}
"""Metadata of one group of a sparse matrix: which element of a pair; else which two of four."""
PAIRS = (0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110)


def elements(type_: str, count: int, seed: str) -> Bits:
    """`count` bit patterns: a quarter near 1, a quarter spread, a quarter tiny, a quarter with specials among them."""
    drawn = np.frombuffer(random_bytes(f"{seed} {type_}", 8 * count), np.uint64).copy()
    mask = np.uint64((1 << WIDTH[type_]) - 1)
    if type_ == "s32":
        near = np.where(drawn & np.uint64(1 << 40), np.uint64(0x7FFFFF00), np.uint64(0x80000000))
        near = near + (drawn & np.uint64(0xFF))
        return np.where(np.arange(count) % 4 == 3, near, drawn & mask)
    if type_ not in _LAYOUT:
        return drawn & mask
    exponent, mantissa = _LAYOUT[type_]
    quarter = np.arange(count) * 4 // count
    middle = (1 << (exponent - 1)) - 1
    draw = (drawn >> np.uint64(40)).astype(np.int64) & 0xFFFF
    wide = min(12, middle - 2)
    field = np.select(
        [quarter == 0, quarter == 1, quarter == 2],
        [middle - 2 + draw % 5, middle - wide + draw % (2 * wide + 1), draw % 4],
        middle - 1 + draw % 3,
    )
    top = (1 << exponent) - 1
    field = np.minimum(field, top - 1)
    low = np.uint64((1 << mantissa) - 1)
    # The draw below has its own bits: sign at 63, fraction from 0 on; fractions of f64 share theirs with the exponent.
    made = (drawn >> np.uint64(63)) << np.uint64(exponent + mantissa) | field.astype(np.uint64) << np.uint64(mantissa)
    made |= drawn & low
    specials = [0, 1 << (exponent + mantissa), (top << mantissa) - 1, 1]
    if type_ == "e4m3":
        specials += [0x7E, 0xFE, 0x7F]
    else:
        specials += [
            top << mantissa,
            top << mantissa | 1 << (exponent + mantissa),
            top << mantissa | 1 << (mantissa - 1),
        ]
    chosen = (quarter == 3) & (draw % 61 == 0)
    made[chosen] = np.array(specials, np.uint64)[(draw[chosen] // 61) % len(specials)]
    return made & mask


def packed(bits: Bits, type_: str) -> bytes:
    """The patterns one after another, the first lowest."""
    width = WIDTH[type_]
    if width >= 8:
        return bits.astype(f"<u{width // 8}").tobytes()
    per = 8 // width
    grouped = bits.reshape(-1, per).astype(np.uint8)
    return np.bitwise_or.reduce(grouped << (np.arange(per, dtype=np.uint8) * width), axis=1).astype(np.uint8).tobytes()


def block(type_: str, size: int, seed: str) -> bytes:
    """`size` bytes of elements."""
    return packed(elements(type_, size * 8 // WIDTH[type_], seed), type_)


def metadata(type_: str, words: int, seed: str) -> bytes:
    """Valid metadata of sparse matrices."""
    choices = np.array(NIBBLES.get(type_, PAIRS), np.uint64)
    drawn = np.frombuffer(random_bytes(f"{seed} metadata", 8 * words), np.uint8)
    return packed(choices[drawn % len(choices)], "u4")
