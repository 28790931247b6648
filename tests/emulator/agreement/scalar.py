"""Programs of scalar and warp forms: operands from a table of values, one case per thread, all results stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.emulator.agreement.program import Part, Program
from tests.emulator.agreement.values import CASES, SLOT, bits_of, column, slots

from ptxbench.emulator.ptx.isa import Form, mnemonics, operands
from ptxbench.emulator.ptx.shapes import OperandSpec

LETTERS = {1: "p", 8: "b", 16: "h", 32: "r", 64: "d", 128: "q"}
REGISTERS = "\n".join(
    (".reg .pred p<20>; .reg .b8 b<20>; .reg .b16 h<20>; .reg .b32 r<20>;", ".reg .b64 d<20>; .reg .b128 q<8>;")
)
_SHIFTS = ("shl", "shr", "shf", "bfe", "bfi", "szext", "bmsk", "fns", "prmt", "lop3")
_APPROXIMATE = ("ex2", "lg2", "sin", "cos", "tanh", "rsqrt")


def letter(type_: str) -> str:
    """Of the registers that hold a type."""
    return LETTERS[bits_of(type_)]


def bound_of(mnemonic: str) -> str:
    """The rule by which answers of a mnemonic are compared."""
    words = mnemonic.split(".")
    if ("approx" in words or "full" in words) and (words[0], words[-1]) != ("ex2", "f32"):
        return f"near {words[0]} {words[-1]}"
    return "exact"


@dataclass
class _Writer:
    """The statements of one part: loads, the instruction, stores."""

    lines: list[str] = field(default_factory=list)
    loaded: int = 0
    stored: int = 0
    largest: int = 4
    used: dict[str, int] = field(default_factory=dict)

    def register(self, type_: str) -> str:
        name = letter(type_)
        self.used[name] = self.used.get(name, 0) + 1
        return f"{name}{self.used[name]}"

    def load(self, type_: str) -> str:
        """A register with this thread's value of the next column."""
        register = self.register(type_)
        where = f"[gd+{self.loaded * CASES * SLOT}]"
        self.loaded += 1
        if type_ == "pred":
            self.lines.append(f"ld.global.b32 r0, {where}; and.b32 r0, r0, 1; setp.ne.b32 {register}, r0, 0;")
        else:
            self.lines.append(f"ld.global.b{bits_of(type_)} {register}, {where};")
        return register

    def store(self, register: str, type_: str) -> None:
        """Put a result at the next place of the answer."""
        bits = bits_of(type_)
        size = max(bits // 8, 4)
        self.largest = max(self.largest, size)
        self.stored = -(-self.stored // size) * size
        if type_ == "pred":
            self.lines.append(f"selp.b32 r0, 1, 0, {register}; st.global.b32 [od+{self.stored}], r0;")
        else:
            self.lines.append(f"st.global.b{bits} [od+{self.stored}], {register};")
        self.stored += size


def _operand(writer: _Writer, spec: OperandSpec, results: list[tuple[str, str]]) -> str:
    if spec.kind == "immediate":
        return str(spec.value)
    one = writer.register if spec.written else writer.load
    if spec.kind == "vector":
        registers = [one(spec.type) for _ in range(spec.count)]
        results += [(register, spec.type) for register in registers] if spec.written else []
        return "{" + ", ".join(registers) + "}"
    assert spec.kind == "register", spec
    register = one(spec.type)
    results += [(register, spec.type)] if spec.written else []
    if spec.pair:
        beside = writer.register("pred")
        results.append((beside, "pred"))
        return f"{register}|{beside}"
    return register


def _carry(mnemonic: str, type_: str) -> tuple[str, str]:
    """Statements that set the carry before an instruction from the column after its operands', and that store it."""
    opcode, words = mnemonic.split(".", maxsplit=1)[0], mnemonic.split(".")
    less = opcode.startswith("sub")
    before = ""
    if opcode in ("addc", "subc", "madc"):
        before = "sub.cc.u32 r18, 0, r19;" if less else "add.cc.u32 r18, r19, 0xffffffff;"
    after = f"{'subc' if less else 'addc'}.u32 r17, 0, 0;" if "cc" in words else ""
    return before, after


def _part(form: Form, mnemonic: str) -> Part:
    writer, results = _Writer(), []  # type: ignore[var-annotated]
    texts = [_operand(writer, spec, results) for spec in operands(form, mnemonic)]
    before, after = _carry(mnemonic, "")
    if before:
        writer.lines.append(f"ld.global.b32 r19, [gd+{writer.loaded * CASES * SLOT}]; and.b32 r19, r19, 1; {before}")
    writer.lines.append(f"{mnemonic} {', '.join(texts)};")
    if after:
        writer.lines.append(after)
    for register, type_ in results:
        writer.store(register, type_)
    if after:
        writer.store("r17", "b32")
    return Part(
        mnemonic, f"{REGISTERS}\n" + "\n".join(writer.lines), -(-writer.stored // writer.largest) * writer.largest
    )


def _types(specs: Sequence[OperandSpec]) -> list[str]:
    return [
        spec.type
        for spec in specs
        if spec.kind in ("register", "vector") and not spec.written
        for _ in range(spec.count)
    ]


def _columns(form: Form) -> list[list[int]]:
    """The operands' values, and one of bits for the carry."""
    mnemonic = mnemonics(form)[0]
    opcode = mnemonic.split(".")[0]
    columns = [column(type_, place, form.name) for place, type_ in enumerate(_types(operands(form, mnemonic)))]
    if form.kind == "warp":
        _warp_columns(mnemonic, columns)
    elif opcode in _SHIFTS:
        small = column("b16", 5, f"{form.name} amounts")
        for place in range(1, len(columns)):
            if opcode in ("bfe", "bfi", "szext", "bmsk", "shl", "shr") or place == 2:
                columns[place] = [
                    a if i % 4 == 0 else b % 70 for i, (a, b) in enumerate(zip(columns[place], small, strict=True))
                ]
    if opcode == "fns":
        columns[1] = [value % 32 for value in columns[1]]
        columns[2] = [1 if value == 1 << 31 else value for value in columns[2]]
    return [*columns, column("b32", 6, f"{form.name} carry")]


def _warp_columns(mnemonic: str, columns: list[list[int]]) -> None:
    """Masks of all lanes; few values, so that some are equal; clamps that a warp shares."""
    masked = mnemonic.split(".", maxsplit=1)[0] != "activemask"
    if masked:
        columns[-1] = [0xFFFFFFFF] * CASES
    if mnemonic.startswith("match"):
        columns[0] = [value % 3 if i < 128 else 5 if i < 192 else value for i, value in enumerate(columns[0])]
    if mnemonic.startswith("vote"):
        columns[0] = [value if i < 128 else int(i < 192) for i, value in enumerate(columns[0])]
    if mnemonic.startswith("shfl"):
        clamps = (0x1F, 0x0, 0x1C1F, 0x181F, 0x1807, 0x101F, 0x0F0F, 0x1F1F)
        columns[1] = [value % 40 for value in columns[1]]
        columns[2] = [clamps[i // 32] for i in range(CASES)]


def programs(form: Form) -> list[Program]:
    """One program of all mnemonics."""
    given = slots(_columns(form))
    start = f".reg .b64 gd; mad.wide.u32 gd, t, {SLOT}, given;"
    names = mnemonics(form)
    bound = bound_of(names[0])
    parts = tuple(_part(form, name) for name in names)
    return [Program(form.name, parts, bound=bound, threads=CASES, given=given, start=start)]
