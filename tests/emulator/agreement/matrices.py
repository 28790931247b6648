"""Programs of a warp's matrices: `mma` with random fragments, and the moves of fragments through shared memory."""

from __future__ import annotations

from tests.emulator.agreement.elements import block, metadata
from tests.emulator.agreement.program import Part, Program
from tests.emulator.agreement.values import bits_of, random_bytes

from ptxbench.emulator.ptx.isa import Form, mnemonics, operands

THREADS = 128
"""Four warps, each with operands of its own; the elements differ in kind from warp to warp."""
_TYPES = ("f16", "bf16", "tf32", "f32", "f64", "e4m3", "e5m2", "s8", "u8", "s4", "u4", "s32", "b1")


def _per_warp(type_: str, count: int, width: int, seed: str) -> bytes:
    """A slab [register][thread] whose warps hold different stretches of the elements."""
    size = width // 8
    data = block(type_, count * THREADS * size, seed)
    cells = [data[i * size : (i + 1) * size] for i in range(count * THREADS)]
    # elements() goes by quarters of the whole; a warp takes one quarter.
    return b"".join(
        cells[(thread // 32) * 32 * count + (thread % 32) * count + register]
        for register in range(count)
        for thread in range(THREADS)
    )


def _mma_part(form: Form, mnemonic: str) -> tuple[Part, bytes]:
    types = [word for word in mnemonic.split(".") if word in _TYPES]
    specs = operands(form, mnemonic)
    lines = [".reg .b32 r<40>; .reg .f32 f<40>; .reg .b64 d<40>; .reg .f64 e<40>; .reg .b32 meta;"]
    given, texts, results = b"", [], []
    kinds = iter(types)
    used = 0
    for spec in specs:
        if spec.kind == "immediate":
            texts.append(str(spec.value))
        elif spec.kind == "register":
            lines.append(f"mad.wide.u32 gd, t, 4, given; ld.global.b32 meta, [gd+{len(given)}];")
            given += metadata(types[1], THREADS, form.name)
            texts.append("meta")
        else:
            width = bits_of(spec.type)
            letter = ("e" if width == 64 else "f") if spec.type[0] == "f" else "r"
            names = [f"{letter}{used + number}" for number in range(spec.count)]
            used += spec.count
            texts.append("{" + ", ".join(names) + "}")
            type_ = next(kinds)
            if spec.written:
                results = [(name, width) for name in names]
                continue
            lines.append(f"mad.wide.u32 gd, t, {width // 8}, given;")
            step = THREADS * width // 8
            lines += [f"ld.global.b{width} {name}, [gd+{len(given) + n * step}];" for n, name in enumerate(names)]
            given += _per_warp(type_, spec.count, width, f"{form.name} {len(given)}")
    lines.append(f"{mnemonic} {', '.join(texts)};")
    size = results[0][1] // 8
    lines += [f"st.global.b{8 * size} [od+{size * place}], {name};" for place, (name, _) in enumerate(results)]
    return Part(mnemonic, "\n".join(lines), size * len(results)), given


def mma(form: Form) -> list[Program]:
    """One program of all mnemonics, which share their operands."""
    made = [_mma_part(form, mnemonic) for mnemonic in mnemonics(form)]
    start = ".reg .b64 gd;"
    return [Program(form.name, tuple(part for part, _ in made), threads=THREADS, given=made[0][1], start=start)]


_MOVES = """.reg .b64 gd; .reg .b32 base, row; .shared .align 128 .b8 smem[512];
mov.u32 base, smem; shl.b32 row, lane, 4; add.u32 row, row, base;
mad.wide.u32 gd, t, 16, given; { .reg .b64 x, y; ld.global.v2.b64 {x, y}, [gd]; st.shared.v2.b64 [row], {x, y}; }
bar.warp.sync -1; mul.lo.u32 row, lane, 7; and.b32 row, row, 31; shl.b32 row, row, 4; add.u32 row, row, base;
"""


def moves(form: Form) -> list[Program]:
    """`ldmatrix`, `stmatrix`, `movmatrix`: rows in a mixed order."""
    parts = []
    for mnemonic in mnemonics(form):
        count = next((int(word[1:]) for word in mnemonic.split(".") if word in ("x1", "x2", "x4")), 1)
        names = [f"r{number}" for number in range(count)]
        vector = "{" + ", ".join(names) + "}"
        loads = " ".join(f"ld.global.b32 {name}, [gd+{4 * place}];" for place, name in enumerate(names))
        stores = " ".join(f"st.global.b32 [od+{4 * place}], {name};" for place, name in enumerate(names))
        address = "row" if "shared" in mnemonic else "wide"
        head = ".reg .b32 r<5>; .reg .b64 wide, x, y; cvt.u64.u32 wide, row; cvta.shared.u64 wide, wide;"
        if mnemonic.startswith("ldmatrix"):
            parts.append(Part(mnemonic, f"{head} {mnemonic} {vector}, [{address}];\n{stores}", 4 * count))
        elif mnemonic.startswith("movmatrix"):
            parts.append(Part(mnemonic, f"{head} {loads} {mnemonic} r1, r0;\nst.global.b32 [od], r1;", 4))
        else:
            after = "bar.warp.sync -1; ld.shared.v2.b64 {x, y}, [row]; st.global.v2.b64 [od], {x, y}; bar.warp.sync -1;"
            parts.append(Part(mnemonic, f"{head} {loads} {mnemonic} [{address}], {vector};\n{after}", 16))
    return [Program(form.name, tuple(parts), threads=32, given=random_bytes(form.name, 512), start=_MOVES)]
