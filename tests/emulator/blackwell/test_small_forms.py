"""The forms of tcgen05 that move no matrix, of clusterlaunchcontrol, and of TMA copies that may tell a peer."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.blackwell.forms import SYNC, Every
from tests.emulator.blackwell.products import WAIT
from tests.emulator.blackwell.test_cancel import ONE, PAIR
from tests.emulator.blackwell.tiny import run

from ptxbench.emulator.async_.tensormap import Im2col, TensorMap, Type, to_bytes
from ptxbench.emulator.ptx import isa


def named(*starts: str) -> list[isa.Form]:
    """The forms whose names begin like this."""
    return [each for each in isa.coverage() if each.name.startswith(starts)]


WORDS = ("alloc", "dealloc", "relinquish_alloc_permit", "wait::", "fence::", "commit")
USED = named(*(f"tcgen05.{word}" for word in WORDS))
PRODUCTS = {
    group: next(each for each in isa.coverage() if each.name.startswith(f"tcgen05.mma.cta_group::{group}.kind::f16"))
    for group in (1, 2)
}
A_IN_TENSOR = next(
    each for each in isa.coverage() if each.name.startswith("tcgen05.mma.cta_group::1.kind::f16 [t] [t]")
)


@pytest.mark.parametrize("form", USED, ids=lambda form: form.name)
def test_a_product_needs_all_of_them(form: isa.Form) -> None:
    group = 2 if "cta_group::2" in form.name else 1
    kernel = Every(A_IN_TENSOR if "::st" in form.name else PRODUCTS[group])
    body = kernel.body()
    if form.name.startswith("tcgen05.commit"):
        body = committed(body, group, "multicast" in form.name)
    ran = run(
        body,
        per_thread=64,
        grid=group,
        cluster=group,
        given=b"".join(each.image.tobytes() for each in kernel.cases),
        shared=kernel.cases[0].image.size,
    )
    assert not ran.result.error
    assert not ran.result.findings
    assert (kernel.answer(ran) == kernel.wanted()).all()


def committed(body: str, group: int, multicast: bool) -> str:
    """The same kernel with the other way to tell all CTAs."""
    lines = body.splitlines()
    place = next(number for number, line in enumerate(lines) if "tcgen05.commit" in line)
    head = f"@%p17 tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster"
    if multicast:
        mask = "%h1" if group == 2 else "%h2"
        lines[place] = f"mov.u16 %h2, 1;\n{head}.multicast::cluster.b64 [bar], {mask};"
    elif group == 2:
        lines[place] = f"mov.u32 %r240, bar; mapa.shared::cluster.u32 %r241, %r240, 1;\n{head}.b64 [%r240];\n"
        lines[place] += f"{head}.b64 [%r241];"
    return "\n".join(lines)


@pytest.mark.parametrize("form", named("tcgen05.shift"), ids=lambda form: form.name)
def test_a_shift_moves_rows_in_one_cta_or_in_both(form: isa.Form) -> None:
    group = 2 if "cta_group::2" in form.name else 1
    kernel = Every(PRODUCTS[group])
    body = kernel.body()
    shift = f"@%p17 {isa.mnemonics(form)[0]} [%r300];\n@%p17 tcgen05.commit"
    ran = run(
        body.replace("@%p17 tcgen05.commit", shift, 1),
        per_thread=64,
        grid=group,
        cluster=group,
        given=b"".join(each.image.tobytes() for each in kernel.cases),
        shared=kernel.cases[0].image.size,
    )
    assert not ran.result.error
    assert not ran.result.findings
    expected = kernel.wanted().copy()
    for quarter in range(0, expected.shape[0], 32):
        expected[quarter : quarter + 31, :8] = kernel.wanted()[quarter + 1 : quarter + 32, :8]
    assert (kernel.answer(ran) == expected).all()


@pytest.mark.parametrize("form", named("clusterlaunchcontrol"), ids=lambda form: form.name)
def test_the_work_of_others_is_done(form: isa.Form) -> None:
    pair = "multicast" in form.name or "ctaid::" in form.name
    ran = run(PAIR if pair else ONE, grid=6, cluster=2 if pair else 1)
    assert not ran.result.error
    assert ran.words.tolist() == [3 * place for place in range(128 * 6)]


COPY = """
mov.u32 %r355, %cluster_ctarank; setp.eq.and.u32 %p17, %r355, 0, %p19;
@%p19 mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
{sync}
mov.u32 %r10, bar; {even} mov.u32 %r11, tile; mov.u32 %r13, 0; mov.u16 %h3, 0;
{expecting} mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {bytes};
@%p19 {name} [%r11], [%d52, {{{zeros}}}], [%r10]{offsets};
setp.ne.u32 %p16, %r355, 0;
{skip}
{wait}
seen: {sync}
shl.b32 %r14, %r350, 2; add.u32 %r14, %r11, %r14; ld.shared.u32 %r1, [%r14]; st.global.u32 [%d51], %r1;
"""
COPIES = [each for each in named("cp.async.bulk.tensor") if "cta_group" in each.name and "::w" not in each.name]


def mapped(address: int, rank: int, im2col: bool) -> bytes:
    """A tensor of 32 words times ones and twos, and its map; a box holds 128 words of it."""
    dims = {1: (128,), 2: (32, 4), 3: (32, 2, 2), 4: (32, 2, 2, 1), 5: (32, 2, 2, 1, 1)}[rank]
    strides = tuple(int(4 * np.prod(dims[:place])) for place in range(1, rank))
    pixels = Im2col((0,) * (rank - 2), (0,) * (rank - 2), 32, 4) if im2col else None
    box = () if im2col else dims
    made = TensorMap(
        type=Type.U32, address=address + 128, dims=dims, strides=strides, box=box, element_strides=(1,) * rank,
        im2col=pixels,
    )  # fmt: skip
    data: NDArray[np.uint32] = np.arange(128, dtype=np.uint32) * 7
    return to_bytes(made) + data.tobytes()


@pytest.mark.parametrize("form", COPIES, ids=lambda form: form.name)
def test_a_copy_tells_its_own_cta_or_the_even_one_of_the_pair(form: isa.Form) -> None:
    name = isa.mnemonics(form)[0]
    rank = int(name.split(".")[4][0])
    im2col, group = ".im2col" in name, 2 if "cta_group::2" in name else 1
    body = COPY.format(
        sync=SYNC,
        even="and.b32 %r10, %r10, 0xfeffffff;" if group == 2 else "",
        expecting="@%p17" if group == 2 else "@%p19",
        bytes=512 * group,
        name=name,
        zeros=", ".join(["%r13"] * rank),
        offsets=", {" + ", ".join(["%h3"] * (rank - 2)) + "}" if im2col else "",
        skip="@%p16 bra seen;" if group == 2 else "",
        wait=WAIT.format(phase=0),
    )
    ran = run(body, grid=2, cluster=2, given=lambda address: mapped(address, rank, im2col))
    assert not ran.result.error
    assert ran.words.tolist() == 2 * [7 * word for word in range(128)]


def test_what_a_byte_mask_leaves_out_is_no_race() -> None:
    """Two CTAs write every second byte each; which ones that are is not watched, and said."""
    body = "mov.u32 %r10, tile; mov.u32 %r11, 0x01010101; mul.lo.u32 %r11, %r11, %r351; mov.u64 %d10, %d50;\n"
    body += "st.shared.v4.u32 [tile], {%r11, %r11, %r11, %r11}; fence.proxy.async.shared::cta;\n"
    body += "mov.u32 %r12, 0x5555; shl.b32 %r12, %r12, %r351; cvt.u16.u32 %h1, %r12;\n"
    body += "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%d10], [tile], 16, %h1;\n"
    body += "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;\n"
    ran = run(body, threads=1, grid=2, per_thread=4, races=True)
    assert not ran.error
    assert ran.words[:4].tolist() == [0x01000100] * 4
    assert ran.rules == {"race-undecided"}
    assert ".cp_mask" in ran.messages
