"""Programs of atomic operations: each thread has a cell of its own, and two operations on it; old and new are kept."""

from __future__ import annotations

from collections.abc import Sequence

from tests.emulator.agreement.program import Part, Program
from tests.emulator.agreement.values import bits_of, column

from ptxbench.emulator.ptx.isa import Form, mnemonics, operands
from ptxbench.emulator.ptx.shapes import OperandSpec

THREADS = 256
CELL = 16
"""Bytes of memory that a thread changes."""
_LETTER = {16: "h", 32: "r", 64: "d", 128: "q"}
REGISTERS = ".reg .b16 h<40>; .reg .b32 r<40>; .reg .b64 d<40>; .reg .b128 q<40>; .reg .b64 where;"
START = f"""
.reg .b64 policy, gcell, scell, x, y; .shared .align 128 .b8 smem[{THREADS * CELL}];
createpolicy.fractional.L2::evict_first.b64 policy;
mad.wide.u32 gcell, t, {CELL}, given; mov.u64 scell, smem; mad.wide.u32 scell, t, {CELL}, scell;
"""


def _names(spec: OperandSpec, start: int) -> tuple[str, list[str]]:
    count = spec.count if spec.kind == "vector" else 1
    names = [f"{_LETTER[bits_of(spec.type)]}{start + number}" for number in range(count)]
    return ("{" + ", ".join(names) + "}" if spec.kind == "vector" else names[0]), names


def _loads(names: Sequence[str], bits: int, slab: int) -> str:
    """Registers from this thread's cell of the slab."""
    size = bits // 8
    return " ".join(
        f"ld.global.b{bits} {name}, [gcell+{slab * THREADS * CELL + place * size}];" for place, name in enumerate(names)
    )


def _part(form: Form, mnemonic: str) -> Part:
    specs = operands(form, mnemonic)
    shared = ".shared" in mnemonic
    lines = [f"{REGISTERS}", f"ld.global.v2.b64 {{x, y}}, [gcell+{4 * THREADS * CELL}];"]
    lines.append("mov.u64 where, scell; st.shared.v2.b64 [where], {x, y};" if shared else "")
    lines.append("" if shared else "mov.u64 where, od; st.global.v2.b64 [where], {x, y};")
    place = CELL
    for turn in range(2):
        texts = []
        olds: list[str] = []
        bits = 32
        for number, spec in enumerate(specs):
            if spec.kind == "address":
                texts.append("[where]")
            elif spec.type == "b64" and number == len(specs) - 1 and "L2::cache_hint" in mnemonic:
                texts.append("policy")
            else:
                bits = bits_of(spec.type)
                text, names = _names(spec, 10 * number)
                olds = names if spec.written else olds
                lines += [] if spec.written else [_loads(names, bits, 2 * turn + (number == 3))]
                texts.append(text)
        lines.append(f"{mnemonic} {', '.join(texts)};")
        for name in olds:
            lines.append(f"st.global.b{bits} [od+{place}], {name};")
            place += bits // 8
    lines.append("ld.shared.v2.b64 {x, y}, [where]; st.global.v2.b64 [od], {x, y};" if shared else "")
    return Part(mnemonic, "\n".join(lines), -(-place // 16) * 16)


def _cells(type_: str, slab: int, seed: str) -> bytes:
    """`CELL` bytes of values of a type for each thread."""
    size = bits_of(type_) // 8
    columns = [column(type_, slab + 2 * part, f"{seed} {part}") for part in range(CELL // size)]
    return b"".join(value.to_bytes(size, "little") for row in zip(*columns, strict=True) for value in row)


def programs(form: Form) -> list[Program]:
    """One program of all mnemonics of `atom` or `red`; cells start with the values of the last slab."""
    names = mnemonics(form)
    data = next(spec for spec in operands(form, names[0]) if spec.type and not spec.written)
    given = b"".join(_cells(data.type, slab, form.name) for slab in range(5))
    if ".cas" in names[0]:
        # Every second comparison succeeds.
        size, slab = bits_of(data.type) // 8, THREADS * CELL
        start = bytearray(given[4 * slab :])
        for thread in range(0, THREADS, 2):
            start[CELL * thread : CELL * thread + size] = given[CELL * thread : CELL * thread + size]
        given = given[: 4 * slab] + bytes(start)
    parts = tuple(_part(form, name) for name in names)
    return [Program(form.name, parts, threads=THREADS, given=given, start=START)]
