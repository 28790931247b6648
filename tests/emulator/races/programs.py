"""Small kernels with one race each, and the same repaired: PTX with `{fix}` where the missing part belongs.

Each follows a rule of the PTX ISA, named beside it (sections of edition 9.0). `k(out, given)` has the registers of
`tests.emulator.core.small`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

WORDS = ".shared .align 128 .b32 cell[1024];\n.shared .align 8 .b64 bar[4];\n"
GLOBAL = ".global .align 16 .b32 flag[4];\n.global .align 128 .b32 data[1024];\n"
HEAD = """
mov.u32 %r40, cell; shl.b32 %r41, %r50, 2; add.u32 %r42, %r40, %r41; mov.u64 %d40, data; mul.wide.u32 %d41, %r50, 4;
add.u64 %d42, %d40, %d41; mov.u64 %d43, flag; setp.eq.u32 %p9, %r50, 0; mov.u32 %r45, %cluster_ctarank;
ld.param.u64 %d1, [given];
"""


@dataclass(frozen=True)
class Program:
    """One race.

    Attributes:
        rule: The section of the PTX ISA that it breaks.
        body: Statements; `{fix}` stands for what is missing.
        broken, fixed: What stands there.
        words: What the message must say.
        lines: Words of the two PTX lines that the finding must name: of its own, and of the other one.
        how: Of the launch.
    """

    rule: str
    body: str
    fixed: str
    broken: str = ""
    words: tuple[str, ...] = ()
    how: dict[str, Any] = field(default_factory=dict)
    finding: str = "race"

    def text(self, *, fixed: bool) -> str:
        """The statements."""
        return HEAD + self.body.replace("{fix}", self.fixed if fixed else self.broken)


ROUND = "add.u32 %r43, %r50, 32; and.b32 %r43, %r43, 63; shl.b32 %r43, %r43, 2; add.u32 %r43, %r40, %r43;\n"
NEIGHBOUR = "xor.b32 %r43, %r50, 1; shl.b32 %r43, %r43, 2; add.u32 %r43, %r40, %r43;\n"
WAIT = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0;\n@!%p1 bra W;\n"
INIT = "@%p9 mbarrier.init.shared::cta.b64 [bar], {count};\n"
FENCE = "fence.mbarrier_init.release.cluster;\n"
TWO = {"threads": 64}
CLUSTER = {"threads": 32, "grid": 2, "cluster": 2}
SYNC = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n"
PEER = "xor.b32 %r46, %r45, 1; mapa.shared::cluster.u32 %r47, %r42, %r46;\n"

PROGRAMS = {
    "no barrier between warps": Program(
        "Barrier instructions: bar.sync orders memory accesses among participants",
        ROUND + "st.shared.u32 [%r42], %r50;\n{fix}\nld.shared.u32 %r1, [%r43];\nst.global.u32 [%d51], %r1;",
        "bar.sync 0;",
        words=("warp 0", "warp 1", "nothing orders"),
        how=TWO,
    ),
    "no barrier before the buffer is filled again": Program(
        "Memory consistency model: conflicting accesses (write after read)",
        ROUND + "st.shared.u32 [%r42], %r50;\nbar.sync 0;\nld.shared.u32 %r1, [%r43];\n{fix}\n"
        "st.shared.u32 [%r42], %r1;\nst.global.u32 [%d51], %r1;",
        "bar.sync 0;",
        words=("writes shared+", "read"),
        how=TWO,
    ),
    "no syncwarp between lanes": Program(
        "bar.warp.sync: guarantees memory ordering among participating threads",
        NEIGHBOUR + "st.shared.u32 [%r42], %r50;\n{fix}\nld.shared.u32 %r1, [%r43];\nst.global.u32 [%d51], %r1;",
        "bar.warp.sync 0xffffffff;",
        words=("lane 0", "lane 1"),
    ),
    "a shuffle instead of a syncwarp": Program(
        "shfl.sync: makes no promise about memory",
        NEIGHBOUR + "st.shared.u32 [%r42], %r50;\n{fix}\nld.shared.u32 %r1, [%r43];\nst.global.u32 [%d51], %r1;",
        "bar.warp.sync 0xffffffff;",
        broken="shfl.sync.idx.b32 %r2, %r50, 0, 31, 0xffffffff;",
        words=("nothing releases and acquires",),
    ),
    "a named barrier for a part of the warps": Program(
        "barrier: only participating threads are ordered",
        "and.b32 %r43, %r50, 31; shl.b32 %r43, %r43, 2; add.u32 %r43, %r40, %r43;\n"
        "setp.lt.u32 %p2, %r50, 32; @%p2 st.shared.u32 [%r42], %r50;\nsetp.lt.u32 %p3, %r50, {fix}; "
        "@%p3 bar.sync 1, {fix};\nld.shared.u32 %r1, [%r43];\nst.global.u32 [%d51], %r1;",
        "96",
        broken="64",
        words=("warp 0", "warp 2"),
        how={"threads": 96},
    ),
    "a flag in global memory without release": Program(
        "Release and acquire patterns",
        "setp.eq.u32 %p2, %r51, 0; @!%p2 bra READ;\n@%p9 st.global.u32 [%d40], 7;\n"
        "@%p9 st.{fix}.gpu.global.u32 [%d43], 1;\nbra DONE;\nREAD: @!%p9 bra DONE;\n"
        "P: ld.acquire.gpu.global.u32 %r1, [%d43]; setp.ne.u32 %p1, %r1, 1; @%p1 bra P;\n"
        "ld.global.u32 %r2, [%d40];\nst.global.u32 [%d51], %r2;\nDONE:",
        "release",
        broken="relaxed",
        words=("CTA 0,0,0", "CTA 1,0,0", "nothing releases and acquires"),
        how={"grid": 2},
    ),
    "a flag in global memory without acquire": Program(
        "Release and acquire patterns",
        "setp.eq.u32 %p2, %r51, 0; @!%p2 bra READ;\n@%p9 st.global.u32 [%d40], 7;\n"
        "@%p9 st.release.gpu.global.u32 [%d43], 1;\nbra DONE;\nREAD: @!%p9 bra DONE;\n"
        "P: ld.{fix}.gpu.global.u32 %r1, [%d43]; setp.ne.u32 %p1, %r1, 1; @%p1 bra P;\n"
        "ld.global.u32 %r2, [%d40];\nst.global.u32 [%d51], %r2;\nDONE:",
        "acquire",
        broken="relaxed",
        words=("nothing releases and acquires",),
        how={"grid": 2},
    ),
    "a flag released to the CTA alone": Program(
        "Scope: both sides must be within each other's",
        "setp.eq.u32 %p2, %r51, 0; @!%p2 bra READ;\n@%p9 st.global.u32 [%d40], 7;\n"
        "@%p9 st.release.{fix}.global.u32 [%d43], 1;\nbra DONE;\nREAD: @!%p9 bra DONE;\n"
        "P: ld.acquire.gpu.global.u32 %r1, [%d43]; setp.ne.u32 %p1, %r1, 1; @%p1 bra P;\n"
        "ld.global.u32 %r2, [%d40];\nst.global.u32 [%d51], %r2;\nDONE:",
        "gpu",
        broken="cta",
        how={"grid": 2},
    ),
    "an ordinary store and load as flag": Program(
        "Memory consistency model: weak accesses race",
        "setp.eq.u32 %p2, %r51, 0; @!%p2 bra READ;\n@%p9 st{fix}.global.u32 [%d43], 1;\nbra DONE;\n"
        "READ: @!%p9 bra DONE;\nld{fix}.global.u32 %r1, [%d43];\nst.global.u32 [%d51], %r1;\nDONE:",
        ".relaxed.gpu",
        how={"grid": 2},
    ),
    "the last CTA sums up without a fence": Program(
        "Fences: a fence before a strong write, and one behind a strong read, synchronise",
        "setp.ne.u32 %p2, %r51, 9; mul.wide.u32 %d44, %r51, 4; add.u64 %d44, %d40, %d44;\n"
        "@%p9 st.global.u32 [%d44], %r51;\n@%p9 {fix};\n@%p9 atom.global.add.u32 %r1, [%d43], 1;\n"
        "setp.eq.and.u32 %p3, %r1, 3, %p9; @!%p3 bra DONE;\n{fix};\n"
        "ld.global.u32 %r2, [%d40];\nld.global.u32 %r3, [%d40+8];\nadd.u32 %r2, %r2, %r3;\n"
        "st.global.u32 [%d51], %r2;\nDONE:",
        "membar.gl",
        broken="membar.cta",
        how={"grid": 4},
    ),
    "different CTAs write one word": Program(
        "Memory consistency model: conflicting writes",
        "@%p9 {fix}.u32 [%d40], 1;",
        "red.global.add",
        broken="st.global",
        words=("CTA 0,0,0", "CTA 1,0,0"),
        how={"grid": 2},
    ),
    "atomics of the CTA's scope by two CTAs": Program(
        "Morally strong operations: each within the other's scope",
        "@%p9 red.relaxed.{fix}.global.add.u32 [%d40], 1;",
        "gpu",
        broken="cta",
        how={"grid": 2},
    ),
    "a store to the neighbour's memory without a cluster barrier": Program(
        "barrier.cluster: release and acquire among the threads of the cluster",
        PEER + SYNC + "st.shared::cluster.u32 [%r47], %r50;\n{fix}\nld.shared.u32 %r1, [%r42];\n"
        "st.global.u32 [%d51], %r1;\n" + SYNC,
        SYNC,
        broken="bar.sync 0;",
        finding="use-before-completion",
        how=CLUSTER,
    ),
    "a relaxed cluster barrier for data": Program(
        "barrier.cluster.arrive.relaxed makes nothing visible",
        PEER + SYNC + "st.shared::cluster.u32 [%r47], %r50;\nbarrier.cluster.arrive{fix};\nbarrier.cluster.wait;\n"
        "ld.shared.u32 %r1, [%r42];\nst.global.u32 [%d51], %r1;\n" + SYNC,
        ".release",
        broken=".relaxed",
        words=("nothing releases and acquires",),
        how=CLUSTER,
    ),
    "a relaxed cluster barrier for data, behind no fence": Program(
        "A fence before a relaxed arrival releases",
        PEER + SYNC + "st.shared::cluster.u32 [%r47], %r50;\n{fix}\nbarrier.cluster.arrive.relaxed;\n"
        "barrier.cluster.wait;\nld.shared.u32 %r1, [%r42];\nst.global.u32 [%d51], %r1;\n" + SYNC,
        "fence.acq_rel.cluster;",
        broken="fence.acq_rel.cta;",
        words=("nothing releases and acquires",),
        how=CLUSTER,
    ),
    "st.async read without waiting for its mbarrier": Program(
        "st.async completes on the mbarrier",
        INIT.format(count=1) + FENCE + PEER + SYNC + "mov.u32 %r48, bar; mapa.shared::cluster.u32 %r49, %r48, %r46;\n"
        "@%p9 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;\n"
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r47], %r50, [%r49];\n{fix}\n"
        "ld.shared.u32 %r1, [%r42];\nst.global.u32 [%d51], %r1;\n" + SYNC,
        WAIT,
        how=CLUSTER,
        finding="use-before-completion",
    ),
    "an mbarrier used behind a relaxed cluster barrier without its fence": Program(
        "fence.mbarrier_init makes the initialisation visible",
        INIT.format(count=2)
        + "{fix}\nbarrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\nxor.b32 %r46, %r45, 1; mov.u32 %r48, bar;\n"
        "mapa.shared::cluster.u32 %r49, %r48, %r46;\n"
        "@%p9 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r49];\n"
        "@%p9 mbarrier.arrive.shared::cta.b64 _, [bar];\n"
        "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bar], 0;\n@!%p1 bra W;\n" + SYNC,
        "fence.mbarrier_init.release.cluster;",
        finding="uninitialised-barrier",
        how=CLUSTER,
    ),
    "an mbarrier used by other warps without a barrier": Program(
        "mbarrier.init must be visible to its users",
        INIT.format(count=64) + "{fix}\nmbarrier.arrive.shared::cta.b64 _, [bar];\n" + WAIT,
        "bar.sync 0;",
        finding="uninitialised-barrier",
        how=TWO,
    ),
    "a remote arrive of the CTA's scope hands data on": Program(
        "mbarrier.arrive: the default scope is .cta",
        INIT.format(count=32)
        + FENCE
        + PEER
        + SYNC
        + "mov.u32 %r48, bar; mapa.shared::cluster.u32 %r49, %r48, %r46;\nst.shared::cluster.u32 [%r47], %r50;\n"
        "mbarrier.arrive{fix}.shared::cluster.b64 _, [%r49];\n"
        "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [bar], 0;\n@!%p1 bra W;\n"
        "ld.shared.u32 %r1, [%r42];\nst.global.u32 [%d51], %r1;\n" + SYNC,
        ".release.cluster",
        words=("nothing releases and acquires",),
        how=CLUSTER,
    ),
    "a relaxed arrive hands data on": Program(
        "mbarrier.arrive.relaxed orders nothing",
        INIT.format(count=64)
        + ROUND
        + "bar.sync 0;\nst.shared.u32 [%r42], %r50;\nmbarrier.arrive.{fix}.cta.shared::cta.b64 _, [bar];\n"
        + WAIT
        + "ld.shared.u32 %r1, [%r43];\nst.global.u32 [%d51], %r1;",
        "release",
        broken="relaxed",
        words=("nothing releases and acquires",),
        how=TWO,
    ),
    "a bulk store read back without its wait": Program(
        "cp.async.bulk.wait_group without .read: the writes are visible to the thread",
        "st.shared.u32 [%r42], %r50;\nfence.proxy.async;\nbar.warp.sync 0xffffffff;\n"
        "@%p9 cp.async.bulk.global.shared::cta.bulk_group [%d40], [cell], 128;\n"
        "@%p9 cp.async.bulk.commit_group;\n@%p9 cp.async.bulk.wait_group{fix} 0;\n@%p9 ld.global.u32 %r1, [%d40+4];\n"
        "st.global.u32 [%d51], %r1;",
        "",
        broken=".read",
        words=("bulk store",),
    ),
    "a bulk store's buffer filled again without a barrier": Program(
        "cp.async.bulk.wait_group.read is for the thread that issued the copy",
        "st.shared.u32 [%r42], %r50;\nfence.proxy.async;\nbar.sync 0;\n"
        "@%p9 cp.async.bulk.global.shared::cta.bulk_group [%d40], [cell], 256;\n"
        "@%p9 cp.async.bulk.commit_group;\n@%p9 cp.async.bulk.wait_group 0;\n{fix}\nst.shared.u32 [%r42], 1;",
        "bar.sync 0;",
        words=("bulk store",),
        how=TWO,
    ),
    "cp.async without a barrier": Program(
        "cp.async.wait_group makes the copies visible to the executing thread only",
        NEIGHBOUR + "add.u64 %d2, %d1, %d41;\ncp.async.ca.shared.global [%r42], [%d2], 4;\ncp.async.commit_group;\n"
        "cp.async.wait_group 0;\n{fix}\nld.shared.u32 %r1, [%r43];\nst.global.u32 [%d51], %r1;",
        "bar.sync 0;",
        words=("cp.async",),
        how={"given": bytes(128)},
    ),
    "a source of cp.async overwritten by another lane": Program(
        "cp.async: the source is read until the executing thread waited, and others learn that by a barrier",
        "st.global.u32 [%d42], %r50;\nadd.u64 %d2, %d40, %d41;\n"
        "cp.async.ca.shared.global [%r42], [%d2], 4;\ncp.async.wait_all;\n{fix}\n"
        "xor.b32 %r43, %r50, 1; mul.wide.u32 %d3, %r43, 4; add.u64 %d3, %d40, %d3;\nst.global.u32 [%d3], 1;",
        "bar.warp.sync 0xffffffff;",
        words=("cp.async",),
    ),
    "cp.async of a later group is not waited for": Program(
        "cp.async.wait_group N leaves the N newest groups pending",
        "add.u64 %d2, %d1, %d41;\ncp.async.ca.shared.global [%r42], [%d2], 4;\ncp.async.commit_group;\n"
        "cp.async.ca.shared.global [%r42+256], [%d2], 4;\ncp.async.commit_group;\ncp.async.wait_group {fix};\n"
        "ld.shared.u32 %r1, [%r42+256];\nst.global.u32 [%d51], %r1;",
        "0",
        broken="1",
        words=("cp.async",),
        how={"given": bytes(128)},
    ),
    "a stage of the double buffer too early": Program(
        "Memory consistency model: conflicting accesses",
        ROUND + "mov.u32 %r10, 0;\nL: and.b32 %r11, %r10, 1; shl.b32 %r11, %r11, 10;\nadd.u32 %r12, %r42, %r11;\n"
        "st.shared.u32 [%r12], %r50;\nbar.sync 0;\nadd.u32 %r13, %r10, {fix};\n"
        "and.b32 %r13, %r13, 1; shl.b32 %r13, %r13, 10;\n"
        "add.u32 %r14, %r43, %r13;\nld.shared.u32 %r1, [%r14];\nadd.u32 %r10, %r10, 1;\n"
        "setp.lt.u32 %p1, %r10, 6;\n@%p1 bra L;\n"
        "st.global.u32 [%d51], %r1;",
        "0",
        broken="1",
        how={"threads": 64, "before": ".shared .align 128 .b32 cell[1024];\n.shared .align 8 .b64 bar[4];\n"},
    ),
    "global memory written by stores, loaded by a bulk copy": Program(
        "Proxies: a proxy fence between the generic store and the asynchronous read",
        "@%p9 mbarrier.init.shared::cta.b64 [bar], 1;\nst.global.u32 [%d42], %r50;\n{fix}\nbar.warp.sync 0xffffffff;\n"
        "@%p9 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;\n"
        "@%p9 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%d40], 128, [bar];\n"
        + WAIT
        + "ld.shared.u32 %r1, [%r42];\nst.global.u32 [%d51], %r1;",
        "fence.proxy.async;",
        finding="proxy-fence",
    ),
}
