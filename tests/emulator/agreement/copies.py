"""Programs of asynchronous copies without a tensor map: cp.async, bulk copies and reductions, remote stores."""

from __future__ import annotations

from tests.emulator.agreement.atomic import _cells
from tests.emulator.agreement.program import Part, Program
from tests.emulator.agreement.values import random_bytes

from ptxbench.emulator.ptx.isa import Form, mnemonics, operands

REGISTERS = ".reg .b32 r<20>; .reg .b64 d<20>; .reg .pred p<8>;"
BULK = 512
"""Bytes of a bulk copy."""
POLICY = ".reg .b64 policy; createpolicy.fractional.L2::evict_first.b64 policy;"


def _policy(mnemonic: str) -> str:
    return ", policy" if "L2::cache_hint" in mnemonic else ""


def non_bulk(form: Form) -> list[Program]:
    """`cp.async` of each size, whole and in part; groups; arrivals on an mbarrier."""
    parts = []
    for mnemonic in mnemonics(form):
        body = _copies(form, mnemonic) if ".global" in mnemonic else _groups(mnemonic)
        parts.append(Part(mnemonic, f"{REGISTERS}\n{body}", 64))
    start = f"""{POLICY} .shared .align 128 .b8 smem[2048]; .reg .b64 cells, gcell; .reg .b32 cell32, bar;
.reg .b64 x, y; mov.u64 cells, smem; mad.wide.u32 cells, t, 48, cells; cvt.u32.u64 cell32, cells; mov.u32 bar, smem;
add.u32 bar, bar, 1792; mad.wide.u32 gcell, t, 64, given;"""
    return [Program(form.name, tuple(parts), threads=32, given=random_bytes(form.name, 4096), start=start)]


_READ = """ld.shared.v2.b64 {x, y}, [cells]; st.global.v2.b64 [od], {x, y};
ld.shared.v2.b64 {x, y}, [cells+16]; st.global.v2.b64 [od+16], {x, y};
ld.shared.v2.b64 {x, y}, [cells+32]; st.global.v2.b64 [od+32], {x, y};"""
_CLEAR = "st.shared.v2.b64 [cells], {1, 2}; st.shared.v2.b64 [cells+16], {3, 4}; st.shared.v2.b64 [cells+32], {5, 6};"


def _copies(form: Form, mnemonic: str) -> str:
    sizes = (16, 16) if ".cg." in mnemonic else (4, 8)
    specs = operands(form, mnemonic)
    ignores = any(spec.type == "pred" for spec in specs)
    policy = _policy(mnemonic)
    cut = ", p1" if ignores else ", r1"
    whole = "" if not ignores else ", p2"
    return f"""{_CLEAR} and.b32 r1, lane, {sizes[1] - 1}; setp.eq.u32 p1, r1, 1; setp.ne.u32 p2, r1, r1;
{mnemonic} [cell32], [gcell], {sizes[0]}{whole}{policy}; {mnemonic} [cell32+16], [gcell+16], {sizes[1]}{cut}{policy};
cp.async.wait_all; {_READ}"""


def _groups(mnemonic: str) -> str:
    copy = "cp.async.ca.shared.global [cell32], [gcell], 16; cp.async.cg.shared.global [cell32+16], [gcell+16], 16;"
    if "mbarrier" in mnemonic:
        address = "bar" if ".shared" in mnemonic else "d1"
        count = 33 if "noinc" in mnemonic else 1
        return f"""{_CLEAR} mov.u32 r2, {count}; setp.eq.u32 p1, t, 0;
@p1 mbarrier.init.shared::cta.b64 [bar], r2; bar.sync 0;
cvt.u64.u32 d1, bar; cvta.shared.u64 d1, d1; {copy} {mnemonic} [{address}]; bar.sync 0;
@p1 mbarrier.arrive.shared::cta.b64 d2, [bar];
{{ AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p2, [bar], 0; @!p2 bra AGAIN; }} {_READ} bar.sync 0;
@p1 mbarrier.inval.shared::cta.b64 [bar]; bar.sync 0;"""
    ends = {"wait_all": "cp.async.wait_all;"}.get(
        mnemonic.rsplit(".", maxsplit=1)[-1], "cp.async.commit_group; cp.async.wait_group 0;"
    )
    return f"{_CLEAR} {copy} {ends} {_READ}"


_START = f"""{POLICY} .shared .align 128 .b8 smem[{2 * BULK + 128}]; .reg .b64 x, y, g64; .reg .b32 bar, to32, base;
.reg .pred first; .reg .b64 cells; mov.u32 base, smem; add.u32 bar, base, {2 * BULK}; add.u32 to32, base, {BULK};
mov.u64 cells, smem; mad.wide.u32 cells, t, 16, cells; mad.wide.u32 g64, t, 16, given; setp.eq.u32 first, t, 0;
ld.global.v2.b64 {{x, y}}, [g64]; st.shared.v2.b64 [cells], {{x, y}};
ld.global.v2.b64 {{x, y}}, [g64+{BULK}]; st.shared.v2.b64 [cells+{BULK}], {{x, y}};
@first mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster; fence.proxy.async; bar.sync 0;
"""
_BOTH = "barrier.cluster.arrive; barrier.cluster.wait;"
_SHOW = f"ld.shared.v2.b64 {{x, y}}, [cells+{BULK}]; st.global.v2.b64 [od], {{x, y}};"


def _to_shared(mnemonic: str, place: int) -> tuple[str, int]:
    """A bulk copy or reduction into shared memory that counts bytes on a barrier; how many CTAs it needs."""
    multicast = "multicast::cluster" in mnemonic
    remote = "shared::cluster.shared::cta" in mnemonic
    source = "[base]" if remote else "[given]"
    extra = (", 3" if multicast else "") + _policy(mnemonic)
    wide = ".reg .b16 mask; mov.u16 mask, 3;" if multicast else ""
    extra = extra.replace(", 3", ", mask")
    peer = "xor.b32 r5, rank, 1; mapa.shared::cluster.u32 r6, to32, r5; mapa.shared::cluster.u32 r7, bar, r5;"
    where = ("r6", "r7") if remote else ("to32", "bar")
    issue = f"{mnemonic} [{where[0]}], {source}, {BULK}, [{where[1]}]{extra};"
    who = "setp.eq.u32 p3, rank, 0; and.pred p3, p3, first;" if multicast else "mov.pred p3, first;"
    parity = place % 2
    return (
        f"""{wide} {peer} {who} @first mbarrier.arrive.expect_tx.shared::cta.b64 d1, [bar], {BULK}; {_BOTH} @p3 {issue}
AGAIN{place}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p2, [bar], {parity}; @!p2 bra AGAIN{place};
{_SHOW} bar.sync 0; {_BOTH}""",
        2,
    )


def _to_global(mnemonic: str) -> str:
    """A bulk copy or reduction from shared memory to the part's own place in `out`."""
    extra = _policy(mnemonic)
    return f"""ld.global.v2.b64 {{x, y}}, [g64+{2 * BULK}]; st.global.v2.b64 [od], {{x, y}};
fence.proxy.async; bar.sync 0; mad.lo.u32 r1, rank, {BULK}, 0; cvt.u64.u32 d1, r1; add.u64 d1, d1, ob;
@first {mnemonic} [d1], [base], {BULK}{extra};
@first cp.async.bulk.commit_group; @first cp.async.bulk.wait_group 0; bar.sync 0;"""


def bulk(form: Form) -> list[Program]:
    """Bulk copies and reductions of `BULK` bytes, in a cluster of two where they may cross it."""
    parts = []
    for place, mnemonic in enumerate(mnemonics(form)):
        words = mnemonic.split(".")
        if words[1] == "async" and words[3] in ("commit_group", "wait_group"):
            body = _to_global("cp.async.bulk.global.shared::cta.bulk_group")
            if ".read" in mnemonic:
                body = body.replace("wait_group 0;", "wait_group.read 0; @first cp.async.bulk.wait_group 0;")
        elif "prefetch" in words:
            body = f"@first {mnemonic} [given], {BULK}{_policy(mnemonic)};"
            body += " ld.global.b32 r1, [g64]; st.global.b32 [od], r1;"
        elif words[-1] == "bulk_group" or "bulk_group" in words:
            body = _to_global(mnemonic)
        else:
            body, _ = _to_shared(mnemonic, place)
        parts.append(Part(mnemonic, f"{REGISTERS}\n{body}", 16))
    return [Program(form.name, tuple(parts), threads=32, cluster=2, grid=2, given=_operands(form), start=_START)]


def _operands(form: Form) -> bytes:
    """Three slabs of `BULK` bytes of values of the form's type."""
    type_ = form.name.split(".")[-1].split(" ")[0]
    known = ("f16", "bf16", "f32", "f64", "u32", "s32", "u64", "s64", "b32", "b64")
    return b"".join(_cells(type_ if type_ in known else "b32", slab, form.name)[:BULK] for slab in (0, 1, 2))


def remote(form: Form) -> list[Program]:
    """`st.async` and `red.async`: words in the other CTA's shared memory, counted on its barrier."""
    parts = []
    for place, mnemonic in enumerate(mnemonics(form)):
        spec = operands(form, mnemonic)[1]
        bits = 64 if "64" in spec.type else 32
        count = spec.count if spec.kind == "vector" else 1
        names = [f"{'d' if bits == 64 else 'r'}{10 + number}" for number in range(count)]
        vector = "{" + ", ".join(names) + "}" if spec.kind == "vector" else names[0]
        size = bits // 8
        loads = " ".join(f"ld.global.b{bits} {name}, [g64+{BULK + size * n}];" for n, name in enumerate(names))
        peer = "xor.b32 r5, rank, 1; mapa.shared::cluster.u32 r6, r4, r5; mapa.shared::cluster.u32 r7, bar, r5;"
        body = f"""{REGISTERS} mad.lo.u32 r4, t, 16, to32; {peer} {loads}
ld.global.v2.b64 {{x, y}}, [g64]; st.shared.v2.b64 [cells+{BULK}], {{x, y}};
@first mbarrier.arrive.expect_tx.shared::cta.b64 d1, [bar], {32 * size * count}; {_BOTH}
{mnemonic} [r6], {vector}, [r7];
AGAIN{place}: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p2, [bar], {place % 2}; @!p2 bra AGAIN{place};
{_SHOW} bar.sync 0; {_BOTH}"""
        parts.append(Part(mnemonic, body, 16))
    return [Program(form.name, tuple(parts), threads=32, cluster=2, grid=2, given=_operands(form), start=_START)]
