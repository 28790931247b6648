"""What sm_100a adds to stores: st.async and red.async to global memory, and st.bulk."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.test_atomics import draw, new_value
from tests.emulator.forms.values import bits_of

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.examples import width_of
from ptxbench.emulator.ptx.isa import Form

LANES = 32
GLOBAL = [form for form in isa.coverage() if form.name.startswith(("st.async.release", "red.async.release"))]
FILLS = [form for form in isa.coverage() if form.name.startswith("st.bulk")]


@pytest.mark.parametrize("form", GLOBAL, ids=lambda form: form.name)
def test_an_asynchronous_store_or_reduction_changes_global_memory(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        type_ = words[-1]
        size = bits_of(type_) // 8
        old, given = draw(type_, LANES, f"old {mnemonic}"), draw(type_, LANES, mnemonic)
        kernel = Kernel(threads=LANES, target="sm_100a")
        place = kernel.place(b"".join(each.to_bytes(size, "little") for each in old))
        register = f"{width_of(type_)}1"
        sources = {"d9": place + size * np.arange(LANES, dtype=np.uint64), register: given}
        ran = kernel.run(f"{mnemonic} [d9], {register};", sources, [])
        assert ran.result.ok, (mnemonic, ran.result)
        reduces = words[0] == "red"
        made = [new_value(words, type_, a, [b]) if reduces else b for a, b in zip(old, given, strict=True)]
        assert kernel.memory.read(place, size * LANES) == b"".join(each.to_bytes(size, "little") for each in made)


@pytest.mark.parametrize("form", FILLS, ids=lambda form: form.name)
@pytest.mark.parametrize("size", [8, 48, 200])
def test_bulk_stores_fill_shared_memory_with_zeros(form: Form, size: int) -> None:
    """256 bytes of ones; those from byte 16 on are cleared, as many as are asked for."""
    for mnemonic in isa.mnemonics(form):
        generic = "shared::cta" not in mnemonic
        address = "cvta.shared.u64 d2, d1;" if generic else "mov.b64 d2, d1;"
        body = f"""mov.u64 d1, cells; mad.wide.u32 d3, lane, 8, d1; st.shared.b64 [d3], -1; bar.warp.sync -1;
        {address} add.u64 d2, d2, 16; setp.eq.u32 p1, lane, 0; @p1 {mnemonic} [d2], d4, 0; bar.warp.sync -1;
        ld.shared.b64 d5, [d3];"""
        kernel = Kernel(threads=LANES, target="sm_100a", before=".shared .align 16 .b8 cells[256];")
        ran = kernel.run(body, {"d4": size}, ["d5"])
        assert ran.result.ok, (mnemonic, ran.result)
        expected = np.full(256, 0xFF, np.uint8)
        expected[16 : 16 + size] = 0
        assert ran.columns[0].tobytes() == expected.tobytes(), mnemonic
