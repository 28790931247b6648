"""Hand-overs between ordinary accesses and the async proxy: what an H200 got wrong is an error, or at least a warning.

How often it was wrong depends on time, which is not modelled; whether anything orders the accesses does not.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.emulator.core.small import Ran, run
from tests.emulator.evidence.probing import emulated
from tests.gpu.probes.probe import Probe
from tests.gpu.probes.proxies import FENCE, HAND_OVER, WRITE, race

READERS = ("bulk store", "wgmma")


def found(probe: Probe) -> set[tuple[str, str]]:
    """Rules and severities of what is found in a few rounds of a pattern."""
    error, out, result = emulated(probe)
    assert result is not None
    assert (error, result.unsupported, int.from_bytes(out[:8], "little")) == ("", "", 0)
    return {(each.rule, each.severity) for each in result.findings}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("hand_over", HAND_OVER)
def test_stores_that_no_fence_shows_to_the_async_proxy_are_an_error(hand_over: str, reader: str) -> None:
    """Wrong in 5 to 100 of 100 words with bank conflicts, in 0 to 0.7 without."""
    assert found(race(hand_over, reader, "nobody", 2, 1)) == {("proxy-fence", "error")}


@pytest.mark.parametrize("fence", ["membar.cta;", "membar.gl;", "fence.acq_rel.gpu;"])
def test_a_fence_of_the_generic_proxy_is_no_proxy_fence(fence: str) -> None:
    """Wrong in 60 of 100 words behind `membar.cta`; none behind `membar.gl`, which is still not the rule."""
    probe = race("CTA barrier", "wgmma", "writers", 2, 1)
    assert found(replace(probe, body=probe.body.replace(WRITE + FENCE, WRITE + fence))) == {("proxy-fence", "error")}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("hand_over", HAND_OVER)
def test_a_fence_by_the_reader_alone_is_a_warning(hand_over: str, reader: str) -> None:
    """Never wrong, but not the rule."""
    assert found(race(hand_over, reader, "reader", 2, 1)) == {("proxy-fence", "warning")}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("hand_over", HAND_OVER)
def test_nothing_is_found_when_the_writers_fence(hand_over: str, reader: str) -> None:
    assert not found(race(hand_over, reader, "writers", 2, 1))


def test_cp_async_read_by_wgmma_without_a_proxy_fence_is_a_warning() -> None:
    """Never wrong in 4e9 rounds; public kernels rely on it."""
    copies = "".join(f"cp.async.cg.shared.global [r4+{16 * place}], [d5], 16;\n" for place in range(8))
    probe = race("CTA barrier", "wgmma", "nobody", 1, 1)
    compared = "setp.neu.f32 p5, r20, r13; @p5 add.u32 r11, r11, 1;"
    body = probe.body.replace(WRITE, "add.u64 d5, d1, 0;\n" + copies + "cp.async.wait_all;\n")
    assert compared in body
    error, _, result = emulated(replace(probe, body=body, out=4096))
    assert result is not None
    assert (error, result.unsupported) == ("", "")
    assert {(each.rule, each.severity) for each in result.findings} == {("proxy-fence", "warning")}


LOADS = """
setp.ne.u32 %p9, %r50, 0; setp.ge.u32 %p8, %r50, 32; mov.u32 %r40, cell; ld.param.u64 %d1, [given];
@!%p9 mbarrier.init.shared::cta.b64 [bar], 1; @!%p9 mbarrier.init.shared::cta.b64 [bar+8], 32;
bar.sync 0; @%p8 bra CONSUMER; @%p9 bra DONE;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%d1], 128, [bar];
FREE: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar+8], 0; @!%p1 bra FREE;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 128;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%d1], 128, [bar];
bra DONE;
CONSUMER: and.b32 %r41, %r50, 31; shl.b32 %r41, %r41, 2; add.u32 %r42, %r40, %r41;
FIRST: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra FIRST;
ld.shared.u32 %r1, [%r42]; {fence}
mbarrier.arrive.shared::cta.b64 _, [bar+8];
SECOND: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 1; @!%p1 bra SECOND;
ld.shared.u32 %r2, [%r42]; add.u32 %r1, %r1, %r2; st.global.u32 [%d51], %r1;
DONE:
"""
CELL = ".shared .align 128 .b8 cell[128];\n.shared .align 8 .b64 bar[2];"


def loads(fence: str) -> Ran:
    """A slot is loaded by one warp, released, and filled again."""
    return run(LOADS.format(fence=fence), threads=64, before=CELL, given=bytes(range(128)))


@pytest.mark.parametrize("fence", ["", "membar.cta;"])
def test_a_slot_released_behind_unfenced_loads_is_a_warning(fence: str) -> None:
    """Wrong in up to 99.9 of 100 rounds: the copy overtakes loads in their queue. Right if something needed them."""
    ran = loads(fence)
    assert not ran.error
    assert {(each.rule, each.severity) for each in ran.result.findings} == {("proxy-fence", "warning")}


def test_nothing_is_found_when_the_readers_fence_before_they_release() -> None:
    ran = loads(FENCE)
    assert not ran.error
    assert not ran.result.findings


PRODUCTS = """
.reg .f32 %a<4>; setp.ne.u32 %p9, %r50, 0; setp.ge.u32 %p8, %r50, 128; mov.u32 %r40, cell; ld.param.u64 %d1, [given];
@!%p9 mbarrier.init.shared::cta.b64 [bar], 1; @!%p9 mbarrier.init.shared::cta.b64 [bar+8], 1;
bar.sync 0; @%p8 bra PRODUCER; setp.eq.u32 %p2, %r50, %r50; shr.u32 %r41, %r40, 4; cvt.u64.u32 %d2, %r41;
FIRST: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra FIRST;
{early}
{fence}
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%a0, %a1, %a2, %a3}}, %d2, %d2, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; {middle} wgmma.wait_group.sync.aligned 0;
{late}
bra DONE;
PRODUCER: setp.ne.u32 %p9, %r50, 128; @%p9 bra DONE;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%d1], 2048, [bar];
FREE: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar+8], 0; @!%p1 bra FREE;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 2048;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%d1], 2048, [bar];
SECOND: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 1; @!%p1 bra SECOND;
DONE:
"""
TILE = ".shared .align 1024 .b8 cell[2048];\n.shared .align 8 .b64 bar[2];"
RELEASE = "setp.ne.u32 %p9, %r50, 0; @!%p9 mbarrier.arrive.shared::cta.b64 _, [bar+8];"


def products(early: str = "", middle: str = "", late: str = "", fence: str = "wgmma.fence.sync.aligned;") -> Ran:
    """A warpgroup multiplies a slot, and its first thread releases it at one of three places."""
    body = PRODUCTS.format(early=early, middle=middle, late=late, fence=fence)
    return run(body, threads=160, before=TILE, given=bytes(2048))


def test_one_warp_may_release_a_slot_for_its_warpgroup_behind_the_wait() -> None:
    """The four warps start and end together, whatever delays one of them."""
    ran = products(late=RELEASE)
    assert not ran.error
    assert not ran.result.findings


@pytest.mark.parametrize("place", ["early", "middle"])
def test_a_slot_released_before_the_wait_is_an_error(place: str) -> None:
    assert products(**{place: RELEASE}).rules == {"overwrite-before-release"}


def test_a_product_without_its_register_fence_is_a_lint() -> None:
    """Without it an H200 took old accumulators, now and then; ptxas puts it back."""
    ran = products(late=RELEASE, fence="")
    assert not ran.rules
    assert {(each.rule, each.severity) for each in ran.result.findings} == {("wgmma-fence", "lint")}
