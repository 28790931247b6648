"""Probes of single accesses: addresses off their alignment, copies within a CTA, lanes that are not there."""

from __future__ import annotations

from collections.abc import Iterator

from tests.gpu.probes.probe import Probe

ONE = """setp.ne.u32 p0, r0, 0; @p0 bra DONE; mov.u32 r1, data; ld.global.b32 r2, [d0]; add.u32 r3, r1, r2;
cvt.u64.u32 d2, r2; add.u64 d2, d2, d1; mov.b32 r4, 0; mov.b32 r5, 0; mov.b32 r6, 0; mov.b32 r7, 0;
mov.b64 d4, 0; mov.b64 d5, 0; mov.b16 h1, 0;
st.shared.v4.b32 [r1], {{r4, r5, r6, r7}}; st.shared.v4.b32 [r1+16], {{r4, r5, r6, r7}};
{text}
xor.b32 r8, r4, r5; xor.b32 r9, r6, r7; xor.b32 r8, r8, r9; xor.b64 d4, d4, d5; st.global.b64 [d1+264], d4;
cvt.u32.u16 r10, h1; xor.b32 r8, r8, r10;
st.global.b32 [d1+260], r8; st.global.b32 [d1+256], 1;
DONE:"""
"""One thread's access at a distance that is known only at run time; everything read is used."""

OFF = {
    "ld.shared.v2.b32 {r4, r5}, [r3];": (4,),
    "ld.shared.v4.b32 {r4, r5, r6, r7}, [r3];": (4, 8, 16),
    "ld.shared.v2.b64 {d4, d5}, [r3];": (8,),
    "ld.shared.b64 d4, [r3];": (4,),
    "ld.shared.b16 h1, [r3];": (1,),
    "st.shared.v4.b32 [r3], {r4, r5, r6, r7};": (8, 16),
    "st.shared.b64 [r3], d0;": (4,),
    "ld.global.v4.b32 {r4, r5, r6, r7}, [d2];": (8,),
    "ld.global.b64 d4, [d2];": (4,),
    "st.global.v4.b32 [d2], {r4, r5, r6, r7};": (8,),
    "ld.v4.b32 {r4, r5, r6, r7}, [d2];": (8,),
    "atom.shared.add.u32 r4, [r3], 1;": (2,),
    "atom.shared.add.u64 d4, [r3], 1;": (4,),
    "atom.global.add.u32 r4, [d2], 1;": (2,),
    "atom.global.add.u64 d4, [d2], 1;": (4,),
    "red.global.add.v4.f32 [d2], {r4, r5, r6, r7};": (4, 8),
    "cp.async.ca.shared.global [r3], [d2], 8; cp.async.wait_all;": (4, 8),
    "cp.async.cg.shared.global [r3], [d2], 16; cp.async.wait_all;": (8, 16),
}
"""Accesses, and how far off a well aligned address they are tried."""


def _off(text: str, offset: int) -> Probe:
    given = offset.to_bytes(4, "little")
    return Probe(f"offset {offset}: {text}", ONE.format(text=text), given, 512, start=bytes(512), shared=512)


CLUSTER = """mov.u32 r1, data; setp.ne.u32 p0, r0, 0; @p0 bra READY; mbarrier.init.shared::cta.b64 [r1+64], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [r1+64], {bytes};
st.shared.b64 [r1], 0x0123456789abcdef; st.shared.b64 [r1+8], 5;
st.shared.b64 [r1+32], 0; st.shared.b64 [r1+40], 0;
READY: fence.proxy.async; fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
mov.u32 r8, %cluster_ctarank; setp.ne.u32 p1, r8, 0; or.pred p1, p0, p1; @p1 bra ISSUED;
mapa.shared::cluster.u32 r2, r1, {target}; mov.b32 r4, 7;
{statements}
ISSUED: mov.u32 r6, 0; setp.ne.u32 p1, r8, {target}; or.pred p1, p0, p1; @p1 bra OVER;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 p3, [r1+64], 0; @p3 bra SHOW; add.u32 r6, r6, 1;
setp.lt.u32 p4, r6, 50; @p4 bra WAIT;
SHOW: selp.b32 r7, 1, 0, p3; st.global.b32 [d1], r7; ld.shared.b64 d4, [r1+32]; st.global.b64 [d1+8], d4;
ld.shared.b64 d4, [r1+40]; st.global.b64 [d1+16], d4;
OVER: barrier.cluster.arrive; barrier.cluster.wait;"""
"""CTA 0 sends to the target, which waits for the bytes, but not for ever."""

TX = ".mbarrier::complete_tx::bytes"
SENT = {
    f"cp.async.bulk.shared::cluster.shared::cta{TX} [r2+32], [r1], 16, [r2+64];": 16,
    f"cp.reduce.async.bulk.shared::cluster.shared::cta{TX}.add.u32 [r2+32], [r1], 16, [r2+64];": 16,
    f"st.async.shared::cluster{TX}.b64 [r2+32], d0, [r2+64];": 8,
    f"st.async.shared::cluster{TX}.v4.b32 [r2+32], {{r4, r4, r4, r4}}, [r2+64];": 16,
    f"red.async.relaxed.cluster.shared::cluster{TX}.add.u32 [r2+32], r4, [r2+64];": 4,
}
"""What is sent, and its bytes."""


def _sent(target: int, ctas: int, text: str, size: int) -> Probe:
    body = CLUSTER.format(bytes=size, target=target, statements=text.replace("d0", "0x1122334455667788"))
    shape = (ctas, 1, 1)
    name = f"CTA 0 of {ctas} to CTA {target}: {text}"
    return Probe(name, body, out=24, start=bytes(24), grid=shape, cluster=shape, shared=128)


HALVES = """setp.ge.u32 p0, r0, 16; add.u32 r4, r0, 100; shr.u32 r5, r0, 1; @p0 bra OTHER;
{low}
bra END;
OTHER: {high}
END:"""
LIVE = "setp.ge.u32 p0, r0, 16; @p0 bra EXIT; setp.lt.u32 p1, r0, 16;\n"
LANES = {
    "shuffle from a lane outside of the mask": HALVES.format(
        low="shfl.sync.idx.b32 r9, r4, 20, 31, 0xffff;", high="shfl.sync.idx.b32 r9, r4, 3, 31, 0xffff0000;"
    ),
    "vote of diverged halves": HALVES.format(
        low="setp.lt.u32 p1, r0, 3; vote.sync.ballot.b32 r9, p1, 0xffff;",
        high="setp.lt.u32 p1, r0, 20; vote.sync.ballot.b32 r9, p1, 0xffff0000;",
    ),
    "match by halves": HALVES.format(
        low="match.any.sync.b32 r9, r5, 0xffff;", high="match.any.sync.b32 r9, r5, 0xffff0000;"
    ),
    "redux by halves": HALVES.format(
        low="redux.sync.add.u32 r9, r0, 0xffff;", high="redux.sync.max.s32 r9, r0, 0xffff0000;"
    ),
    "match.all": "match.all.sync.b32 r9|p1, 5, 0xffffffff; @!p1 mov.b32 r9, 0;",
    "redux with exited lanes": LIVE + "redux.sync.add.u32 r9, r0, 0xffffffff;",
    "match with exited lanes": LIVE + "match.any.sync.b32 r9, 1, 0xffffffff;",
    "vote.all with exited lanes": LIVE + "vote.sync.all.pred p2, p1, 0xffffffff; selp.u32 r9, 1, 0, p2;",
    "activemask": "setp.ge.u32 p0, r0, 9; @p0 bra END; activemask.b32 r9; END:",
    "movmatrix": "mad.lo.u32 r4, r0, 0x20002, 0x10000; movmatrix.sync.aligned.m8n8.trans.b16 r9, r4;",
    "fns": "sub.u32 r4, r0, 16; fns.b32 r9, 0xa5c3, 3, r4;",
    "fns from every place": "and.b32 r5, r0, 15; sub.u32 r4, r0, 16; fns.b32 r9, 0xa5c3f00f, r5, r4;",
}


def _lanes(name: str, text: str) -> Probe:
    store = "\nmul.wide.u32 d2, r0, 4; add.u64 d2, d2, d1; st.global.b32 [d2], r9;\nEXIT:"
    return Probe(f"lanes: {name}", "mov.u32 r9, 0xfefefefe;\n" + text + store, out=128)


def accesses() -> Iterator[Probe]:
    """All of them."""
    for text, offsets in OFF.items():
        for offset in offsets:
            yield _off(text, offset)
    for text, size in SENT.items():
        for target, ctas in ((1, 2), (0, 2), (0, 1)):
            yield _sent(target, ctas, text, size)
    for name, text in LANES.items():
        yield _lanes(name, text)
