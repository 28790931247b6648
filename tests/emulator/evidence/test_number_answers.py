"""What an H200 answered about arithmetic: scans over all inputs, sampled, and the steps of the tensor cores."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.evidence.probing import emulated
from tests.emulator.scalar.conftest import read, run, value_of
from tests.gpu.probes.operands import column
from tests.gpu.probes.probe import Probe
from tests.gpu.probes.warpgroups import PAIRS, Case, drawn

from ptxbench.emulator.codegen.scalar.operations import scalar_operation
from ptxbench.emulator.tensor.exact import SHORT, WIDE, Step, fused
from ptxbench.emulator.tensor.formats import FORMATS

TAU = 2 * math.pi


def execute(text: str, *columns: list[int]) -> list[int]:
    operation = scalar_operation(read(text))
    assert operation is not None
    made: list[int] = run(operation, *columns)
    return made


def f32(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


class Scan(NamedTuple):
    """A function, and the greatest errors measured over all inputs: in ulp (normal, subnormal), absolute."""

    text: str
    function: Callable[[float], float]
    low: float
    high: float
    ulp: float = math.inf
    subnormal: float = math.inf
    absolute: float = math.inf
    worst: int = 0x3F800000


SCANS = [
    Scan("ex2.approx.f32", lambda x: 2.0**x, -149, 128, 2.055, 2.383, worst=0xC2FA2804),
    Scan("ex2.approx.ftz.f32", lambda x: 2.0**x, -126, 128, 2.055, worst=0xC2FA2804),
    Scan("lg2.approx.f32", math.log2, 2, 3.4e38, 2.3, worst=0x40800000),
    Scan("lg2.approx.f32", math.log2, 1.5e-45, 0.5, 2.3, worst=0x3E856FEF),
    Scan("lg2.approx.f32", math.log2, 0.5, 2, absolute=2**-22.148, worst=0x3F075FFF),
    Scan("rcp.approx.f32", lambda x: 1 / x, 3e-39, 3.4e38, 0.975, 0.985, worst=0x7E01CFFF),
    Scan("rsqrt.approx.f32", lambda x: x**-0.5, 1.5e-45, 3.4e38, 1.515, worst=0x7E820399),
    Scan("sqrt.approx.f32", math.sqrt, 1.5e-45, 3.4e38, 0.944, worst=0x7F3A9D02),
    Scan("tanh.approx.f32", math.tanh, -20, 20, 134, 0, 2**-16.934, worst=0xBF9BFFF8),
    Scan("sin.approx.f32", math.sin, -TAU, TAU, absolute=2**-20.552, worst=0xC0527E14),
    Scan("cos.approx.f32", math.cos, -TAU, TAU, absolute=2**-20.427, worst=0xC09CCDB6),
    Scan("sin.approx.f32", math.sin, -314, 314, absolute=2**-14.740),
    Scan("cos.approx.f32", math.cos, -314, 314, absolute=2**-14.738),
]


def _inputs(scan: Scan) -> list[int]:
    """Random bits within the domain, and the worst input."""
    rng = np.random.default_rng(zlib.crc32(scan.text.encode()))
    bits = rng.integers(0, 1 << 32, 60_000, np.uint32)
    uniform = rng.uniform(max(scan.low, -1e6), min(scan.high, 1e6), 4000).astype(np.float32).view(np.uint32)
    both = np.concatenate([bits, uniform, np.array([scan.worst], np.uint32)])
    with np.errstate(invalid="ignore"):
        values = both.view(np.float32).astype(np.float64)
    chosen: list[int] = both[(values > scan.low) & (values < scan.high)].tolist()
    return chosen[-4000:]


@pytest.mark.parametrize("scan", SCANS, ids=lambda scan: f"{scan.text} {scan.low:.3g} to {scan.high:.3g}")
def test_an_approximation_is_as_near_as_on_the_hardware(scan: Scan) -> None:
    """Of all inputs the hardware was within these bounds; so is the emulator, half a unit for its own rounding."""
    inputs = _inputs(scan)
    for bits, made in zip(inputs, execute(f"{scan.text} %r1, %r2;", inputs), strict=True):
        exact = scan.function(f32(bits))
        error = abs(f32(made) - exact)
        unit = 2.0 ** (max(math.frexp(exact)[1] - 24, -149)) if exact else 2.0**-149
        bound = scan.ulp if abs(exact) >= 2.0**-126 else scan.subnormal
        assert error <= min(bound * unit, scan.absolute) or error <= unit / 2, (hex(bits), hex(made), error / unit)


HALVES = [
    ("ex2.approx.f16 %h1, %h2;", "f16", lambda x: 2.0**x, 1.0, math.inf),
    ("ex2.approx.ftz.bf16 %h1, %h2;", "bf16", lambda x: 2.0**x, 1.0, math.inf),
    ("tanh.approx.f16 %h1, %h2;", "f16", math.tanh, math.inf, 2**-10.987),
    ("tanh.approx.bf16 %h1, %h2;", "bf16", math.tanh, math.inf, 2**-8.0),
]


@pytest.mark.parametrize(("text", "kind", "function", "ulp", "absolute"), HALVES, ids=lambda each: str(each)[:20])
def test_a_half_precision_approximation_is_as_near_as_on_the_hardware(
    text: str, kind: str, function: Callable[[float], float], ulp: float, absolute: float
) -> None:
    """All inputs whose results are normal numbers."""
    exponent, mantissa = (5, 10) if kind == "f16" else (8, 7)
    top, bias = (1 << exponent) - 1 << mantissa, (1 << exponent - 1) - 1
    inputs = [bits for bits in range(1 << 16) if bits & 0x7FFF < top and bits & 0x7FFF > 1 << mantissa]
    for bits, made in zip(inputs, execute(text, inputs), strict=True):
        x = float(value_of(bits, kind))
        exact = function(x) if abs(x) < 200 else math.inf
        if not 2.0 ** (1 - bias) <= abs(exact) < 2.0**bias:
            continue
        unit = 2.0 ** (math.frexp(exact)[1] - 1 - mantissa)
        assert abs(float(value_of(made, kind)) - exact) <= min(ulp * unit, absolute), (hex(bits), hex(made))


def test_quotients_are_as_near_as_on_the_hardware() -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(0x3F800000, 0x40000000, 6000, np.uint32).tolist() for _ in range(2))
    for name, ulp in (("div.approx.f32", 1.954), ("div.full.f32", 1.852)):
        for x, y, made in zip(a, b, execute(f"{name} %r1, %r2, %r3;", a, b), strict=True):
            exact = f32(x) / f32(y)
            assert abs(f32(made) - exact) <= ulp * 2.0 ** (math.frexp(exact)[1] - 24)


# instruction: bits in, bits out
SAMPLES = {
    "ex2.approx": "00000001 3f800000 c3150000 00000001 c2fd0000 005a827a 42ffffff 7f7fffa7",
    "ex2.approx.ftz": "c3150000 00000000",
    "lg2.approx": "00000001 c3150000 80000001 7fffffff",
    "lg2.approx.ftz": "00000001 ff800000 80000001 ff800000",
    "rcp.approx": "7f7fffff 00200000 00000001 7f800000",
    "rcp.approx.ftz": "7f7fffff 00000000",
    "rsqrt.approx": "00000001 64b504f3 80000001 7fffffff",
    "rsqrt.approx.ftz": "00000001 7f800000 80000001 ff800000",
    "sqrt.approx": "00000001 1a3504f3 80000001 7fffffff",
    "sqrt.approx.ftz": "80000001 80000000",
    "tanh.approx": "3f800000 3f42f848",
    "sin.approx": "3f800000 3f576aa4",
    "cos.approx": "3f800000 3f0a5140",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_of_an_approximation_is_the_devices(name: str) -> None:
    """Special values exactly, numbers within the bound of their function."""
    words = [int(each, 16) for each in SAMPLES[name].split()]
    for given, device in zip(words[::2], words[1::2], strict=True):
        (made,) = execute(f"{name}.f32 %r1, %r2;", [given])
        if device & 0x7FFFFFFF in (0, 0x7F800000, 0x7FFFFFFF):
            assert hex(made) == hex(device)
        else:
            assert abs(made - device) <= (134 if name.startswith("tanh") else 3)


def test_the_quotient_by_a_huge_number_is_zero_or_no_number() -> None:
    a, huge = [0x3F800000, 0x7F800000], [0x7F000000] * 2
    assert execute("div.approx.f32 %r1, %r2, %r3;", a, [0x7F000001] * 2) == [0, 0x7FFFFFFF]
    assert execute("div.full.f32 %r1, %r2, %r3;", a, huge) == [0x00400000, 0x7F800000]


class Narrow(NamedTuple):
    """A narrower format as the conversions see it."""

    exponent: int
    mantissa: int
    most: int
    """Greatest finite code."""
    nan: int
    infinity: int | None


NARROW = {
    "bf16": Narrow(8, 7, 0x7F7F, 0x7FFF, 0x7F80),
    "f16": Narrow(5, 10, 0x7BFF, 0x7FFF, 0x7C00),
    "e4m3": Narrow(4, 3, 0x7E, 0x7F, None),
    "e5m2": Narrow(5, 2, 0x7B, 0x7F, None),
    "tf32": Narrow(8, 10, 0x3FBFF, 0x3FFFF, 0x3FC00),
}


def _model(bits: int, kind: str, *, nearest: bool, relu: bool) -> int:
    """One conversion from f32 in integers: nearest even or toward zero, gradual underflow."""
    form = NARROW[kind]
    sign, magnitude = bits >> 31, bits & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return form.nan
    if relu and sign:
        return 0
    top = sign << (form.exponent + form.mantissa)
    if magnitude == 0x7F800000:
        return top | (form.most if form.infinity is None else form.infinity)
    fraction = magnitude & 0x7FFFFF | (0x800000 if magnitude >> 23 else 0)
    exponent = max(magnitude >> 23, 1) - 127
    lowest = 2 - (1 << form.exponent - 1)
    drop = 23 - form.mantissa + max(lowest - exponent, 0)
    kept, rest = fraction >> drop, fraction & ((1 << drop) - 1)
    if nearest and (rest << 1) + (kept & 1) > 1 << drop:
        kept += 1
    code = kept + (max(exponent - lowest, 0) << form.mantissa)
    if code > form.most:
        code = form.infinity if form.infinity is not None and nearest else form.most
    return top | code


FORMS = [
    *(
        (f"cvt.{mode}{relu}.{kind}x2.f32", kind)
        for mode in ("rn", "rz")
        for relu in ("", ".relu")
        for kind in ("bf16", "f16")
    ),
    *((f"cvt.rn.{kind}.f32", kind) for kind in ("bf16", "f16")),
    *((f"cvt.rn.satfinite{relu}.{kind}x2.f32", kind) for relu in ("", ".relu") for kind in ("e4m3", "e5m2")),
    *((f"cvt.{mode}.tf32.f32", "tf32") for mode in ("rn", "rz", "rn.relu")),
]


def _words(name: str) -> list[int]:
    edges = column(name, "f32", 1500).tolist()
    near = [
        (exponent << 23 | low) for exponent in range(0, 255, 3) for low in (0, 1, 0xFFF, 0x1000, 0x7FFFFF, 0x400001)
    ]
    return [*edges, *near, *(each | 1 << 31 for each in near)]


@pytest.mark.parametrize(("name", "kind"), FORMS)
def test_a_conversion_is_the_simple_model_in_integers(name: str, kind: str) -> None:
    words = _words(name)
    expected = [_model(each, kind, nearest=".rz" not in name, relu="relu" in name) for each in words]
    if kind == "tf32":
        assert execute(f"{name} %r1, %r2;", words) == [each << 13 for each in expected]
        return
    if "x2" not in name:
        assert execute(f"{name} %h1, %r2;", words) == expected
        return
    width = 8 if kind in ("e4m3", "e5m2") else 16
    made = execute(f"{name} {'%h1' if width == 8 else '%r1'}, %r2, %r3;", words, words[::-1])
    assert made == [high << width | low for high, low in zip(expected, expected[::-1], strict=True)]


def test_rna_to_tf32_adds_half_a_unit_to_finite_numbers_and_cuts_the_others() -> None:
    words = _words("rna")
    finite = [each & 0x7FFFFFFF < 0x7F800000 for each in words]
    expected = [(each + 0x1000 if real else each) & 0xFFFFE000 for each, real in zip(words, finite, strict=True)]
    assert execute("cvt.rna.tf32.f32 %r1, %r2;", words) == expected


def _code(kind: str, value: float) -> int:
    dtype = {"bf16": ml_dtypes.bfloat16, "e5m2": ml_dtypes.float8_e5m2}[kind]
    return int(np.float32(value).astype(dtype).view(f"uint{FORMATS[kind].bits}"))


def _pairs(kind: str, depth: int) -> Iterator[tuple[int, int]]:
    """A cancelling pair at i and i + 1, a small term at k."""
    for first in range(depth - 1):
        for small in range(depth):
            if small not in (first, first + 1):
                yield first, small


@pytest.mark.parametrize(("kind", "depth", "step", "small"), [("bf16", 16, WIDE, -12), ("e5m2", 32, SHORT, 1)])
def test_a_cancelling_pair_anywhere_wipes_a_small_term_anywhere(kind: str, depth: int, step: Step, small: int) -> None:
    """One step takes all products: no order of partial sums could do this."""
    places = list(_pairs(kind, depth))
    a = np.zeros((len(places), depth), f"u{FORMATS[kind].bits // 8}")
    for row, (first, where) in enumerate(places):
        a[row, first], a[row, first + 1], a[row, where] = (
            _code(kind, each) for each in (2.0**15, -(2.0**15), 2.0**small)
        )
    b = np.full((1, depth), _code(kind, 1.0), a.dtype)
    assert not fused(a, b, (FORMATS[kind],) * 2, None, step).any()
    a[:, :] = np.where(a == _code(kind, 2.0**small), a, 0)
    assert (fused(a, b, (FORMATS[kind],) * 2, None, step) != 0).all()


MMA = """ld.global.v4.b32 {r20, r21, r22, r23}, [d2]; mov.b32 r24, 0x3c003c00; mov.b32 r25, 0x3c003c00;
mov.b32 r30, 0;
mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {r10, r11, r12, r13}, {r20, r21, r22, r23}, {r24, r25},
{r30, r30, r30, r30}; st.global.b32 [d3], r10;"""


def test_an_mma_of_depth_16_is_one_step() -> None:
    """Two of depth 8 would lose the pair of the first half before the small term of the second half comes."""
    a = np.zeros((32, 4, 2), np.float16)
    a[0, 0], a[0, 2, 0] = (32768.0, -32768.0), 2.0**-11
    body = "mul.wide.u32 d4, r0, 16; add.u64 d2, d0, d4; mul.wide.u32 d4, r0, 4; add.u64 d3, d1, d4;\n" + MMA
    _, out, _ = emulated(Probe("one step", body, a.tobytes(), 128))
    assert out[:4] == bytes(4)
    a[0, 0] = 0
    _, out, _ = emulated(Probe("one step", body, a.tobytes(), 128))
    assert f32(int.from_bytes(out[:4], "little")) == 2.0**-11


@pytest.mark.parametrize("types", [PAIRS[0], PAIRS[1], PAIRS[2], PAIRS[3], PAIRS[-1]], ids=".".join)
def test_chained_products_are_the_step_again_and_again(types: tuple[str, str, str]) -> None:
    """Eight wgmmas in one group against eight launches, each with the sums of the one before."""
    case: Case = drawn(types, "near", (2, 0), in_registers=False)
    probe = case.probe()
    line = f"{case.mnemonic} {case.operands()};\n"
    assert line in probe.body
    _, chained, _ = emulated(replace(probe, body=probe.body.replace(line, line * 8)))
    c: NDArray[np.uint32] = np.stack(case.c).astype(np.uint32)
    for _ in range(8):
        _, out, _ = emulated(replace(case, c=tuple(c.astype(np.uint64))).probe())
        c = np.frombuffer(out, np.uint32).reshape(c.shape)
    assert chained == c.tobytes()
