"""Programs of loads, stores, prefetches and cache policies: every space, width, vector and modifier."""

from __future__ import annotations

from collections.abc import Sequence

from tests.emulator.agreement.program import Part, Program
from tests.emulator.agreement.values import bits_of, random_bytes

from ptxbench.emulator.ptx.isa import Form, mnemonics, operands
from ptxbench.emulator.ptx.shapes import OperandSpec

THREADS = 32
CELL = 16
"""Bytes of each thread in a space."""
REGISTERS = ".reg .b32 r<12>; .reg .b64 d<12>; .reg .b128 q<4>; .reg .pred p<4>;"
POLICY = "createpolicy.fractional.L2::evict_first.b64 policy;"
START = f"""
.reg .b64 policy, gcell, scell, lcell, ccell; .reg .b64 x, y; .reg .b32 four;
.shared .align 128 .b8 smem[{THREADS * CELL}]; .local .align 16 .b8 lmem[64];
{POLICY}
mad.wide.u32 gcell, t, {CELL}, given;
mov.u64 scell, smem; mad.wide.u32 scell, t, {CELL}, scell;
mov.u64 lcell, lmem; and.b32 four, t, 3; mad.wide.u32 ccell, four, {CELL}, 0; add.u64 lcell, lcell, ccell;
mov.u64 x, @K_const; add.u64 ccell, ccell, x;
ld.global.v2.b64 {{x, y}}, [gcell]; st.shared.v2.b64 [scell], {{x, y}}; st.local.v2.b64 [lcell], {{x, y}};
bar.sync 0;
"""
_CELLS = {"global": "gcell", "": "gcell", "shared": "scell", "local": "lcell", "const": "ccell"}


def space_of(mnemonic: str) -> str:
    """The state space that a mnemonic names, `param::func` whole; empty: generic."""
    words = mnemonic.split(".")
    found = next((w for w in words if w.split("::")[0] in (*_CELLS, "param") and w), "")
    return found if found.startswith("param::func") else found.split("::")[0]


def _register(type_: str, number: int) -> str:
    """Registers as wide as a word at least: narrow loads are extended, narrow stores cut."""
    bits = bits_of(type_)
    return f"q{number}" if bits == 128 else f"d{number}" if bits == 64 else f"r{number}"


def _several(spec: OperandSpec) -> tuple[str, list[str]]:
    names = [_register(spec.type, number) for number in range(spec.count if spec.kind == "vector" else 1)]
    return ("{" + ", ".join(names) + "}" if spec.kind == "vector" else names[0]), names


def _stored(names: Sequence[str]) -> tuple[str, int]:
    """Statements that put registers at `od`, and how many bytes they are."""
    lines, place = [], 0
    for name in names:
        size = {"r": 4, "d": 8, "q": 16}[name[0]]
        lines.append(f"st.global.b{8 * size} [od+{place}], {name};")
        place += size
    return " ".join(lines), place


def _policy(specs: Sequence[OperandSpec]) -> str:
    return ", policy" if specs[-1].type == "b64" and specs[-1].kind == "register" and len(specs) > 2 else ""


def _load(form: Form, mnemonic: str) -> Part:
    specs = operands(form, mnemonic)
    target, names = _several(specs[0])
    space = space_of(mnemonic)
    where = "@K_block+16" if space == "param" else "@K_given4" if space == "param::func" else _CELLS[space]
    stores, size = _stored(names)
    return Part(mnemonic, f"{REGISTERS}\n{mnemonic} {target}, [{where}]{_policy(specs)};\n{stores}", size)


def _store(form: Form, mnemonic: str, number: int) -> tuple[Part, str]:
    specs = operands(form, mnemonic)
    source, names = _several(specs[1])
    space = space_of(mnemonic)
    lines = []
    place = 0
    for name in names:
        size = {"r": 4, "d": 8, "q": 16}[name[0]]
        lines.append(f"ld.global.b{8 * size} {name}, [gcell+{place % CELL}];")
        place += size
    if space.startswith("param"):
        return _to_function(mnemonic, source, names, " ".join(lines), number)
    where = {"": "od", "global": "od"}.get(space) or _CELLS[space]
    if where != "od":
        plain = {"shared": "shared", "local": "local"}[space]
        lines.insert(0, f"st.{plain}.v2.b64 [{where}], {{0, 0}};")
    lines.append(f"{mnemonic} [{where}], {source}{_policy(specs)};")
    if where != "od":
        lines.append(f"ld.{plain}.v2.b64 {{x, y}}, [{where}]; st.global.v2.b64 [od], {{x, y}};")
    return Part(mnemonic, f"{REGISTERS}\n" + "\n".join(lines), CELL), ""


def _to_function(mnemonic: str, source: str, names: Sequence[str], loads: str, number: int) -> tuple[Part, str]:
    """A store into the argument of a call, whose callee returns it, read in the same pieces; and the callee."""
    words = mnemonic.split(".")
    vector = ".v2" if "v2" in words else ".v4" if "v4" in words else ""
    type_ = words[-1]
    function = f""".func (.param .align 16 .b8 back[16]) @K_g{number}(.param .align 16 .b8 what[16]) {{
{REGISTERS}
ld.param{vector}.{type_} {source}, [what]; st.param{vector}.{type_} [back], {source}; ret; }}
"""
    stores, size = _stored(names)
    body = f"""{{ .param .align 16 .b8 argument[16]; .param .align 16 .b8 answer[16];
{mnemonic} [argument], {source};
call.uni (answer), @K_g{number}, (argument);
ld.param{vector}.{type_} {source}, [answer]; }}
{stores}"""
    return Part(mnemonic, f"{REGISTERS}\n{loads}\n{body}", size), function


def _inside(form: Form, mnemonic: str, number: int) -> tuple[Part, str]:
    """A load of a function's parameter, and the function."""
    specs = operands(form, mnemonic)
    target, names = _several(specs[0])
    size = {"r": 4, "d": 8, "q": 16}[names[0][0]]
    puts = " ".join(f"st.param.b{8 * size} [back+{size * place}], {name};" for place, name in enumerate(names))
    function = f""".func (.param .align 16 .b8 back[16]) @K_f{number}(.param .align 16 .b8 what[16]) {{
{REGISTERS}
{mnemonic} {target}, [what]; {puts} ret; }}
"""
    body = f"""{{ .param .align 16 .b8 argument[16]; .param .align 16 .b8 answer[16];
ld.global.v2.b64 {{x, y}}, [gcell]; st.param.v2.b64 [argument], {{x, y}};
call.uni (answer), @K_f{number}, (argument);
ld.param.b{8 * size} {names[0]}, [answer]; }}
st.global.b{8 * size} [od], {names[0]};"""
    return Part(mnemonic, f"{REGISTERS}\n{body}", size), function


def _const() -> str:
    data = ", ".join(str(byte) for byte in random_bytes("const", 128))
    return f".const .align 128 .b8 @K_const[128] = {{{data}}};\n"


def _made(form: Form, parts: Sequence[Part], before: str = "") -> Program:
    return Program(
        form.name,
        tuple(parts),
        threads=THREADS,
        given=random_bytes(form.name, THREADS * CELL + 256),
        before=_const() + before,
        start=START,
        block=random_bytes("block", 128),
    )


def programs(form: Form) -> list[Program]:
    """Programs of `ld`, `ldu` and `st`: one, and one for those that need functions."""
    plain: list[Part] = []
    functions: list[Part] = []
    before = ""
    for number, mnemonic in enumerate(mnemonics(form)):
        space = space_of(mnemonic)
        if mnemonic.startswith("st"):
            part, function = _store(form, mnemonic, number)
            (functions if function else plain).append(part)
            before += function
        elif space == "param::func":
            part, function = _inside(form, mnemonic, number)
            functions.append(part)
            before += function
        else:
            plain.append(_load(form, mnemonic))
    made = [_made(form, plain)] if plain else []
    return [*made, *([_made(form, functions, before)] if functions else [])]


_HINTS = {
    "prefetch.L1": "[x]",
    "prefetch.L2": "[x]",
    "prefetchu.L1": "[x]",
    "applypriority": "[x], 128",
    "discard": "[x], 128",
}


def hints(form: Form) -> list[Program]:
    """Instructions that change no value: what was stored before them is read after them."""
    parts = []
    for mnemonic in mnemonics(form):
        space = space_of(mnemonic)
        tail = ", 128" if mnemonic.startswith(("applypriority", "discard")) else ""
        where = {"local": "lcell", "const": "ccell"}.get(space, "gcell")
        if space == "" and tail == "":
            where = "generic"
        if "tensormap" in mnemonic:
            where = {"param": "@K_block", "const": "@K_const"}.get(space, "map")
        if tail:
            where = "aligned"
        read = "const" if space == "const" else "local" if space == "local" else "global"
        back = {"const": "ccell", "local": "lcell", "global": "gcell"}[read]
        body = f"""{REGISTERS} .reg .b64 generic, aligned, map; mov.u64 map, @K_block; cvta.param.u64 map, map;
cvta.global.u64 generic, gcell; add.u64 aligned, given, {THREADS * CELL + 127}; and.b64 aligned, aligned, -128;
{mnemonic} [{where}]{tail};
ld.{read}.b32 r1, [{back}]; st.global.b32 [od], r1;"""
        parts.append(Part(mnemonic, body, 4))
    return [_made(form, parts)]


def policies(form: Form) -> list[Program]:
    """`createpolicy`: a load with the policy reads what is there."""
    parts = []
    for mnemonic in mnemonics(form):
        made = {
            "range": "createpolicy.range.global.L2::evict_last.b64 policy, [gcell], 64, 128;",
            "fractional": f"{mnemonic} policy, 0.5;",
            "cvt": f"mov.u64 d1, 0; {mnemonic} policy, d1;",
        }[mnemonic.split(".")[1]]
        if ".range" in mnemonic:
            where = "gcell" if ".global" in mnemonic else "d1"
            made = f"cvta.global.u64 d1, gcell; {mnemonic} policy, [{where}], 64, 128;"
        body = f"{REGISTERS}\n{made}\nld.global.L2::cache_hint.b32 r1, [gcell], policy; st.global.b32 [od], r1;"
        parts.append(Part(mnemonic, body, 4))
    return [_made(form, parts)]
