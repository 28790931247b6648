"""Probes of wgmma: where descriptors find wide operands, and the numbers and special values of every pair of types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from tests.gpu.probes.operands import FLOATS, Words, numbers, packed
from tests.gpu.probes.probe import Probe, bits
from tests.gpu.probes.products import element_bits, metadata

from ptxbench.emulator.tensor.descriptor import Descriptor

DEPTHS = {8: 32, 16: 16, 32: 8, 1: 256}
SMALL = (-3, -2, -1, 0, 1, 2, 3)
FETCH = """mov.u32 r1, data; shl.b32 r2, r0, 4; mov.u64 d3, d0; cvt.u64.u32 d4, r2; add.u64 d3, d3, d4;
FILL: setp.ge.u32 p1, r2, {bytes}; @p1 bra FILLED; ld.global.v4.b32 {{r3, r4, r5, r6}}, [d3];
add.u32 r7, r1, r2; st.shared.v4.b32 [r7], {{r3, r4, r5, r6}}; add.u32 r2, r2, 2048; add.u64 d3, d3, 2048; bra FILL;
FILLED: fence.proxy.async; bar.sync 0; shr.u32 r7, r1, 4; cvt.u64.u32 d6, r7; mul.wide.u32 d7, r0, 4;
add.u64 d8, d0, d7; add.u64 d9, d1, d7; setp.eq.u32 p2, r0, r0;
"""
RUN = """wgmma.fence.sync.aligned;
{mnemonic} {operands};
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""
DENSE_A = Descriptor(0, 16, 1024, 0, 128)
DENSE_B = Descriptor(8192, 16, 1024, 0, 128)


@dataclass(frozen=True)
class Case:
    """One wgmma by four warps.

    Attributes:
        types: Of D, A and B.
        n: Columns.
        a: Where A lies in dynamic shared memory; None: in registers.
        b: Where B lies.
        major: Transpose bits of A and B.
        shared: What shared memory holds.
        c: Accumulators, one word of 32 bits per register and thread; none: D = A B.
        selector: Of the metadata; None: A is not sparse.
        words: More modifiers before the types.
    """

    name: str
    types: tuple[str, str, str]
    n: int
    b: Descriptor = DENSE_B
    a: Descriptor | None = DENSE_A
    major: tuple[int, int] = (0, 0)
    shared: bytes = b""
    fragments: tuple[Words, ...] = ()
    c: tuple[Words, ...] = ()
    selector: int | None = None
    words: str = ""
    tail: str = field(default="", init=False)

    @property
    def mnemonic(self) -> str:
        """With all modifiers."""
        d, a, b = self.types
        depth = DEPTHS[element_bits(a)] * (1 if self.selector is None else 2)
        sparse = "" if self.selector is None else ".sp"
        end = ".and.popc" if a == "b1" else ""
        return f"wgmma.mma_async{sparse}.sync.aligned.m64n{self.n}k{depth}{self.words}.{d}.{a}.{b}{end}"

    @property
    def registers(self) -> int:
        """Accumulator registers of a thread."""
        return self.n // 4 if self.types[0] == "f16" else self.n // 2

    def operands(self) -> str:
        """The operands' text."""
        parts = ["{" + ", ".join(f"r{100 + place}" for place in range(self.registers)) + "}"]
        parts += ["d10" if self.a else "{r20, r21, r22, r23}", "d11"]
        if self.selector is not None:
            parts += ["r24", str(self.selector)]
        parts.append("p3" if self.c else "0")
        if self.types[1] in FLOATS:
            parts += ["1", "1"]
            if self.types[1] in ("f16", "bf16"):
                parts += [str(self.major[0])] if self.a else []
                parts += [str(self.major[1])]
        return ", ".join(parts)

    def probe(self) -> Probe:
        """The launch; the words of a thread lie 512 bytes from register to register."""
        text = FETCH.format(bytes=len(self.shared))
        given = [self.shared]
        loads = [(f"r{20 + place}", each) for place, each in enumerate(self.fragments)]
        loads += [(f"r{100 + place}", each) for place, each in enumerate(self.c)]
        for place, (register, values) in enumerate(loads):
            text += f"ld.global.b32 {register}, [d8+{len(self.shared) + 512 * place}];\n"
            given.append(values.astype("<u4").tobytes())
        for register, descriptor in (("d10", self.a), ("d11", self.b)):
            if descriptor:
                text += f"add.u64 {register}, d6, {descriptor.encode()};\n"
        text += "setp.eq.u32 p3, r0, r0;\n" + RUN.format(mnemonic=self.mnemonic, operands=self.operands())
        text += "".join(f"st.global.b32 [d9+{512 * place}], r{100 + place};\n" for place in range(self.registers))
        out = 512 * self.registers
        data = b"".join(given)
        return Probe(self.name, text, data, out, block=(128, 1, 1), shared=len(self.shared))


def _small(name: str, size: int) -> bytes:
    """float16 integers from -3 to 3: whatever elements meet, sums are exact and tell which they were."""
    drawn = np.array(SMALL, np.float16)[bits(name, size // 2) % np.uint64(len(SMALL))]
    return drawn.tobytes()


def _maps() -> Iterator[Case]:
    """Wide operands in every layout."""
    for span in (0, 32, 64, 128):
        for major in (0, 1):
            for n in (16, 64, 128, 256):
                name = f"wgmma: B of {n} columns, span {span}, {'MN' if major else 'K'}-major"
                leading, stride = _steps(span, major, n)
                for base, extra in ((0, 0), (3, 48)):
                    b = Descriptor(8192 + extra, leading, stride, base, span)
                    end = f", base offset {base}, start + {extra}" if base else ""
                    case = Case(name + end, ("f32", "f16", "f16"), n, b, major=(0, major))
                    yield replace(case, shared=_small(case.name, 160 << 10))
    for span in (0, 32, 64, 128):
        for major in (0, 1):
            leading, stride = _steps(span, major, 64)
            a = Descriptor(64 << 10, leading, stride, 0, span)
            case = Case(f"wgmma: A, span {span}, {'MN' if major else 'K'}-major", ("f32", "f16", "f16"), 64, a=a)
            yield replace(case, major=(major, 0), shared=_small(case.name, 160 << 10))


def _steps(span: int, major: int, n: int) -> tuple[int, int]:
    """Leading and stride bytes: dense for half of the sizes, wider otherwise."""
    wider = 0 if n in (16, 128) else 160
    if not span:
        return (256 + wider, 640) if major else (n * 16 + wider, 128 + wider)
    return (2 * span * 8 + wider, span * 8) if major else (16, span * 8 + wider)


PAIRS = [
    *(("f32", kind, kind) for kind in ("f16", "bf16", "tf32")),
    *((d, a, b) for d in ("f32", "f16") for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")),
    ("f16", "f16", "f16"),
]
INTEGERS = [("s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")]


def _numbers() -> Iterator[Case]:
    """Numbers near one, far apart, and with special values among them and in C."""
    for types in PAIRS:
        for label, regime in (("near", (2, 0)), ("far", (14, 0)), ("special", (3, 150)), ("special C", (3, 0))):
            for in_registers in (False, True):
                yield drawn(types, label, regime, in_registers)
    for types in INTEGERS:
        for words in ("", ".satfinite"):
            for n in (8, 32, 256):
                yield drawn(types, "bits", (0, 0), n == 32, n=n, words=words)
    for n in (8, 64, 256):
        for in_registers in (False, True):
            yield drawn(("s32", "b1", "b1"), "bits", (0, 0), in_registers, n=n)


def _sparse() -> Iterator[Case]:
    """A with two elements of four, metadata in either half of the lanes."""
    for types in (*PAIRS, *INTEGERS):
        for in_registers in (False, True):
            width = element_bits(types[1])
            for selector in (0,) if width == 8 else (0, 1):
                yield drawn(types, "near", (2, 0), in_registers, selector=selector)


def drawn(types: tuple[str, str, str], label: str, regime: tuple[int, int], in_registers: bool, **more: object) -> Case:
    """One product of random numbers: exponents within the regime's spread, specials among them."""
    n = int(str(more.get("n", 8)))
    selector = more.get("selector")
    name = f"wgmma{'.sp' if selector is not None else ''}: {'.'.join(types)} n{n} {label}"
    name += f"{' A in registers' if in_registers else ''}{' ' + str(selector) if selector is not None else ''}"
    name += str(more.get("words", ""))
    width = element_bits(types[1])
    size = 8192 + max(n * 128, 2048)
    elements = numbers(name, types[1], 8192 * 8 // width, *regime)
    others = numbers(name + " b", types[2], (size - 8192) * 8 // width, *regime)
    shared = np.concatenate([packed(each, width, 32) for each in (elements, others)]).astype("<u4").tobytes()
    case = Case(name, types, n, shared=shared, words=str(more.get("words", "")))
    fragments: list[Words] = []
    if in_registers or selector is not None:
        drawn = numbers(name + " a", types[1], 4 * 128 * 32 // width, *regime)
        fragments = list(packed(drawn, width, 32).reshape(4, 128))
    if selector is not None:
        fragments.append(metadata(name + " metadata", types[1], 128))
    c_kind = types[0]
    c_regime = (3, 6) if label == "special C" else (regime[0], 0)
    values = numbers(name + " c", c_kind, case.registers * 128 * 32 // element_bits(c_kind), *c_regime)
    c = packed(values, element_bits(c_kind), 32).reshape(case.registers, 128)
    return replace(
        case,
        a=None if in_registers else DENSE_A,
        fragments=tuple(fragments),
        c=tuple(c),
        selector=None if selector is None else int(str(selector)),
    )


def warpgroups() -> Iterator[Probe]:
    """All of them."""
    for case in (*_maps(), *_numbers(), *_sparse()):
        yield case.probe()
