"""The exact arithmetic against its model in rational numbers, and against the values that an H200 gave."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from ptxbench.emulator.tensor import exact
from ptxbench.emulator.tensor.exact import SHORT, SHORT_HALF, WIDE, WIDE_HALF, Step, fused, split_eight_bit
from ptxbench.emulator.tensor.formats import FORMATS, Bits

LAYOUT = {"bf16": (8, 7), "f16": (5, 10), "tf32": (8, 10), "e4m3": (4, 3), "e5m2": (5, 2), "f32": (8, 23)}


def _number(bits: int, name: str) -> tuple[Fraction, int]:
    """The value of finite bits and the exponent that its format gives it (subnormals: the smallest)."""
    exponent_bits, mantissa_bits = LAYOUT[name]
    if name == "tf32":
        bits >>= 13
    sign = -1 if bits >> (exponent_bits + mantissa_bits) else 1
    field = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    exponent = max(field, 1) - ((1 << (exponent_bits - 1)) - 1)
    fraction = Fraction(bits & ((1 << mantissa_bits) - 1), 1 << mantissa_bits) + (1 if field else 0)
    return sign * fraction * Fraction(2) ** exponent, exponent


def _cut(value: Fraction, quantum: Fraction) -> Fraction:
    return Fraction(math.trunc(value / quantum)) * quantum


def _model(a: list[int], b: list[int], names: tuple[str, str], c: int, step: Step) -> Fraction:
    """The aligned, truncated sum of one output, before the last rounding."""
    terms = []
    for x, y in zip(a, b, strict=True):
        (u, e), (v, f) = _number(x, names[0]), _number(y, names[1])
        terms.append((u * v, e + f))
    terms.append(_number(c, "f32"))
    used = [term for term in terms if term[0]]
    if not used:
        return Fraction(0)
    quantum = Fraction(2) ** (max(exponent for _, exponent in used) - step.fraction)
    return sum((_cut(value, quantum) for value, _ in used), Fraction(0))


def _f32_cut(value: Fraction, bits: int) -> int:
    """float32 bits of a value truncated to that many fraction bits."""
    if not value:
        return 0
    magnitude = abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > magnitude
    kept = _cut(value, Fraction(2) ** (max(exponent, -126) - bits))
    return int(struct.unpack("<I", struct.pack("<f", float(kept)))[0]) if kept else 0


def _f16_near(value: Fraction) -> int:
    """float16 bits to nearest even: the sum has few enough bits for float64."""
    assert Fraction(float(value)) == value
    with np.errstate(over="ignore"):
        bits = int(np.float64(float(value)).astype(np.float16).view(np.uint16))
    return bits if value else 0


def _random(name: str, shape: tuple[int, ...], spread: int, rng: np.random.Generator) -> Bits:
    values = rng.choice([-1, 1], shape) * (1 + rng.random(shape)) * 2.0 ** rng.integers(-spread, spread + 1, shape)
    types = {
        "bf16": ml_dtypes.bfloat16,
        "f16": np.float16,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
    }
    if name == "tf32":
        return values.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    limit = 440.0 if name == "e4m3" else 5e4
    bits: Bits = np.clip(values, -limit, limit).astype(types[name]).view(f"uint{FORMATS[name].bits}")
    return bits


CASES = [
    (("bf16", "bf16"), 16, WIDE),
    (("f16", "f16"), 16, WIDE),
    (("tf32", "tf32"), 8, WIDE),
    (("e4m3", "e4m3"), 32, SHORT),
    (("e5m2", "e4m3"), 32, SHORT),
    (("f16", "f16"), 16, WIDE_HALF),
    (("e4m3", "e5m2"), 32, SHORT_HALF),
]


@pytest.mark.parametrize("spread", [1, 4, 12])
@pytest.mark.parametrize(("names", "depth", "step"), CASES, ids=str)
def test_one_step_is_the_model_in_rational_numbers(names: tuple[str, str], depth: int, step: Step, spread: int) -> None:
    rng = np.random.default_rng(spread)
    a, b = _random(names[0], (8, depth), spread, rng), _random(names[1], (4, depth), spread, rng)
    c = (rng.normal(size=(8, 4)) * 2.0**spread).astype(np.float32)
    made = fused(a, b, (FORMATS[names[0]], FORMATS[names[1]]), c, step)
    for i in range(8):
        for j in range(4):
            total = _model(a[i].tolist(), b[j].tolist(), names, int(c.view(np.uint32)[i, j]), step)
            if step.result == "f16":
                assert made[i, j] == _f16_near(total)
            else:
                assert hex(made[i, j]) == hex(_f32_cut(total, 23 if step.result == "f32" else 13))


def _one(names: tuple[str, str], terms: list[tuple[float, float]], c: float | int, step: Step) -> int:
    """One output from a few products; c as a number, or as bits if it is an integer."""
    depth = {8: 32, 16: 16, 32: 8}[FORMATS[names[0]].bits]
    columns = [_encoded(name, [pair[side] for pair in terms], depth) for side, name in enumerate(names)]
    addend = np.array([[c]], np.uint32).view(np.float32) if isinstance(c, int) else np.array([[c]], np.float32)
    types = (FORMATS[names[0]], FORMATS[names[1]])
    return int(fused(columns[0][None], columns[1][None], types, addend, step)[0, 0])


def _encoded(name: str, values: list[float], depth: int) -> Bits:
    padded = np.array(values + [0.0] * (depth - len(values)), np.float32)
    if name == "tf32":
        return padded.view(np.uint32)
    types = {
        "bf16": ml_dtypes.bfloat16,
        "f16": np.float16,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
    }
    with np.errstate(all="ignore"):
        made: Bits = padded.astype(types[name]).view(f"uint{FORMATS[name].bits}")
    return made


INF, NAN, MAX = math.inf, math.nan, 3.4028234663852886e38
BF16, E4, E5 = ("bf16", "bf16"), ("e4m3", "e4m3"), ("e5m2", "e5m2")
SPECIALS = [
    (BF16, [(NAN, 1)], 0.0, WIDE, 0x7FFFFFFF),
    (BF16, [(INF, 1)], 0.0, WIDE, 0x7F800000),
    (BF16, [(INF, 1), (-INF, 1)], 0.0, WIDE, 0x7FFFFFFF),
    (BF16, [(-INF, 1)], 0.0, WIDE, 0xFF800000),
    (BF16, [(INF, 0)], 0.0, WIDE, 0x7FFFFFFF),
    (BF16, [], NAN, WIDE, 0x7FFFFFFF),
    (BF16, [], INF, WIDE, 0x7F800000),
    (BF16, [], 0xFFC54321, WIDE, 0x7FFFFFFF),
    (BF16, [], 0x7F800001, WIDE, 0x7FFFFFFF),
    (BF16, [(3.3e38, 1)], MAX, WIDE, 0x7F800000),
    (("f16", "f16"), [(65504, 1)], MAX, WIDE, 0x7F7FFFFF),
    (E4, [(448, 1)], MAX, SHORT, 0x7F7FFC00),
    (E5, [(57344, 1)], MAX, SHORT, 0x7F7FFC00),
    (BF16, [], 0x80000000, WIDE, 0),
    (BF16, [(-0.0, 1), (-0.0, 1)], 0x80000000, WIDE, 0),
    (BF16, [(-1, 1)], 1.0, WIDE, 0),
    (BF16, [], 0x00000001, WIDE, 0x00000001),
    (E4, [], 0x00000001, SHORT, 0),
    (BF16, [], 0x00C00000, WIDE, 0x00C00000),
    (BF16, [(2.0**-133, 1)], 0.0, WIDE, 0x00010000),
    (BF16, [(-(2.0**-133), 1)], 0.0, WIDE, 0x80010000),
    (("f16", "f16"), [(2.0**-24, 1)], 0.0, WIDE, 0x33800000),
    (E4, [(-(2.0**-9), 1)], 0.0, SHORT, 0xBB000000),
    (E5, [(2.0**-16, 1)], 0.0, SHORT, 0x37800000),
    (BF16, [(15, 1)], 65504.0, WIDE, 0x477FEF00),
    (E4, [(15, 1)], 65504.0, SHORT, 0x477FEC00),
    (E5, [(16, 1)], 65504.0, SHORT, 0x477FF000),
    (("f16", "f16"), [(16, 1)], 65504.0, WIDE_HALF, 0x7C00),
    (("f16", "f16"), [(15, 1)], 65504.0, WIDE_HALF, 0x7BFF),
    (("f16", "f16"), [], INF, WIDE_HALF, 0x7C00),
    (E4, [], NAN, SHORT_HALF, 0x7FFF),
]


@pytest.mark.parametrize(("names", "terms", "c", "step", "expected"), SPECIALS)
def test_special_values_are_the_devices(
    names: tuple[str, str], terms: list[tuple[float, float]], c: float | int, step: Step, expected: int
) -> None:
    assert hex(_one(names, terms, c, step)) == hex(expected)


def test_a_tf32_nan_in_the_dropped_bits_is_infinite() -> None:
    a = np.zeros((1, 8), np.uint32)
    b = np.full((1, 8), 0x3F800000, np.uint32)
    types = (FORMATS["tf32"],) * 2
    a[0, 0] = 0x7F801FFF
    assert fused(a, b, types, None, WIDE)[0, 0] == 0x7F800000
    a[0, 0] = 0xFFC12345
    assert fused(a, b, types, None, WIDE)[0, 0] == 0x7FFFFFFF


def _survivors(names: tuple[str, str], step: Step, c: float, big: list[tuple[float, float]], top: int) -> list[float]:
    """What is left of 2^(top - j) beside big terms, for j = 8, 9, ... while the operand's format holds it."""
    smallest = {"bf16": -14, "f16": -14, "e4m3": -6}[names[0]]
    found = []
    for exponent in range(0, smallest - 1, -1):
        bits = _one(names, [*big, (2.0**exponent * 2.0 ** (top - 8), 1)], c, step)
        found.append(float(np.uint32(bits).view(np.float32)))
    return found


def test_cancelled_terms_still_limit_the_small_ones() -> None:
    """C = -2^8 and +2^8 cancel; beside them 2^(8-j) survives to j = 22 at least (16-bit types), to 13 (8-bit types)."""
    wide = _survivors(BF16, WIDE, -256.0, [(256.0, 1)], 8)
    assert wide == [2.0**-i for i in range(15)]
    short = _survivors(E4, SHORT, -256.0, [(256.0, 1)], 8)
    assert short == [*(2.0**-i for i in range(6)), 0.0]


def test_negative_addends_show_the_truncated_sum() -> None:
    """C = -2^14 plus 2^(14-j): the device's bits for j = 10 to 28."""
    device = (
        "c67fc000 c67fe000 c67ff000 c67ff800 c67ffc00 c67ffe00 c67fff00 c67fff80 c67fffc0 c67fffe0 c67ffff0 c67ffff8"
    )
    device += " c67ffffc c67ffffe c67fffff c67fffff c6800000 c6800000 c6800000"
    made = [_one(BF16, [(2.0 ** (4 - j), 1)], -16384.0, WIDE) for j in range(19)]
    assert [f"{each:08x}" for each in made] == device.split()


def test_fp8_mma_takes_two_steps_and_adds_c_last() -> None:
    """A pair that cancels in the second step cannot wipe out a small term of the first."""
    a = np.zeros((1, 32), np.uint8)
    b = np.array([[1.0] * 32], np.float32).astype(ml_dtypes.float8_e5m2).view(np.uint8)
    types = (FORMATS["e5m2"],) * 2

    def code(value: float) -> int:
        return int(np.float32(value).astype(ml_dtypes.float8_e5m2).view(np.uint8))

    a[0, 0], a[0, 2], a[0, 3] = code(2.0**-14), code(2.0**14), code(-(2.0**14))
    zero = np.zeros((1, 1), np.uint32)
    assert split_eight_bit(a, b, types, zero)[0, 0] == 0
    a[0, 0], a[0, 1] = code(2.0**14), code(-(2.0**14))
    a[0, 2], a[0, 3] = code(2.0**-14), 0
    assert split_eight_bit(a, b, types, zero)[0, 0] == 0x38800000
    one = np.array([[0x3F800000]], np.uint32)
    a[0, :4] = [code(2.0**-14), 0, code(1.0), 0]
    assert split_eight_bit(a, b, types, one)[0, 0] == 0x40000100
    half = np.array([[0x3C00]], np.uint16)
    assert split_eight_bit(a, b, types, half)[0, 0] == 0x4000


def test_truncation_goes_toward_zero_and_overflows_at_two_to_the_128() -> None:
    values: NDArray[np.float64] = np.array([1 + 2.0**-24, -(1 + 2.0**-24), 2.0**128 - 2.0**80, 2.0**128, -(2.0**-150)])
    with np.errstate(all="ignore"):
        made = exact.truncated(values).view(np.uint32)
    assert [hex(each) for each in made] == ["0x3f800000", "0xbf800000", "0x7f7fffff", "0x7f800000", "0x0"]
