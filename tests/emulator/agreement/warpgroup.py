"""Programs of a warpgroup's matrices: two `wgmma` on shared tiles without swizzle, some of them transposed."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.emulator.agreement.elements import WIDTH, block, metadata
from tests.emulator.agreement.program import Part, Program

from ptxbench.emulator.ptx.isa import Form, mnemonics, operands
from ptxbench.emulator.ptx.shapes import OperandSpec

THREADS = 128
A_BYTES, B_BYTES = 64 * 32, 256 * 64
"""Of one tile of A (64 rows of 32 bytes) and one of B (256 rows of at most 64 bytes)."""
A_REGISTERS = A_BYTES + B_BYTES
METADATA = A_REGISTERS + 4 * 4 * THREADS
CORE = 128
"""Bytes of a core matrix: 8 rows of 16 bytes."""
_N = re.compile(r"m64n(\d+)k")
_TYPES = tuple(WIDTH)


def _types(mnemonic: str) -> list[str]:
    return [word for word in mnemonic.split(".") if word in _TYPES]


def _descriptor(register: str, start: str, leading: int, stride: int) -> str:
    """Statements that make a descriptor without swizzle of the shared address in a 64-bit register."""
    fields = (leading >> 4) << 16 | (stride >> 4) << 32
    return f"shr.u64 {register}, {start}, 4; or.b64 {register}, {register}, {fields:#x};"


def _immediates(specs: Sequence[OperandSpec], turn: int, transposed: bool) -> list[str]:
    """Scales +1, then -1 of both; the layouts after them."""
    values = [spec.value for spec in specs if spec.kind == "immediate"]
    ones = [str((1, -1)[(turn + place) % 2] if value else value) for place, value in enumerate(values)]
    return [("1" if transposed and value == 0 else text) for text, value in zip(ones, values, strict=True)]


def _operands(specs: Sequence[OperandSpec], turn: int, transposed: bool) -> str:
    """The operand list of one product into d0...; the metadata's selector is 0 always."""
    sparse = any(spec.kind == "register" and spec.type == "b32" for spec in specs)
    texts, seen = [], 0
    immediates = iter(
        _immediates([s for s in specs if not (sparse and s.kind == "immediate" and s is specs[4])], turn, transposed)
    )
    for place, spec in enumerate(specs):
        if place == 0:
            texts.append("{" + ", ".join(f"d{number}" for number in range(spec.count)) + "}")
        elif spec.kind == "vector":
            texts.append("{a0, a1, a2, a3}")
        elif spec.kind == "immediate":
            texts.append("0" if sparse and place == 4 else next(immediates))
        elif spec.type == "b64":
            register = ("da", "db")[seen if specs[1].kind == "register" else 1]
            seen += 1
            texts.append(register)
        else:
            texts.append("meta" if spec.type == "b32" else "accumulate")
    return ", ".join(texts)


def _part(form: Form, mnemonic: str, transposed: bool = False) -> Part:
    specs = operands(form, mnemonic)
    found = _N.search(mnemonic)
    assert found
    n = int(found[1])
    depth = 64 if ".sp." in mnemonic else 32
    kind = "f32" if specs[0].type == "f32" else "b32"
    count = specs[0].count
    b_stride, b_leading = CORE * depth // 16, CORE
    a_stride, a_leading = 2 * CORE, CORE
    if transposed:
        # Along M or N: chunks of 8 elements CORE apart; along K: groups of 8 rows.
        a_stride, a_leading, b_stride, b_leading = CORE, 8 * CORE, CORE, n // 8 * CORE
    lines = [
        f".reg .{kind} d<{count}>; .reg .b32 a<4>, meta; .reg .b64 da, db, gd; .reg .pred accumulate;",
        _descriptor("da", "tile_a", a_leading, a_stride),
        _descriptor("db", "tile_b", b_leading, b_stride),
        "mad.wide.u32 gd, t, 4, given;",
        *(f"ld.global.b32 a{i}, [gd+{A_REGISTERS + 4 * THREADS * i}];" for i in range(4)),
        f"ld.global.b32 meta, [gd+{METADATA}];",
        *(f"mov.b32 d{i}, 0;" for i in range(count)),
        "setp.ne.u32 accumulate, t, t;",
        "wgmma.fence.sync.aligned;",
        f"{mnemonic} {_operands(specs, 0, transposed)};",
        "setp.eq.u32 accumulate, t, t;",
        f"{mnemonic} {_operands(specs, 1, transposed)};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        *(f"st.global.b32 [od+{4 * i}], d{i};" for i in range(count)),
    ]
    return Part(mnemonic + (" transposed" if transposed else ""), "\n".join(lines), 4 * count)


_START = f""".shared .align 1024 .b8 smem[{A_BYTES + B_BYTES}]; .reg .b64 tile_a, tile_b, at, x;
.reg .pred more; .reg .u32 i; mov.u64 tile_a, smem; add.u64 tile_b, tile_a, {A_BYTES}; mov.u32 i, t;
FILL: mad.wide.u32 at, i, 8, given; ld.global.b64 x, [at]; mad.wide.u32 at, i, 8, tile_a; st.shared.b64 [at], x;
add.u32 i, i, {THREADS}; setp.lt.u32 more, i, {(A_BYTES + B_BYTES) // 8}; @more bra FILL;
fence.proxy.async; bar.sync 0;
"""


def _given(form: Form, mnemonic: str) -> bytes:
    _, a, b = (*_types(mnemonic), "b1", "b1")[:3]
    a, b = ("b1", "b1") if ".b1." in mnemonic else (a, b)
    tiles = block(a, A_BYTES, f"{form.name} a") + block(b, B_BYTES, f"{form.name} b")
    return tiles + block(a, 16 * THREADS, f"{form.name} registers") + metadata(a, THREADS, form.name)


def programs(form: Form) -> list[Program]:
    """One program of some shapes each, for their accumulators are many; two shapes also with transposed operands."""
    names = mnemonics(form)
    given = _given(form, names[0])
    parts = [_part(form, name) for name in names]
    specs = operands(form, names[0])
    dense = sum(spec.kind == "immediate" and spec.value == 0 for spec in specs)
    if dense and ".sp." not in names[0]:
        sixteen = [name for name in names if ".m64n16k" in name or ".m64n64k" in name]
        parts += [_part(form, name, transposed=True) for name in sixteen]
    made = []
    for start in range(0, len(parts), 8):
        some = tuple(parts[start : start + 8])
        made.append(Program(form.name, some, threads=THREADS, given=given, start=_START, directives=".minnctapersm 1"))
    return made


def control(form: Form) -> list[Program]:
    """`wgmma.fence`, `commit_group`, `wait_group` around no product."""
    (mnemonic,) = mnemonics(form)
    tail = " 0" if "wait_group" in mnemonic else ""
    body = f".reg .b32 r1; {mnemonic}{tail}; add.u32 r1, t, 7; st.global.b32 [od], r1;"
    return [Program(form.name, (Part(mnemonic, body, 4),), threads=THREADS)]
