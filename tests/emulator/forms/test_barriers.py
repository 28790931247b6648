"""Barriers of CTAs and clusters, and mbarriers, each form with what it must order, count or leave behind."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest
from tests.emulator.forms.harness import Kernel

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.isa import Form

CTA = [form for form in isa.coverage() if re.match(r"(bar|barrier)\.(?!warp|cluster)", form.name)]
CLUSTER = [form for form in isa.coverage() if form.name.startswith("barrier.cluster.")]
OBJECTS = [form for form in isa.coverage() if form.section == "9.7.13 Parallel synchronisation: mbarrier"]
LANES = 64
START = """mov.u32 r50, words; mad.lo.u32 r51, lane, 4, r50; xor.b32 r52, lane, 32; mad.lo.u32 r52, r52, 4, r50;
st.shared.u32 [r51], 0; and.b32 r53, lane, 32; setp.eq.u32 p50, r53, 0; bar.sync 0;"""


@pytest.mark.parametrize("form", CTA, ids=lambda form: form.name)
def test_a_cta_barrier_orders_two_warps_and_reduces(form: Form) -> None:
    """Each lane reads what its neighbour in the other warp stored before the barrier."""
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        counted = sum(spec.type == "b32" and spec.read for spec in isa.operands(form, mnemonic)) > 1
        barrier = "3, 64" if counted else "0"
        store = "add.u32 r1, lane, 5; st.shared.u32 [r51], r1;"
        result = "p2" if words[-1] == "pred" else "r2"
        if "arrive" in words:  # the lower warp arrives, the upper one waits
            kind = words[0]
            body = f"{store} @p50 bra FIRST; {kind}.sync 3, 64; ld.shared.u32 r3, [r52]; bra DONE;\n"
            body += f"FIRST: {mnemonic} {barrier}; mov.u32 r3, 0;\nDONE:"
            asked = ["r3"]
        elif "red" in words:
            body = f"{store} {mnemonic} {result}, {barrier}, p1; ld.shared.u32 r3, [r52];"
            asked = ["r3", result]
        else:
            body = f"{store} {mnemonic} {barrier}; ld.shared.u32 r3, [r52];"
            asked = ["r3"]
        votes = np.arange(LANES) % 3 == 0
        kernel = Kernel(threads=LANES, before=".shared .align 16 .b32 words[64];")
        ran = kernel.run(START + body, {"p1": votes}, asked)
        assert ran.result.ok, (mnemonic, ran.result)
        expected = (np.arange(LANES) ^ 32) + 5
        if "arrive" in words:
            expected[:32] = 0
        assert ran.columns[0].tolist() == expected.tolist(), mnemonic
        if "red" in words:
            told = {"popc": votes.sum(), "and": votes.all(), "or": votes.any()}
            assert set(ran.columns[1].tolist()) == {int(told[next(word for word in words if word in told)])}, mnemonic


@pytest.mark.parametrize("form", CLUSTER, ids=lambda form: form.name)
def test_a_cluster_barrier_waits_for_the_other_cta(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        arrive = mnemonic if "arrive" in mnemonic else "barrier.cluster.arrive"
        wait = mnemonic if "wait" in mnemonic else "barrier.cluster.wait"
        fence = "fence.acq_rel.cluster;" if "relaxed" in arrive else ""
        body = f"""mov.u32 r50, words; mov.u32 r51, %cluster_ctarank; add.u32 r1, r51, 9; st.shared.u32 [r50], r1;
        {fence} {arrive}; {wait}; xor.b32 r52, r51, 1; mapa.shared::cluster.u32 r53, r50, r52;
        ld.shared::cluster.u32 r2, [r53]; barrier.cluster.arrive; barrier.cluster.wait;"""
        ran = Kernel(threads=1, grid=2, cluster=2, before=".shared .b32 words;").run(body, {}, ["r2"])
        assert ran.result.ok, (mnemonic, ran.result)
        assert ran.columns[0].tolist() == [10, 9]


@dataclass(frozen=True)
class State:
    """An mbarrier as an H200 keeps it."""

    expected: int
    pending: int
    bytes: int = 0
    phase: int = 0

    def settled(self) -> State:
        """The next phase, if this one is complete."""
        if self.pending == 0 and self.bytes == 0:
            return State(self.expected, self.expected, 0, self.phase ^ 1)
        return self

    def word(self) -> int:
        """The 64 bits that `mbarrier.inval` leaves in memory."""
        top = 1 << 20
        counts = (-self.pending % top) << 43 | (-self.expected % top) << 1
        return self.phase << 63 | counts | (-self.bytes % (2 * top)) << 21


def after(words: list[str], state: State, count: int) -> State:
    """What an operation does to the state."""
    if "expect_tx" in words and words[1] == "expect_tx":
        return replace(state, bytes=state.bytes + count).settled()
    if words[1] == "complete_tx":
        return replace(state, bytes=state.bytes - count).settled()
    if "expect_tx" in words:
        state, count = replace(state, bytes=state.bytes + count), 1
    if words[1] == "arrive_drop":
        state = replace(state, expected=state.expected - count)
    return replace(state, pending=state.pending - count).settled()


PLACE = "mov.u64 d50, object; cvta.shared.u64 d51, d50;"


def _call(form: Form, mnemonic: str, count: str, target: str) -> str:
    operands = []
    for spec in isa.operands(form, mnemonic):
        if spec.kind == "address":
            operands.append("[d50]" if "shared" in mnemonic else "[d51]")
        elif spec.kind == "sink":
            operands.append("_")
        else:
            operands.append(target if spec.written else count)
    return f"{mnemonic} {', '.join(operands)};"


CHANGES = [form for form in OBJECTS if form.name.split(".")[1] in ("expect_tx", "complete_tx", "arrive", "arrive_drop")]
OTHERS = [form for form in OBJECTS if form not in CHANGES]


@pytest.mark.parametrize("form", CHANGES, ids=lambda form: form.name)
def test_an_mbarrier_holds_what_an_operation_leaves(form: Form) -> None:
    """From init(5) with 64 bytes expected: the bits that inval uncovers are the state's."""
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        body = f"""{PLACE} mbarrier.init.shared.b64 [d50], 5; mbarrier.expect_tx.shared.b64 [d50], 64;
        {_call(form, mnemonic, "3", "d1")} mbarrier.inval.shared.b64 [d50]; ld.shared.b64 d2, [d50];"""
        ran = Kernel(threads=1, before=".shared .align 8 .b64 object;").run(body, {}, ["d2"])
        assert ran.result.ok, (mnemonic, ran.result)
        assert hex(int(ran.columns[0][0])) == hex(after(words, State(5, 5, 64), 3).word()), mnemonic


@pytest.mark.parametrize("form", [each for each in CHANGES if "arrive" in each.name], ids=lambda form: form.name)
def test_the_last_arrival_completes_the_phase(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        start = State(3, 3) if "noComplete" in words else State(1, 1, -3) if "expect_tx" in words else State(3, 3)
        given = "mbarrier.complete_tx.shared.b64 [d50], 3;" if start.bytes else ""
        count = "2" if "noComplete" in words else "3"
        body = f"""{PLACE} mbarrier.init.shared.b64 [d50], {start.expected}; {given}
        {_call(form, mnemonic, count, "d1")} mbarrier.test_wait.parity.shared.b64 p1, [d50], 0;
        mbarrier.inval.shared.b64 [d50]; ld.shared.b64 d2, [d50];"""
        ran = Kernel(threads=1, before=".shared .align 8 .b64 object;").run(body, {}, ["d2", "p1"])
        assert ran.result.ok, (mnemonic, ran.result)
        left = after(words, start, int(count))
        assert hex(int(ran.columns[0][0])) == hex(left.word()), mnemonic
        assert bool(ran.columns[1][0]) == (left.phase == 1)


@pytest.mark.parametrize("form", OTHERS, ids=lambda form: form.name)
def test_the_other_operations_on_mbarriers(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        begin = f"{PLACE} mbarrier.init.shared.b64 [d50], 2; mbarrier.arrive.shared.b64 d1, [d50];"
        end = "mbarrier.arrive.shared.b64 d2, [d50];"
        space = ".shared::cta" if "shared::cta" in words else ".shared" if "shared" in words else ""
        if words[1] in ("init", "inval"):
            place = "d50" if space else "d51"
            made, gone = (space, ".shared") if words[1] == "init" else (".shared", space)
            body = f"""{PLACE}
            mbarrier.init{made}.b64 [{place if made == space else "d50"}], 7;
            mbarrier.inval{gone}.b64 [{place if gone == space else "d50"}]; ld.shared.b64 d3, [d50];"""
            ran = Kernel(threads=1, before=".shared .align 8 .b64 object;").run(body, {}, ["d3"])
            assert int(ran.columns[0][0]) == State(7, 7).word(), mnemonic
        elif words[1] == "pending_count":
            body = f"{begin} {end} {mnemonic} r1, d1; {mnemonic} r2, d2;"
            ran = Kernel(threads=1, before=".shared .align 8 .b64 object;").run(body, {}, ["r1", "r2"])
            assert [int(column[0]) for column in ran.columns] == [2, 1], mnemonic
        else:
            asked = "0" if "parity" in words else "d1"
            hint = ", 20" if "try_wait" in words else ""
            wait = f"{mnemonic} {{}}, [{'d50' if space else 'd51'}], {asked}{{}};"
            body = f"{begin} {wait.format('p1', '')} {end} {wait.format('p2', '')} {wait.format('p3', hint)}"
            ran = Kernel(threads=1, before=".shared .align 8 .b64 object;").run(body, {}, ["p1", "p2", "p3"])
            assert [int(column[0]) for column in ran.columns] == [0, 1, 1], mnemonic
        assert ran.result.ok, (mnemonic, ran.result)
