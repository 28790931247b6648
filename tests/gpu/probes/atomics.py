"""Probes of reductions in memory: atom and red on global and shared words, and bulk reductions of arrays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tests.emulator.ptx.samples import width_of
from tests.gpu.probes.operands import WIDTHS, Words, Writer, column, packed
from tests.gpu.probes.probe import Probe

from ptxbench.emulator.ptx.isa import coverage, mnemonics, operands
from ptxbench.emulator.ptx.shapes import OperandSpec

ROWS = 64
SLOT = 16
"""Bytes from the word of one lane to the next."""
SEMANTICS = re.compile(r"relaxed|acquire|release|acq_rel|cta|cluster|gpu|sys|async|cache_hint|b128")
BULK = "cp.reduce.async.bulk.global.shared::cta.bulk_group."
REMOTE = "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes."


def _filled(name: str, type_: str, size: int) -> bytes:
    """Memory full of edges of a type."""
    width = WIDTHS[width_of(type_)]
    return packed(column(name, type_, size * 8 // width), width, 64).astype("<u8").tobytes()


def atomic(mnemonic: str, specs: Sequence[OperandSpec]) -> Probe:
    """One lane per word; what the instruction returns, and the words afterwards."""
    kind = mnemonic.rpartition(".")[2]
    writer = Writer(ROWS)
    shared = ".shared." in mnemonic
    at = "[r9]" if shared else "[d20]"
    text = f"{mnemonic} {', '.join(at if spec.kind == 'address' else writer.operand(spec) for spec in specs)};\n"
    words = writer.out if writer.results else 0
    place = f"shl.b32 r8, r0, 4; cvt.u64.u32 d20, r8; add.u64 d20, d20, d1; add.u64 d20, d20, {words};\n"
    move = ""
    if shared:
        place += "mov.u32 r9, data; add.u32 r9, r9, r8;\n"
        before = "ld.global.v2.b64 {d30, d31}, [d20]; st.shared.v2.b64 [r9], {d30, d31};\n"
        move = "ld.shared.v2.b64 {d30, d31}, [r9]; st.global.v2.b64 [d20], {d30, d31};\n"
        place += before
    columns: list[Words] = [column(f"{mnemonic} {at}", type_, ROWS) for at, type_ in enumerate(writer.sources)]
    return Probe(
        name=f"atomic: {mnemonic}",
        body=place + writer.head + writer.loads + text + writer.stores + move,
        given=b"".join(each.astype("<u8").tobytes() for each in columns),
        out=words + SLOT * ROWS,
        start=bytes(words) + _filled(mnemonic + " memory", kind, SLOT * ROWS),
        block=(ROWS, 1, 1),
        shared=SLOT * ROWS,
    )


def bulk(mnemonic: str) -> Probe:
    """A bulk reduction of an array in global memory, all pairs of edges met by chance."""
    kind = mnemonic.rpartition(".")[2]
    size = 2048
    body = f"""shl.b32 r1, r0, 4; mov.u32 r2, data; add.u32 r3, r2, r1; cvt.u64.u32 d2, r1; add.u64 d2, d2, d0;
ld.global.v2.b64 {{d3, d4}}, [d2]; st.shared.v2.b64 [r3], {{d3, d4}}; fence.proxy.async; bar.sync 0;
setp.ne.u32 p0, r0, 0; @p0 bra DONE;
{mnemonic} [d1], [r2], {size};
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE:"""
    given, start = (_filled(f"{mnemonic} {side}", kind, size) for side in ("source", "target"))
    return Probe(f"bulk reduction: {mnemonic}", body, given, size, start=start, block=(size // 16, 1, 1), shared=size)


def remote(mnemonic: str) -> Probe:
    """A bulk reduction in another CTA's shared memory: rank 1's words afterwards."""
    kind = mnemonic.rpartition(".")[2]
    size = 1024
    body = f"""mov.u32 r8, %cluster_ctarank; mov.u32 r2, data; shl.b32 r1, r0, 4; add.u32 r3, r2, r1;
mul.lo.u32 r4, r8, {size}; add.u32 r4, r4, r1; cvt.u64.u32 d2, r4; add.u64 d2, d2, d0;
ld.global.v2.b64 {{d3, d4}}, [d2]; st.shared.v2.b64 [r3], {{d3, d4}};
add.u32 r5, r2, {size}; setp.ne.u32 p0, r0, 0; @p0 bra READY;
mbarrier.init.shared::cta.b64 [r5], 1; mbarrier.arrive.expect_tx.shared::cta.b64 _, [r5], {size};
READY: fence.proxy.async; fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
setp.ne.u32 p1, r8, 0; @p0 bra SENT; @p1 bra SENT;
mapa.shared::cluster.u32 r6, r2, 1; mapa.shared::cluster.u32 r7, r5, 1;
{mnemonic} [r6], [r2], {size}, [r7];
SENT: @!p1 bra DONE;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 p2, [r5], 0; @!p2 bra WAIT;
ld.shared.v2.b64 {{d3, d4}}, [r3]; cvt.u64.u32 d2, r1; add.u64 d2, d2, d1; st.global.v2.b64 [d2], {{d3, d4}};
DONE: barrier.cluster.arrive; barrier.cluster.wait;"""
    given = b"".join(_filled(f"{mnemonic} {side}", kind, size) for side in ("source", "target"))
    two = (2, 1, 1)
    name = f"bulk reduction: {mnemonic}"
    return Probe(name, body, given, size, grid=two, cluster=two, block=(size // 16, 1, 1), shared=size + 16)


def _spread() -> Probe:
    """Sums by all lanes on one word of global and one of shared memory: of integers, so that order means nothing."""
    body = """mov.u32 r2, data; st.shared.b32 [r2], 0; bar.sync 0; cvt.rn.f32.u32 r3, r0;
red.global.add.f32 [d1], r3; red.shared.add.f32 [r2], r3; bar.sync 0;
ld.shared.b32 r4, [r2]; st.global.b32 [d1+4], r4;"""
    return Probe("atomic: all lanes on one word", body, out=8, start=bytes(8), block=(128, 1, 1), shared=16)


def atomics() -> Iterator[Probe]:
    """All of them."""
    yield _spread()
    for form in coverage():
        mnemonic = mnemonics(form)[0]
        root = mnemonic.partition(".")[0]
        if "sm_90a" not in form.targets:
            continue
        if root in ("atom", "red") and not SEMANTICS.search(form.name):
            specs = operands(form, mnemonic)
            if ".global" in mnemonic:
                yield atomic(mnemonic, specs)
            else:
                vector = any(f".v{count}." in mnemonic for count in (2, 4, 8))  # these stand for .global alone
                for space in (".global",) if vector else (".global", ".shared"):
                    yield atomic(mnemonic.replace(root, root + space, 1), specs)
        if mnemonic.startswith(BULK):
            yield bulk(mnemonic)
        if mnemonic.startswith(REMOTE):
            yield remote(mnemonic)
