"""Programs of `wmma`: loads, a product and a store together; only that does not depend on the fragments' layout."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from tests.emulator.agreement.elements import WIDTH, block
from tests.emulator.agreement.program import Part, Program

from ptxbench.emulator.ptx.isa import Form, described, mnemonics

SLAB = 4096
"""Bytes kept for each matrix."""


@dataclass(frozen=True)
class _Pipeline:
    """The four mnemonics of one pass."""

    a: str
    b: str
    c: str
    product: str
    d: str


_SHAPE = re.compile(r"\.(m\d+n\d+k\d+)\b")
_SUM = {"f16": "f32", "bf16": "f32", "tf32": "f32", "f64": "f64"}


def _words(mnemonic: str) -> list[str]:
    return mnemonic.split(".")


def _product(shape: str, type_: str, out: str) -> str:
    if type_ == "f16":
        return f"wmma.mma.sync.aligned.row.col.{shape}.{out}.{out}"
    if type_ == "b1":
        return f"wmma.mma.xor.popc.sync.aligned.row.col.{shape}.s32.b1.b1.s32"
    sign = ".rn" if type_ == "f64" else ""
    return f"wmma.mma.sync.aligned.row.col.{shape}{sign}.{out}.{type_}.{type_}.{out}"


def _pipeline(shape: str, type_: str, out: str) -> _Pipeline:
    return _Pipeline(
        a=f"wmma.load.a.sync.aligned.row.{shape}.global.{type_}",
        b=f"wmma.load.b.sync.aligned.col.{shape}.global.{type_}",
        c=f"wmma.load.c.sync.aligned.row.{shape}.global.{out}",
        product=_product(shape, type_, out),
        d=f"wmma.store.d.sync.aligned.row.{shape}.global.{out}",
    )


_OF_SHAPE = {"m16n16k8": "tf32", "m8n8k4": "f64", "m8n8k32": "s4", "m8n8k128": "b1"}


def _around(mnemonic: str) -> _Pipeline:
    """The pass that a mnemonic belongs to, in its place there."""
    words = _words(mnemonic)
    found = _SHAPE.search(mnemonic)
    assert found
    shape, last = found[1], words[-1]
    if words[1] == "mma":
        return _around_product(mnemonic, shape)
    if words[2] in ("c", "d"):
        type_ = _OF_SHAPE.get(shape) or ("s8" if last == "s32" else "f16")
        return replace(_pipeline(shape, type_, last), **{words[2]: mnemonic})
    out = _SUM.get(last, "s32")
    base = replace(_pipeline(shape, last, out), **{words[2]: mnemonic})
    layout = words[5]
    if layout != ("row" if words[2] == "a" else "col"):
        both = f".{layout}.col." if words[2] == "a" else f".row.{layout}."
        base = replace(base, product=base.product.replace(".row.col.", both))
    return base


def _around_product(mnemonic: str, shape: str) -> _Pipeline:
    words = [word for word in _words(mnemonic) if word not in ("satfinite",)]
    types = [word for word in words if word in WIDTH]
    a_type = types[1] if len(types) == 4 else "f16"
    start = words.index("aligned") + 1
    base = _pipeline(shape, a_type, types[0])
    return replace(
        base,
        a=base.a.replace(".row.", f".{words[start]}."),
        b=base.b.replace(".col.", f".{words[start + 1]}."),
        c=base.c.rpartition(".")[0] + f".{types[-1]}",
        product=mnemonic,
    )


def _registers(mnemonic: str, prefix: str, place: int) -> tuple[str, str]:
    """Declaration and vector of the operand at a place."""
    vectors = [spec for spec in described(mnemonic)[0].operands if spec.kind == "vector"]
    spec = vectors[place]
    kind = spec.type if spec.type[0] == "f" and spec.type != "f16" else "b64" if spec.type == "f64" else "b32"
    names = [f"{prefix}{number}" for number in range(spec.count)]
    return f".reg .{kind} {prefix}<{spec.count}>;", "{" + ", ".join(names) + "}"


def _leading(mnemonic: str, which: str) -> int:
    """Elements from one row (or column) to the next in a dense matrix."""
    found = re.search(r"m(\d+)n(\d+)k(\d+)", mnemonic)
    assert found
    m, n, k = map(int, found.groups())
    row = ".row." in mnemonic
    return {"a": k if row else m, "b": n if row else k}.get(which, n if row else m)


def _where(mnemonic: str, slab: int) -> str:
    shared = ".shared" in mnemonic
    return f"add.u64 at, {'smem64' if shared else 'given'}, {slab * SLAB};"


def _part(mnemonic: str) -> Part:
    pipe = _around(mnemonic)
    lines = [".reg .b64 at;"]
    texts = []
    for place, which in enumerate("abc"):
        load = getattr(pipe, which)
        declared, vector = _registers(load, which, 0)
        lines += [declared, _where(load, place), f"{load} {vector}, [at], {_leading(load, which)};"]
        texts.append(vector)
    declared, vector = _registers(pipe.product, "e", 0)
    lines += [declared, f"{pipe.product} {vector}, {', '.join(texts)};"]
    shared = ".shared" in pipe.d
    lines.append(f"add.u64 at, smem64, {3 * SLAB};" if shared else "mov.u64 at, ob;")
    lines.append(f"{pipe.d} [at], {vector}, {_leading(pipe.d, 'd')};")
    if shared:
        lines.append("bar.warp.sync -1; add.u64 at, at, cells; ld.shared.v2.b64 {x, y}, [at];")
        lines.append(
            "st.global.v2.b64 [od], {x, y}; ld.shared.v2.b64 {x, y}, [at+16]; st.global.v2.b64 [od+16], {x, y};"
        )
    return Part(mnemonic, "\n".join(lines), 32)


_START = f""".shared .align 128 .b8 smem[{4 * SLAB}]; .reg .b64 smem64, cells, x, y, at; .reg .pred more; .reg .u32 i;
mov.u64 smem64, smem; mul.wide.u32 cells, t, 32; mov.u32 i, t;
FILL: mad.wide.u32 at, i, 8, given; ld.global.b64 x, [at]; mad.wide.u32 at, i, 8, smem64; st.shared.b64 [at], x;
add.u32 i, i, 32; setp.lt.u32 more, i, {4 * SLAB // 8}; @more bra FILL; bar.warp.sync -1;
"""


def programs(form: Form) -> list[Program]:
    """One program of all mnemonics; the matrices are those that its first one takes."""
    names = mnemonics(form)
    pipe = _around(names[0])
    types = (_words(pipe.a)[-1], _words(pipe.b)[-1], _words(pipe.c)[-1])
    given = b"".join(block(type_, SLAB, f"{form.name} {place}") for place, type_ in enumerate(types)) + bytes(SLAB)
    return [Program(form.name, tuple(map(_part, names)), threads=32, given=given, start=_START)]
