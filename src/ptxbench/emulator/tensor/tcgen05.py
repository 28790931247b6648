"""`tcgen05.mma`: its static form and its 32-bit instruction descriptor, every field checked; multiplies nothing.

PTX ISA, sections tcgen05.mma, Instruction Descriptor, and the tables of shapes by kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ptxbench.emulator.errors import Fault, Unsupported
from ptxbench.emulator.ptx.ir import Address, Instruction

_KINDS = {
    **{"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32},
    **{"mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64},
}
"""Steps along K of a dense product."""
_NARROW = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_TYPES = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "f8f6f4": _NARROW,
    "mxf8f6f4": _NARROW,
    "i8": {0: "u8", 1: "s8"},
    "mxf4": {1: "e2m1"},
    "mxf4nvf4": {1: "e2m1"},
}
_RESULTS = {"f16": {0: "f16", 1: "f32"}, "tf32": {1: "f32"}, "f8f6f4": {0: "f16", 1: "f32"}, "i8": {2: "s32"}}
_BLOCKS = {"scale_vec::1X": 32, "scale_vec::2X": 32, "scale_vec::4X": 16, "block32": 32, "block16": 16}


@dataclass(frozen=True)
class Form:
    """What the text of one tcgen05.mma fixes.

    Attributes:
        group: CTAs that work together: 1 or 2.
        block: Elements along K that share a scale factor, of a dense product; 0 without scale factors.
        a_in_tensor: Whether A lies in tensor memory.
    """

    kind: str
    group: int
    weight: bool
    """`.ws`: weight stationary."""
    sparse: bool
    block: int
    a_in_tensor: bool
    shifts: bool = False
    """`.ashift`: rows of A move one lane down."""

    @classmethod
    def parse(cls, ins: Instruction) -> Form:
        """The form of the instruction.

        Raises:
            Unsupported: It is another one.
        """
        words = ins.modifiers
        kind = next((word.removeprefix("kind::") for word in words if word.startswith("kind::")), "")
        if kind not in _KINDS:
            raise Unsupported(ins.name, ins.line)
        block = next((_BLOCKS[word] for word in words if word in _BLOCKS), 32) if "block_scale" in words else 0
        return cls(
            kind=kind,
            group=2 if "cta_group::2" in words else 1,
            weight="ws" in words,
            sparse=any(word == "sp" or word.startswith("sp::") for word in words),
            block=block,
            a_in_tensor=isinstance(ins.operands[1], Address),
            shifts="ashift" in words,
        )

    @property
    def k(self) -> int:
        """Elements along K."""
        return _KINDS[self.kind] * (2 if self.sparse else 1)

    @property
    def factors(self) -> int:
        """Scale factors of a row along K; a sparse product has no more of them."""
        return _KINDS[self.kind] // self.block

    def name(self) -> str:
        """For messages."""
        ws = (".ws" if self.weight else "") + (".sp" if self.sparse else "")
        return f"tcgen05.mma{ws}.cta_group::{self.group}.kind::{self.kind}"


@dataclass(frozen=True)
class Shape:
    """What an instruction descriptor says.

    Attributes:
        m: Rows of D, of both CTAs of a pair.
        types: Of A and B.
        result: `f16`, `f32` or `s32`.
        transposed: Whether A, B are MN-major.
        scale_type: `ue8m0` or `ue4m3`.
        scale_ids: First bytes of the scale factors of A and B.
        selector: Of sparse metadata.
        doubtful: Why sources disagree about whether this is allowed; empty if they do not.
    """

    m: int
    n: int
    types: tuple[str, str]
    result: str
    negated: tuple[bool, bool]
    transposed: tuple[bool, bool]
    saturate: bool = False
    scale_type: str = "ue8m0"
    scale_ids: tuple[int, int] = (0, 0)
    selector: int = 0
    doubtful: str = ""


class _Reader:
    """Takes fields out of a descriptor, and names them when they are wrong."""

    def __init__(self, form: Form, value: int) -> None:
        self.form, self.value = form, value

    def field(self, low: int, high: int) -> int:
        """Bits `low` to `high`."""
        return self.value >> low & ((1 << (high - low + 1)) - 1)

    def refuse(self, low: int, high: int, meaning: str, wanted: str) -> Fault:
        """The fault of a field."""
        bits = f"bit {low}" if low == high else f"bits {low}-{high}"
        return Fault(
            "cudaErrorIllegalInstruction",
            f"instruction descriptor {self.value:#010x} of {self.form.name()}: {bits} ({meaning}) hold "
            f"{self.field(low, high):#x}; {wanted}",
        )

    def zero(self, low: int, high: int, meaning: str = "reserved") -> None:
        """A field that must be 0."""
        if self.field(low, high):
            raise self.refuse(low, high, meaning, "it must be 0")

    def one_of(self, low: int, high: int, meaning: str, names: dict[int, str]) -> str:
        """A field whose values have names."""
        code = self.field(low, high)
        if code not in names:
            known = ", ".join(f"{name} is {each}" for each, name in names.items())
            raise self.refuse(low, high, meaning, known)
        return names[code]


@lru_cache(maxsize=1024)
def decode(form: Form, value: int) -> Shape:
    """The shape behind an instruction descriptor.

    Raises:
        Fault: A field is not allowed for this form; the message names its bits.
    """
    read = _Reader(form, value)
    if read.field(2, 2) != form.sparse:
        raise read.refuse(2, 2, "sparsity", f"the instruction is {'sparse' if form.sparse else 'dense'}")
    if not form.sparse:
        read.zero(0, 1, "sparsity selector of a dense product")
    elif form.kind not in ("f16", "tf32"):
        read.zero(0, 1, f"sparsity selector, of which kind::{form.kind} has no choice")
    shape = _scaled(read) if form.block else _plain(read)
    if form.a_in_tensor and shape.transposed[0]:
        raise read.refuse(15, 15, "A is MN-major", "A in tensor memory is K-major, so it must be 0")
    return shape


def _plain(read: _Reader) -> Shape:
    form, kind = read.form, read.form.kind
    saturate = read.field(3, 3) == 1
    if kind != "i8":
        read.zero(3, 3, "saturation, for kind::i8 only")
    result = read.one_of(4, 5, "type of D", _RESULTS[kind])
    read.zero(6, 6)
    types = _types(read, 12)
    if kind == "f16" and types[0] != types[1]:
        raise read.refuse(10, 12, "type of B", f"A is {types[0]}, and both must have one type")
    if kind == "f16" and result == "f16" and types[0] != "f16":
        raise read.refuse(4, 5, "type of D", f"D of f16 takes A and B of f16, not {types[0]}")
    if kind == "i8":
        read.zero(13, 14, "negation, not for integers")
    read.zero(23, 23)
    read.zero(29, 29)
    if not form.weight:
        read.zero(30, 31, "greatest shift, for .ws only")
    m, n, doubt = _size(read)
    return Shape(
        m, n, types, result, _flags(read, 13), _major(read, types), saturate, selector=read.field(0, 1), doubtful=doubt
    )


def _scaled(read: _Reader) -> Shape:
    form = read.form
    read.zero(3, 3)
    read.zero(6, 6)
    read.zero(31, 31, "K of 96, for sm_103a" if form.kind != "mxf8f6f4" else "reserved")
    if form.kind != "mxf8f6f4":
        read.zero(12, 12)
    types = _types(read, 12 if form.kind == "mxf8f6f4" else 11)
    names = {1: "ue8m0"} if form.kind != "mxf4nvf4" else {0: "ue4m3", 1: "ue8m0"}
    scale = read.one_of(23, 23, "type of the scale factors", names)
    if scale == "ue4m3" and form.block != 16:
        raise read.refuse(23, 23, "type of the scale factors", "ue4m3 is for blocks of 16 elements")
    ids = (read.field(29, 30), read.field(4, 5))
    for each, low in zip(ids, (29, 4), strict=True):
        if each % form.factors:
            allowed = {1: "0 to 3", 2: "0 or 2", 4: "0"}[form.factors]
            raise read.refuse(low, low + 1, "first scale factor", f"{form.factors} factors begin at {allowed}")
    m, n, doubt = _size(read)
    return Shape(
        m,
        n,
        types,
        "f32",
        _flags(read, 13),
        _major(read, types),
        scale_type=scale,
        scale_ids=ids,
        selector=read.field(0, 1),
        doubtful=doubt,
    )


def _types(read: _Reader, last: int) -> tuple[str, str]:
    names = _TYPES[read.form.kind]
    return read.one_of(7, 9, "type of A", names), read.one_of(10, last, "type of B", names)


def _flags(read: _Reader, low: int) -> tuple[bool, bool]:
    return read.field(low, low) == 1, read.field(low + 1, low + 1) == 1


def _major(read: _Reader, types: tuple[str, str]) -> tuple[bool, bool]:
    made = _flags(read, 15)
    for each, type_, side, bit in zip(made, types, "AB", (15, 16), strict=True):
        if each and type_ in ("e2m3", "e3m2", "e2m1"):
            raise read.refuse(bit, bit, f"{side} is MN-major", f"{type_} is K-major only")
    return made


def _size(read: _Reader) -> tuple[int, int, str]:
    """M and N, and what is doubtful about them."""
    form = read.form
    read_n, read_m = read.field(17, 22) << 3, read.field(24, 28) << 4
    rows, steps, least = _sizes(form)
    rows = rows if not form.shifts else tuple(each for each in rows if each >= 128)
    if read_m not in rows:
        taken = " or ".join(str(each) for each in rows)
        raise read.refuse(24, 28, f"M >> 4, M = {read_m}", f"M is {taken}, of both CTAs together")
    if not least <= read_n <= 256 or not _allowed(form, read_n, steps):
        taken = (
            ("64 or 128" if form.sparse else "64, 128 or 256") if form.weight else f"{least} to 256 in steps of {steps}"
        )
        raise read.refuse(17, 22, f"N >> 3, N = {read_n}", f"N is {taken}")
    wide = 16 * form.group
    bytewise = _TYPES[form.kind].get(read.field(10, 12)) in ("e4m3", "e5m2", "s8", "u8")
    if read.field(16, 16) and bytewise and read_n % wide:
        raise read.refuse(17, 22, f"N >> 3, N = {read_n}", f"an MN-major B of 8 bits has N in steps of {wide}")
    doubt = ""
    if form.sparse and read.field(0, 1) > 1:
        doubt = f"sparsity selector {read.field(0, 1)}: sources show which column 0 and 1 select"
    elif form.group == 1 and not form.weight and read_m == 128 and read_n % 16:
        doubt = f"N = {read_n} with M = 128: the PTX ISA allows steps of 8, libraries keep to 16"
    return read_m, read_n, doubt


def _sizes(form: Form) -> tuple[tuple[int, ...], int, int]:
    """Allowed M; step and least value of N."""
    if form.weight:
        return (32, 64, 128), 64, 64
    if form.group == 2:
        steps = 32 if form.kind == "i8" else 16
        rows = (256,) if form.block and form.sparse else (128, 256)
        return rows, steps, steps
    return ((128,) if form.block else (64, 128)), 8, 8


def _allowed(form: Form, n: int, steps: int) -> bool:
    if form.weight:
        return n in ((64, 128) if form.sparse else (64, 128, 256))
    if form.kind == "i8" and form.group == 1:
        return n in (8, 16, 24, 32) or (n > 32 and n % 16 == 0)
    return n % steps == 0
