"""Probes of one race in many runs: does a proxy fence on the reader's side alone order writes before an async read?

Four warps write 16 KiB with bank conflicts and hand over; four other warps read through the async proxy, by a bulk
store or by wgmma. The answer is how many words, of how many, were not the last written.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.gpu.probes.probe import Probe

CTAS = 528  # four on each of an H200's 132 multiprocessors
SIZE = 16 << 10
FENCE = "fence.proxy.async.shared::cta;"

BEGIN = """mov.u32 r1, data; and.b32 r2, r0, 127; shl.b32 r2, r2, 7; add.u32 r4, r1, r2; mov.u32 r5, %ctaid.x;
mul.wide.u32 d5, r5, {size}; add.u64 d5, d5, d1; add.u64 d5, d5, 4096; cvt.u64.u32 d6, r2; add.u64 d6, d5, d6;
add.u32 r6, r1, {size}; setp.lt.u32 p1, r0, 128; setp.ne.u32 p2, r0, 128; setp.ne.u32 p0, r0, 0; mov.u32 r7, r0;
ONES: shl.b32 r8, r7, 2; add.u32 r8, r8, r6; st.shared.b32 [r8], 0x3f803f80; add.u32 r7, r7, 256;
setp.lt.u32 p3, r7, 512; @p3 bra ONES;
@p0 bra READY; mbarrier.init.shared::cta.b64 [r6+2048], 128;
READY: fence.proxy.async; bar.sync 0;
shr.u32 r7, r1, 4; cvt.u64.u32 d10, r7; add.u64 d11, d10, {b}; add.u64 d10, d10, {a};
mov.u32 r10, 0; mov.u32 r11, 0; mov.b32 r20, 0; mov.b32 r21, 0; mov.b32 r22, 0; mov.b32 r23, 0;
LOOP: and.b32 r12, r10, 63; add.u32 r12, r12, 1; cvt.rn.f32.u32 r13, r12; shr.u32 r12, r13, 16; shl.b32 r14, r12, 16;
or.b32 r12, r12, r14; mul.rn.f32 r13, r13, 0f41800000;
@!p1 bra READ;
"""
WRITE = "".join(f"st.shared.b32 [r4+{4 * place}], r12;\n" for place in range(32))
HAND_OVER = {
    "CTA barrier": ("", "READ: bar.sync 0;\n@p1 bra NEXT;\n"),
    "mbarrier": (
        "mbarrier.arrive.shared::cta.b64 _, [r6+2048]; bra NEXT;\n",
        "READ: and.b32 r15, r10, 1;\n"
        "WAIT: mbarrier.try_wait.parity.shared::cta.b64 p4, [r6+2048], r15; @!p4 bra WAIT;\n",
    ),
}
STORE = """@p2 bra NEXT;
cp.async.bulk.global.shared::cta.bulk_group [d5], [r1], {size}; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
NEXT: bar.sync 0; @!p1 bra CHECKED;
"""
SEEN = "".join(
    f"ld.volatile.global.v4.b32 {{r30, r31, r32, r33}}, [d6+{16 * place}];\n"
    + "".join(f"setp.ne.u32 p5, r{30 + word}, r12; @p5 add.u32 r11, r11, 1;\n" for word in range(4))
    for place in range(8)
)
MULTIPLY = """wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {r20, r21, r22, r23}, d10, d11, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
""" + "".join(f"setp.neu.f32 p5, r{20 + word}, r13; @p5 add.u32 r11, r11, 1;\n" for word in range(4))
END = """CHECKED: bar.sync 0; add.u32 r10, r10, 1; setp.lt.u32 p6, r10, {runs}; @p6 bra LOOP;
cvt.u64.u32 d20, r11; red.global.add.u64 [d1], d20;"""


def race(hand_over: str, reader: str, fence: str, runs: int, ctas: int) -> Probe:
    """One pattern.

    Args:
        hand_over: A key of `HAND_OVER`.
        reader: `bulk store` or `wgmma`.
        fence: Who has the proxy fence: `nobody`, `reader` (after the hand-over), `writers` (before it).
        runs: Rounds of each CTA.
        ctas: Size of the grid.
    """
    arrive, wait = HAND_OVER[hand_over]
    a = 1024 >> 4 << 16 | 2048 >> 4 << 32  # no swizzle: one row of 128 bytes, of which a lane wrote all, a core matrix
    b = SIZE >> 4 | 128 >> 4 << 16 | 256 >> 4 << 32
    text = BEGIN.format(size=SIZE, a=a, b=b) + WRITE + (FENCE if fence == "writers" else "") + arrive + wait
    text += FENCE if fence == "reader" else ""
    text += STORE.format(size=SIZE) + SEEN if reader == "bulk store" else MULTIPLY + "NEXT:"
    words = 4096 if reader == "bulk store" else 512
    name = f"race: {hand_over}, {reader}, fence by {fence}; words {words * runs * ctas}"
    shape = (ctas, 1, 1)
    out = 4096 + (SIZE * ctas if reader == "bulk store" else 0)
    text += END.format(runs=runs)
    return Probe(
        name, text, out=out, start=bytes(8), grid=shape, block=(256, 1, 1), shared=SIZE + 2064, shown=8, compared=False
    )


def proxies() -> Iterator[Probe]:
    """All patterns, long enough to see one wrong word in ten thousand million."""
    for hand_over in HAND_OVER:
        for reader in ("bulk store", "wgmma"):
            for fence in ("nobody", "reader", "writers"):
                yield race(hand_over, reader, fence, 40_000 if fence == "writers" else 100_000, CTAS)
