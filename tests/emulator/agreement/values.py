"""Inputs of the programs: bit patterns with every special value, the ties of conversions and random bits; no text.

The random bits come from SHAKE-256, so they are the same on every machine and with every library.
"""

from __future__ import annotations

import hashlib
import re
import struct

import numpy as np

CASES = 256
"""Threads of a scalar program, each with inputs of its own."""
SLOT = 16
"""Bytes of one input."""


def random_bytes(seed: str, count: int) -> bytes:
    """Bytes that follow from the seed."""
    return hashlib.shake_256(seed.encode()).digest(count)


def _float_bits(value: float, exponent: int, mantissa: int) -> int:
    """A number that the format holds exactly, as its bits."""
    bits = struct.unpack("<Q", struct.pack("<d", value))[0]
    sign, field, fraction = bits >> 63, bits >> 52 & 0x7FF, bits & ((1 << 52) - 1)
    moved = field - 1023 + (1 << (exponent - 1)) - 1 if field else 0
    if moved <= 0:
        moved, fraction = 0, (fraction | 1 << 52) >> (1 - moved) if field else 0
    return int(sign << (exponent + mantissa) | moved << mantissa | fraction >> (52 - mantissa))


_ORDINARY = (
    *(1.0, 1.5, 2.0, 2.5, 3.5, 0.5, 0.75, 0.25, 3.0, 127.0, 128.5, 255.0, 256.0, 1024.0, 448.0, 464.0, 240.0),
    *(480.0, 57344.0, 61440.0, 32768.0),
)
"""Exact in every format, or cut there."""
_FINE = (
    *(1 + 2.0**-3, 1 + 2.0**-4, 1 + 3 * 2.0**-4, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-11, 1 + 3 * 2.0**-11),
    *(1 + 2.0**-12, 2.0**-9, 2.0**-10, 3 * 2.0**-11, 2.0**-16, 2.0**-17, 2.0**-24, 2.0**-25, 3 * 2.0**-26),
    *(65504.0, 65519.0, 65520.0, 65536.0, 2.0**31, 2.0**31 - 128, 2.0**32, 2.0**63, 2.0**64, 2.0**15 - 0.5),
    *(2.0**-133, 2.0**-126, 0.1, 3.14159265, 1e10, 1e-10, 88.0, -87.5, 6.2831853),
)
"""Ties and limits of narrower formats, and of integers; rounded to f32."""


def _floats(exponent: int, mantissa: int) -> list[int]:
    top = ((1 << exponent) - 1) << mantissa
    sign = 1 << (exponent + mantissa)
    quiet = 1 << (mantissa - 1)
    ends = [0, 1, (1 << mantissa) - 1, 1 << mantissa, top - 1, top, top | quiet, top | 1, top | quiet | 5, sign - 1]
    numbers = [*_ORDINARY, *(_FINE if exponent >= 8 and mantissa > 7 else ())]
    ordinary = [_float_bits(float(np.float32(value)), exponent, mantissa) for value in numbers]
    return [each | flip for each in (*ends, *ordinary) for flip in (0, sign)]


def _integers(bits: int) -> list[int]:
    mask = (1 << bits) - 1
    small = [0, 1, 2, 3, 7, 8, 15, 16, 24, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 2047, 2049, 65519]
    near = [1 << (bits - 1), (1 << (bits - 1)) - 1, (1 << (bits - 1)) + 1, mask, mask - 1, 0x5555555555555555]
    ties = [(1 << 24) + 1, (1 << 24) + 3, (1 << 53) + 1, (1 << 53) + 3, 0x0123456789ABCDEF, 0xF0F0F0F00F0F0F0F]
    return [each & mask for each in (*small, *near, *ties, *(-each for each in small[1:10]))]


_FORMATS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "f64": (11, 52), "tf32": (8, 23)}


def bits_of(type_: str) -> int:
    """Width of a type, packed ones whole."""
    if type_ == "pred":
        return 1
    base, _, times = type_.partition("x")
    if re.match(r"e\dm\d", base):
        return 8 * int(times or 1)
    return int("".join(letter for letter in base if letter.isdecimal())) * int(times or 1)


def column(type_: str, place: int, seed: str) -> list[int]:
    """`CASES` values of a type for the operand at a place: specials against specials, then random ones."""
    base, _, times = type_.partition("x")
    if times:
        each = bits_of(base)
        parts = [column(base, place + 3 * part, f"{seed} {part}") for part in range(int(times))]
        return [sum(part[i] << each * number for number, part in enumerate(parts)) for i in range(CASES)]
    bits = bits_of(type_)
    mask = (1 << bits) - 1
    drawn = random_bytes(f"{seed} {place}", 16 * CASES)
    made = [int.from_bytes(drawn[i : i + 16], "little") & mask for i in range(0, len(drawn), 16)]
    if base in ("e4m3", "e5m2"):
        return [(i * (1, 7, 11, 13)[place % 4] + 3 * place) & mask for i in range(CASES)]
    specials = _floats(*_FORMATS[type_]) if type_ in _FORMATS else _integers(bits) if bits > 1 else [0, 1]
    step = (1, 7, 11, 13, 17, 19, 23)[place % 7]
    for i in range(CASES * 5 // 8):
        made[i] = specials[(i * step + (i // len(specials)) * (place + 1)) % len(specials)]
    if type_ in _FORMATS:
        for i in range(CASES * 5 // 8, CASES, 2):
            made[i] = _near_one(made[i], *_FORMATS[type_])
    return made


def _near_one(bits: int, exponent: int, mantissa: int) -> int:
    """The same sign and fraction, with an exponent near that of 1."""
    middle = (1 << (exponent - 1)) - 1
    field = middle - 4 + (bits >> mantissa) % 9
    return bits & ~(((1 << exponent) - 1) << mantissa) | field << mantissa


def slots(columns: list[list[int]]) -> bytes:
    """The columns one after another, each value in a slot."""
    return b"".join(value.to_bytes(SLOT, "little") for values in columns for value in values)
