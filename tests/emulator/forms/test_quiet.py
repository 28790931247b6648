"""Forms that move no data: hints, policies, fences, events; memory stays as it was, and they do not stop a kernel."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.forms.harness import Kernel

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.isa import Form

LANES = 64
_NAMES = ("prefetch", "prefetchu", "applypriority", "createpolicy", "membar", "fence", "pmevent", "nanosleep")
FORMS = [form for form in isa.coverage() if form.name.split(".")[0] in _NAMES]
COPIES = [form for form in isa.coverage() if form.name.startswith("cp.async.bulk.prefetch")]
DISCARD = [form for form in isa.coverage() if form.name.startswith("discard")]


def _operands(form: Form, mnemonic: str, written: list[str]) -> str:
    made = []
    for spec in isa.operands(form, mnemonic):
        if spec.kind == "immediate":
            made.append(str(spec.value))
        elif spec.kind == "address":
            words = mnemonic.split(".")
            local, constant, block = "local" in words, "const" in words, "param" in words
            made.append("[there]" if local else "[fixed]" if constant else "[block]" if block else "[d10]")
        elif spec.written:
            written.append("d20")
            made.append("d20")
        else:
            made.append({"f32": "0f3F000000", "u32": "16", "b64": "0x12f0000000000000"}.get(spec.type, "128"))
    return ", ".join(made)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_it_changes_nothing(form: Form) -> None:
    """Each lane stores, executes it, and reads its neighbour's word after a barrier."""
    for mnemonic in isa.mnemonics(form):
        written: list[str] = []
        operands = _operands(form, mnemonic, written)
        kernel = Kernel(threads=LANES, before=".const .align 64 .b8 fixed[128];")
        place = kernel.place(bytes(256 + 4 * LANES)) + 4 * np.arange(LANES, dtype=np.uint64)
        base = int(place[0])
        body = f"""{{ .local .align 8 .b8 there[8]; st.global.u32 [d11], r1; st.local.u32 [there], r1;
            {mnemonic} {operands};
            bar.sync 0; ld.global.u32 r2, [d12]; ld.local.u32 r3, [there]; }}"""
        policy = "ld.global.L2::cache_hint.u32 r2, [d12], d20;" if written else ""
        neighbours = base + 4 * (np.arange(LANES, dtype=np.uint64) ^ np.uint64(1))
        sources = {"d10": base, "d11": place, "d12": neighbours, "r1": np.arange(LANES) + 7}
        ran = kernel.run(f"{body}\n{policy}", sources, ["r2", "r3"])
        assert ran.result.ok, (mnemonic, ran.result)
        assert ran.columns[0].tolist() == ((np.arange(LANES) ^ 1) + 7).tolist(), mnemonic
        assert ran.columns[1].tolist() == (np.arange(LANES) + 7).tolist(), mnemonic


@pytest.mark.parametrize("form", DISCARD, ids=lambda form: form.name)
def test_discard_leaves_other_lines(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        kernel = Kernel(threads=1)
        place = kernel.place(b"\x11" * 256)
        ran = kernel.run(f"{mnemonic} [d1], 128;", {"d1": place}, [])
        assert ran.result.ok
        assert kernel.memory.read(place + 128, 128) == b"\x11" * 128


SHARED = ["fence.mbarrier_init", "fence.proxy.async::generic", "fence.acquire.sync", "fence.release.sync"]


def test_shared_words_pass_through_every_fence_of_the_cluster() -> None:
    """A word goes from one CTA to the other through each cluster-wide fence."""
    fences = [form.name for form in FORMS if any(form.name.startswith(each) for each in SHARED)]
    for name in fences:
        body = f"""mov.u32 r1, there; mov.u32 r5, %cluster_ctarank; add.u32 r2, lane, r5;
        st.shared.u32 [r1], r2; {name}; barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
        xor.b32 r6, r5, 1; mapa.shared::cluster.u32 r3, r1, r6; ld.shared::cluster.u32 r4, [r3];
        barrier.cluster.arrive; barrier.cluster.wait;"""
        ran = Kernel(threads=1, grid=2, cluster=2, before=".shared .b32 there;").run(body, {}, ["r4"])
        assert ran.result.error == "", (name, ran.result)
        assert ran.columns[0].tolist() == [1, 0]
    assert fences
