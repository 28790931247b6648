"""Programs of control flow, barriers, fences, the stack, address spaces and the rest: by hand, one per opcode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tests.emulator.agreement.program import Part, Program
from tests.emulator.agreement.values import random_bytes

from ptxbench.emulator.ptx.isa import Form, mnemonics, operands

REGISTERS = ".reg .b32 r<12>; .reg .b64 d<12>; .reg .pred p<6>;"
Maker = Callable[[Form], list[Program]]


def _all(form: Form, body: Callable[[str, int], str], stride: int = 4, **more: object) -> list[Program]:
    """One program of all mnemonics."""
    parts = tuple(
        Part(mnemonic, f"{REGISTERS}\n{body(mnemonic, place)}", stride)
        for place, mnemonic in enumerate(mnemonics(form))
    )
    return [Program(form.name, parts, given=random_bytes(form.name, 4096), **more)]  # type: ignore[arg-type]


def flow(form: Form) -> list[Program]:
    """Loops, jumps through a table, calls and returns, with lanes that go different ways."""

    def body(mnemonic: str, place: int) -> str:
        word = mnemonic.split(".", maxsplit=1)[0]
        uniform = ".uni" in mnemonic
        which = "warp" if uniform else "lane"
        if word == "bra":
            return f"""and.b32 r1, {which}, 7; mov.u32 r2, 1; setp.eq.u32 p1, r1, 3; @p1 {mnemonic} LOW{place};
add.u32 r2, r2, 40; LOW{place}: add.u32 r2, r2, r1; st.global.b32 [od], r2;"""
        if word == "brx":
            return f"""and.b32 r1, {which}, 3; TABLE{place}: .branchtargets A{place}, B{place}, C{place}, A{place};
mov.u32 r2, 5; {mnemonic} r1, TABLE{place}; A{place}: add.u32 r2, r2, 10; bra.uni C{place};
B{place}: add.u32 r2, r2, 200; C{place}: add.u32 r2, r2, 1; st.global.b32 [od], r2;"""
        if word == "call":
            return f"""{{ .param .b32 x; .param .b32 y; st.param.b32 [x], lane; {mnemonic} (y), @K_twice, (x);
ld.param.b32 r1, [y]; }} st.global.b32 [od], r1;"""
        early = f"setp.lt.u32 p1, {'warp, 2' if uniform else 'lane, 9'}; st.global.b32 [od], 7; @p1 {mnemonic};"
        return f"{early} st.global.b32 [od], 8;"

    before = """.func (.param .b32 y) @K_twice(.param .b32 x) { .reg .b32 a; .reg .pred p; ld.param.b32 a, [x];
shl.b32 a, a, 1; st.param.b32 [y], a; setp.lt.u32 p, a, 20; @p ret; add.u32 a, a, 100; st.param.b32 [y], a; ret; }
"""
    made = _all(form, body, before=before)
    word = form.name.split(".")[0]
    if word in ("ret", "exit"):
        # They end the kernel, so each mnemonic has a program of its own.
        return [Program(form.name, (part,), given=made[0].given, before=before) for part in made[0].parts]
    return made


def barriers(form: Form) -> list[Program]:
    """Neighbours exchange words through shared memory; reductions count lanes."""
    specs = operands(form, mnemonics(form)[0])
    counted = len([spec for spec in specs if not spec.written and spec.type == "b32"]) > 1

    def body(mnemonic: str, place: int) -> str:
        words = mnemonic.split(".")
        many = ", 128" if counted else ""
        if "red" in words:
            predicate = words[-1] == "pred"
            target = "p2" if predicate else "r3"
            keep = "selp.u32 r3, 1, 0, p2;" if predicate else ""
            odd = "setp.eq.u32 p1, r4, 5; " if place % 2 else "setp.ne.u32 p1, r4, 5; "
            return f"and.b32 r4, t, 31; {odd}{mnemonic} {target}, 1{many}, p1; {keep} st.global.b32 [od], r3;"
        first = f"{mnemonic} 1{many};"
        if "arrive" in words:
            other = "barrier.sync" if words[0] == "barrier" else "bar.sync"
            first = f"setp.ge.u32 p1, warp, 2; @p1 bra WAIT{place}; {mnemonic} 1, 128; bra OVER{place};"
            first += f" WAIT{place}: {other} 1, 128; OVER{place}:"
        back = "xor.b32 r1, t, 64; " if "arrive" in words else "xor.b32 r1, t, 96; "
        reader = "setp.ge.u32 p1, warp, 2; " if "arrive" in words else "setp.lt.u32 p1, t, 1000; "
        return f"""mad.lo.u32 r3, t, 4, cells; mul.lo.u32 r2, t, {place + 3}; st.shared.b32 [r3], r2; {first}
{back}{reader} mad.lo.u32 r3, r1, 4, cells; mov.u32 r4, 1; @p1 ld.shared.b32 r4, [r3]; st.global.b32 [od], r4;
bar.sync 0;"""

    start = ".shared .align 16 .b8 smem[512]; .reg .b32 cells; mov.u32 cells, smem;"
    return _all(form, body, start=start)


def clusters(form: Form) -> list[Program]:
    """`barrier.cluster`: a word of the other CTA's shared memory."""

    def body(mnemonic: str, place: int) -> str:
        arrive, wait = (
            ("barrier.cluster.arrive;", f"{mnemonic};")
            if "wait" in mnemonic
            else (f"{mnemonic};", "barrier.cluster.wait;")
        )
        fence = "fence.acq_rel.cluster;" if "relaxed" in mnemonic else ""
        return f"""mad.lo.u32 r1, t, 4, cells; mad.lo.u32 r2, rank, 1000, t; st.shared.b32 [r1], r2;
{fence} {arrive} {wait}
xor.b32 r3, rank, 1; mapa.shared::cluster.u32 r4, r1, r3; ld.shared::cluster.b32 r5, [r4]; st.global.b32 [od], r5;
barrier.cluster.arrive; barrier.cluster.wait;"""

    start = ".shared .align 16 .b8 smem[512]; .reg .b32 cells; mov.u32 cells, smem;"
    return _all(form, body, start=start, cluster=2, grid=2)


def fences(form: Form) -> list[Program]:
    """Words handed over through global and shared memory, with the fence between."""

    def body(mnemonic: str, place: int) -> str:
        operand = " [d1], 128" if len(operands(form, mnemonic)) else ""
        address = "add.u64 d1, given, 1024; cvta.global.u64 d1, d1;"
        return f"""{address} st.global.b32 [od], t; {mnemonic}{operand}; ld.global.b32 r1, [od];
mad.lo.u32 r1, r1, 3, 1; st.global.b32 [od], r1;"""

    return _all(form, body, cluster=2, grid=2)


def misc(form: Form) -> list[Program]:
    """What changes no value: words before and after it."""

    def body(mnemonic: str, place: int) -> str:
        operand = {"nanosleep": " 100", "pmevent": " 1", "bar": " -1"}.get(mnemonic.split(".", maxsplit=1)[0], "")
        return f"add.u32 r1, t, 1; {mnemonic}{operand}; st.global.b32 [od], r1;"

    return _all(form, body)


def ending(form: Form) -> list[Program]:
    """`trap` and `brkpt`: the error that they are."""
    (mnemonic,) = mnemonics(form)
    body = f"{REGISTERS} setp.eq.u32 p1, t, 5; @p1 {mnemonic}; st.global.b32 [od], 1;"
    return [Program(form.name, (Part(mnemonic, body, 4),), ends=True)]


def registers(form: Form) -> list[Program]:
    """`setmaxnreg`: down, and up again."""
    (mnemonic,) = mnemonics(form)
    body = "setmaxnreg.dec.sync.aligned.u32 40; setmaxnreg.inc.sync.aligned.u32 72; "
    body = body if ".inc" in mnemonic else "setmaxnreg.dec.sync.aligned.u32 40; "
    part = Part(mnemonic, f"{REGISTERS} {body} add.u32 r1, t, 3; st.global.b32 [od], r1;", 4)
    return [Program(form.name, (part,), directives=".minnctapersm 1 .maxnreg 128")]


def stack(form: Form) -> list[Program]:
    """`alloca`, `stacksave`, `stackrestore`: words kept in two places of the stack; addresses are not compared."""

    def body(mnemonic: str, place: int) -> str:
        return """stacksave.u64 d3; and.b32 r1, lane, 3; add.u32 r1, r1, 1; mul.wide.u32 d1, r1, 16;
alloca.u64 d2, d1, 16; alloca.u64 d4, d1, 16; st.local.b32 [d2], t; st.local.b32 [d4], lane;
ld.local.b32 r2, [d2]; ld.local.b32 r3, [d4];
stackrestore.u64 d3; alloca.u64 d5, d1, 16; sub.u64 d6, d5, d2; cvt.u32.u64 r4, d6;
st.global.b32 [od], r2; st.global.b32 [od+4], r3; st.global.b32 [od+8], r4;"""

    return _all(form, body, stride=12)


_SPACES = """.shared .align 16 .b8 smem[512]; .local .align 16 .b8 lmem[16]; .reg .b64 sg, lg, cg, pg, gg; .reg .b32 w;
mov.u64 sg, smem; ld.global.b32 w, [given]; st.shared.b32 [sg], w; cvta.shared.u64 sg, sg;
mov.u64 lg, lmem; st.local.b32 [lg], w; cvta.local.u64 lg, lg; mov.u64 cg, @K_const; cvta.const.u64 cg, cg;
mov.u64 pg, @K_block; cvta.param.u64 pg, pg; cvta.global.u64 gg, given; bar.sync 0;
"""
_CONST = ".const .align 16 .b8 @K_const[16] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};\n"
_GENERIC = {"shared": "sg", "local": "lg", "const": "cg", "param": "pg", "global": "gg"}


def spaces(form: Form) -> list[Program]:
    """`isspacep` and `cvta`: which space an address lies in; what is there by the converted address."""

    def body(mnemonic: str, place: int) -> str:
        words = mnemonic.split(".")
        if words[0] == "isspacep":
            asks = "".join(
                f"{mnemonic} p1, {register}; selp.u32 r1, 1, 0, p1; st.global.b32 [od+{4 * n}], r1;\n"
                for n, register in enumerate(_GENERIC.values())
            )
            return asks
        space = words[2 if words[1] == "to" else 1]
        plain = space.split("::")[0]
        name = {"shared": "smem", "local": "lmem", "const": "@K_const", "param": "@K_block"}.get(plain)
        if words[1] == "to":
            read = "param" if plain == "param" else space
            return f"{mnemonic} d2, {_GENERIC[plain]}; ld.{read}.b32 r1, [d2]; st.global.b32 [od], r1;"
        source = f"mov.u64 d1, {name};" if name else "mov.u64 d1, given;"
        return f"{source} {mnemonic} d2, d1; ld.b32 r1, [d2]; st.global.b32 [od], r1;"

    stride = 20 if form.name.startswith("isspacep") else 4
    block = random_bytes("block", 128)
    return _all(form, body, stride=stride, start=_SPACES, before=_CONST, block=block)


def ranks(form: Form) -> list[Program]:
    """`mapa` and `getctarank`: a word of the next CTA, and whose it is."""

    def body(mnemonic: str, place: int) -> str:
        words = mnemonic.split(".")
        wide, shared = words[-1] == "u64", "shared::cluster" in words
        kind = "d" if wide else "r"
        first = f"mov.u{64 if wide else 32} {kind}1, smem;" + (
            "" if shared else f" cvta.shared.u64 {kind}1, {kind}1;" if wide else ""
        )
        middle = f"mapa{'.shared::cluster' if shared or not wide else ''}.u{64 if wide else 32}"
        mapa = mnemonic if words[0] == "mapa" else middle
        rank = mnemonic if words[0] == "getctarank" else mapa.replace("mapa", "getctarank")
        read = "ld.shared::cluster.b32" if shared or not wide else "ld.b32"
        return f"""{first} add.u32 r5, rank, 1; and.b32 r5, r5, 3; {mapa} {kind}2, {kind}1, r5; {rank} r6, {kind}2;
{read} r7, [{kind}2]; st.global.b32 [od], r6; st.global.b32 [od+4], r7;"""

    start = """.shared .align 16 .b8 smem[16]; { .reg .b32 a, b;
mov.u32 a, smem; add.u32 b, rank, 70; st.shared.b32 [a], b; } barrier.cluster.arrive; barrier.cluster.wait;"""
    made = _all(form, body, stride=8, start=start, cluster=4, grid=4, threads=32)
    last = Part("(end)", "barrier.cluster.arrive; barrier.cluster.wait; st.global.b32 [od], t;", 4)
    return [replace(each, parts=(*each.parts, last)) for each in made]
