"""Pairs of CTAs: products of .cta_group::2, commits to both, copies that tell the peer's mbarrier."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.blackwell.products import WAIT, Case, filled, instruction, k_major, read_out
from tests.emulator.blackwell.test_products import accumulator, raw, small
from tests.emulator.blackwell.tiny import SCHEDULES, Ran, allocated, refused_by_ptxas, run, text

from ptxbench.emulator.async_.tensormap import Swizzle, TensorMap, Type, to_bytes

RANK = """
mov.u32 %r355, %cluster_ctarank; setp.eq.and.u32 %p17, %r355, 0, %p19;
"""
"""%r355 the rank, %p17 thread 0 of the even CTA."""
SYNC = "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;\n"
COMMIT = "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [bar], %h1;\n"
AFTER = WAIT.format(phase=0) + "tcgen05.fence::after_thread_sync;\n"


def paired(body: str, columns: int) -> str:
    """Statements between an allocation of a pair and its end."""
    return allocated(body, columns).replace("cta_group::1", "cta_group::2")


@dataclass
class Pair:
    """A product of a pair: M, N and the parts of both CTAs."""

    m: int
    n: int
    cases: list[Case] = field(default_factory=list)
    expected: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    def make(self) -> Pair:
        """Operands of 16-bit elements; rows of A and of B are shared out."""
        a, b = small(self.m, 16, "bf16", 1), small(self.n, 16, "bf16", 2)
        self.expected = a @ b.T
        for rank in range(2):
            case = Case(self.columns)
            rows, wide = self.m // 2, self.n // 2
            case.operand(1, k_major(raw(a[rank * rows : (rank + 1) * rows], "bf16"), 2), 2)
            case.operand(2, k_major(raw(b[rank * wide : (rank + 1) * wide], "bf16"), 2), 2)
            self.cases.append(case)
        return self

    @property
    def columns(self) -> int:
        return self.n if self.m == 256 else self.n // 2

    def body(self, product: str = "") -> str:
        case = self.cases[0]
        size = case.image.size
        own = f"mul.wide.u32 %d41, %r355, {size}; add.s64 %d52, %d52, %d41;\n"
        flags = instruction(self.m, self.n)
        issue = "setp.ne.u32 %p12, 0, 0;\nmov.u16 %h1, 3;\n" + product
        issue += f"@%p17 tcgen05.mma.cta_group::2.kind::f16 [%r300], %d1, %d2, {flags:#x}, %p12;\n@%p17 " + COMMIT
        whole = RANK + own + filled(size) + case.setup + SYNC + issue + AFTER + read_out(self.columns)
        return paired(whole, max(32, self.columns))

    def run(self, schedule: str = "late", product: str = "") -> Ran:
        return run(
            self.body(product),
            per_thread=self.columns,
            grid=2,
            cluster=2,
            given=b"".join(each.image.tobytes() for each in self.cases),
            shared=self.cases[0].image.size,
            schedules=(schedule,),
        )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_256_rows_lie_in_the_lanes_of_both_ctas(schedule: str) -> None:
    pair = Pair(256, 32).make()
    ran = pair.run(schedule)
    assert not ran.result.error
    assert not ran.result.findings
    assert (accumulator(ran.words).reshape(256, 32) == pair.expected).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_128_rows_fold_n_into_the_upper_lanes(schedule: str) -> None:
    pair = Pair(128, 64).make()
    ran = pair.run(schedule)
    assert not ran.result.findings
    got = accumulator(ran.words).reshape(2, 2, 64, 32)
    for rank in range(2):
        for half in range(2):
            rows = pair.expected[64 * rank : 64 * rank + 64, 32 * half : 32 * half + 32]
            assert (got[rank, half] == rows).all()


def test_lanes_to_keep_are_named_for_both_ctas_the_even_one_first() -> None:
    pair = Pair(256, 32).make()
    masks = "%r210, %r211, %r212, %r213, %r214, %r215, %r216, %r217"
    first = "mov.u32 %r210, 0;" + "".join(f" mov.u32 %r{211 + i}, 0;" for i in range(6)) + " mov.u32 %r217, 1;\n"
    flags = f"{instruction(256, 32):#x}, "
    body = pair.body(first + f"@%p17 tcgen05.mma.cta_group::2.kind::f16 [%r300], %d1, %d2, {flags}%p12;\n")
    at = body.rindex(flags)
    body = body[:at] + flags + "{" + masks + "}, " + body[at + len(flags) :].replace("%p12", "%p9", 1)
    given = b"".join(each.image.tobytes() for each in pair.cases)
    body = body.replace("mov.u16 %h1, 3;", "mov.u16 %h1, 3; setp.eq.u32 %p9, 0, 0;")
    ran = run(body, per_thread=32, grid=2, cluster=2, given=given, shared=pair.cases[0].image.size)
    assert not ran.result.error
    got = accumulator(ran.words).reshape(256, 32)
    assert (got[224] == pair.expected[224]).all()
    assert (np.delete(got, 224, 0) == 2 * np.delete(pair.expected, 224, 0)).all()


def test_a_peer_that_reads_without_its_own_arrival_is_found() -> None:
    pair = Pair(256, 32).make()
    body = pair.body().replace("mov.u16 %h1, 3;", "mov.u16 %h1, 1;")
    given = b"".join(each.image.tobytes() for each in pair.cases)
    ran = run(body, per_thread=32, grid=2, cluster=2, given=given, shared=pair.cases[0].image.size)
    assert ran.error == "deadlock"


def test_a_product_of_a_pair_needs_the_operands_of_both() -> None:
    pair = Pair(256, 32).make()
    body = pair.body().replace(SYNC, "", 1)
    given = b"".join(each.image.tobytes() for each in pair.cases)
    found = set()
    for schedule in SCHEDULES:
        ran = run(
            body, per_thread=32, grid=2, cluster=2, given=given, shared=pair.cases[0].image.size, schedules=(schedule,)
        )
        found |= ran.rules
    assert "use-before-completion" in found


ROWS = 64
TMA = (
    RANK
    + """
@%p17 mbarrier.init.shared::cta.b64 [bar], 1;
fence.mbarrier_init.release.cluster;
"""
    + SYNC
    + """
mov.u32 %r10, bar; and.b32 %r10, %r10, 0xfeffffff; mov.u32 %r11, tile; shl.b32 %r12, %r355, 6; mov.u32 %r13, 0;
@%p17 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {expected};
{guard} cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{multicast}.cta_group::2 """
    """[%r11], [%d52, {{%r13, %r12}}], [%r10]{mask};
setp.ne.u32 %p16, %r355, 0;
@%p16 bra seen;
"""
    + WAIT.format(phase=0)
    + """
seen:
"""
    + SYNC
    + """
shl.b32 %r14, %r350, 2; add.u32 %r14, %r11, %r14; ld.shared.u32 %r1, [%r14]; st.global.u32 [%d51], %r1;
"""
)


def tensor(address: int) -> bytes:
    """A map of 128 rows of 64 bytes behind it, and the rows: words that count up."""
    data = np.arange(128 * 16, dtype=np.uint32)
    made = TensorMap(
        type=Type.U32,
        address=address + 128,
        dims=(16, 128),
        strides=(64,),
        box=(16, ROWS),
        element_strides=(1, 1),
        swizzle=Swizzle.NONE,
    )
    return to_bytes(made) + data.tobytes()


@pytest.mark.parametrize("schedule", ["late", "eager"])
def test_copies_of_a_pair_tell_the_mbarrier_of_the_even_cta(schedule: str) -> None:
    body = TMA.format(expected=2 * ROWS * 64, guard="@%p19", multicast="", mask="")
    ran = run(body, grid=2, cluster=2, given=tensor, shared=ROWS * 64, schedules=(schedule,))
    assert not ran.result.error
    words = ran.words.reshape(2, 128)
    assert (words[0] == np.arange(128)).all()
    assert (words[1] == ROWS * 16 + np.arange(128)).all()


def test_a_multicast_of_a_pair_tells_the_even_cta_of_each_pair() -> None:
    body = "mov.u16 %h1, 3;\n" + TMA.format(
        expected=2 * ROWS * 64, guard="@%p17", multicast=".multicast::cluster", mask=", %h1"
    )
    ran = run(body, grid=2, cluster=2, given=tensor, shared=ROWS * 64)
    assert not ran.result.error
    assert (ran.words.reshape(2, 128) == np.arange(128)).all()


def test_a_leader_that_expects_only_its_own_bytes_reports_what_came_too_much() -> None:
    body = TMA.format(expected=ROWS * 64, guard="@%p19", multicast="", mask="")
    assert run(body, grid=2, cluster=2, given=tensor, shared=ROWS * 64).result.findings


def test_ptxas_takes_these_programs(tmp_path: Path) -> None:
    pair = Pair(256, 32).make()
    bodies = [(pair.body(), 32, pair.cases[0].image.size)]
    for more in (("@%p19", "", ""), ("@%p17", ".multicast::cluster", ", %h1")):
        bodies.append((TMA.format(expected=64, guard=more[0], multicast=more[1], mask=more[2]), 1, ROWS * 64))
    for body, per_thread, shared in bodies:
        assert not refused_by_ptxas(text(body, per_thread=per_thread, shared=shared), tmp_path)
