"""cp.async, bulk copies and reductions, st.async and red.async: the bytes that arrive, in two CTAs of a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.forms.harness import Kernel, Ran
from tests.emulator.forms.test_atomics import draw, new_value, operation_of
from tests.emulator.forms.test_memory import operand, registers
from tests.emulator.forms.values import bits_of

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.isa import Form
from ptxbench.emulator.ptx.shapes import OperandSpec

LANES = 32
SIZE = 512
"""Bytes of the cells in shared memory: 16 for each lane."""
HOPPER = [form for form in isa.coverage() if "sm_90a" in form.targets]
PLAIN = [form for form in HOPPER if form.name.startswith(("cp.async.ca", "cp.async.cg"))]
GROUPS = [form for form in HOPPER if form.name.startswith(("cp.async.commit", "cp.async.wait", "cp.async.mbarrier"))]
_BULK = [form for form in HOPPER if form.section == "9.7.9 Asynchronous copy: bulk"]
LOADS = [form for form in _BULK if ".global.mbarrier" in form.name]
SENDS = [form for form in _BULK if "shared::cluster.shared::cta" in form.name]
STORES = [form for form in _BULK if ".global.shared::cta" in form.name]
ENDS = [form for form in _BULK if "_group" in form.name and form not in STORES]
PREFETCH = [form for form in HOPPER if form.name.startswith("cp.async.bulk.prefetch")]
REMOTE = [form for form in HOPPER if form.name.startswith(("st.async", "red.async"))]

BEFORE = f""".shared .align 128 .b8 cells[{SIZE}]; .shared .align 128 .b8 source[{SIZE}];
.shared .align 8 .b64 bar;"""
START = """mov.u32 r50, cells; mad.lo.u32 r51, lane, 16, r50; mov.u32 r52, source; mad.lo.u32 r53, lane, 16, r52;
mov.u32 r54, bar; mov.u32 r55, %cluster_ctarank; xor.b32 r56, r55, 1; setp.eq.u32 p50, lane, 0;
mapa.shared::cluster.u32 r57, r50, r56; mapa.shared::cluster.u32 r58, r54, r56;
st.shared.v2.b64 [r51], {d50, d51}; st.shared.v2.b64 [r53], {d52, d53};
@p50 mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster; fence.proxy.async;
barrier.cluster.arrive; barrier.cluster.wait;
"""
WAIT = """W: mbarrier.try_wait.parity.acquire.cluster.shared.b64 p51, [bar], 0; @!p51 bra W;
ld.shared.v2.b64 {d54, d55}, [r51]; barrier.cluster.arrive; barrier.cluster.wait;"""


def _words(data: NDArray[np.uint8], number: int) -> NDArray[np.uint64]:
    return np.ascontiguousarray(data).view(np.uint64).reshape(-1, 2)[:, number]


def _two(
    kernel: Kernel, body: str, old: NDArray[np.uint8], new: NDArray[np.uint8], sources: dict[str, Any]
) -> tuple[Ran, NDArray[np.uint8]]:
    """Run in two CTAs whose cells hold `old` and whose sources hold `new`, [2, 512] each; the cells afterwards."""
    given = {f"d{50 + i}": _words(old if i < 2 else new, i % 2) for i in range(4)}
    ran = kernel.run(START + body + WAIT, {**given, **sources}, ["d54", "d55"])
    assert ran.result.ok, (body, ran.result)
    return ran, np.stack(ran.columns, axis=1).astype(np.uint64).view(np.uint8).reshape(2, SIZE)


def _random(seed: str, *shape: int) -> NDArray[np.uint8]:
    return np.random.default_rng(len(seed)).integers(0, 256, shape, np.uint8)


def _pair() -> Kernel:
    return Kernel(threads=LANES, grid=2, cluster=2, before=BEFORE)


@pytest.mark.parametrize("form", PLAIN, ids=lambda form: form.name)
def test_cp_async_copies_and_fills_with_zeros(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        specs = isa.operands(form, mnemonic)
        size = specs[2].value
        for limited in (False, True) if any(spec.optional for spec in specs) else (True,):
            operands = ["[r51]", "[d1]", str(size)]
            for spec in specs[3:]:
                if spec.type in ("b32", "pred") and limited:
                    operands.append("r1" if spec.type == "b32" else "p1")
                elif spec.type == "b64":
                    operands.append("d2")
            data = _random(mnemonic, LANES, 16)
            limits = np.arange(LANES) % (size + 1)
            kernel = Kernel(threads=LANES, before=BEFORE)
            place = kernel.place(data.tobytes()) + 16 * np.arange(LANES, dtype=np.uint64)
            body = f"""mov.u32 r50, cells; mad.lo.u32 r51, lane, 16, r50; st.shared.v2.b64 [r51], {{-1, -1}};
            {mnemonic} {", ".join(operands)}; cp.async.commit_group; cp.async.wait_group 0;
            ld.shared.v2.b64 {{d54, d55}}, [r51];"""
            sources = {"d1": place, "d2": 0, "r1": limits, "p1": limits % 2}
            ran = kernel.run(body, sources, ["d54", "d55"])
            assert ran.result.ok, (mnemonic, ran.result)
            expected = np.full((LANES, 16), 0xFF, np.uint8)
            expected[:, :size] = data[:, :size]
            if limited:
                taken = limits if specs[3].type == "b32" else np.where(limits % 2, 0, size)
                expected[:, :size] *= (np.arange(size)[None] < taken[:, None]).astype(np.uint8)
            assert np.stack(ran.columns, axis=1).astype(np.uint64).tobytes() == expected.tobytes(), mnemonic


@pytest.mark.parametrize("form", GROUPS, ids=lambda form: form.name)
def test_groups_and_barriers_of_cp_async_end_its_copies(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        data = _random(mnemonic, LANES, 16)
        kernel = Kernel(threads=LANES, before=BEFORE)
        place = kernel.place(data.tobytes()) + 16 * np.arange(LANES, dtype=np.uint64)
        copy = "cp.async.cg.shared.global [r51], [d1], 16;"
        wait = "W: mbarrier.try_wait.parity.shared.b64 p1, [bar], 0; @!p1 bra W;"
        own = "" if "noinc" in mnemonic else "mbarrier.arrive.shared.b64 d9, [r54];"
        object_ = "r54" if "shared" in mnemonic else "d54"
        end = {
            "commit_group": f"{mnemonic}; cp.async.wait_group 0; bar.sync 0;",
            "wait_group": f"cp.async.commit_group; {mnemonic} 0; bar.sync 0;",
            "wait_all": f"{mnemonic}; bar.sync 0;",
            "mbarrier": f"{mnemonic} [{object_}]; {own} {wait}",
        }[mnemonic.split(".")[2]]
        body = f"""mov.u32 r50, cells; mad.lo.u32 r51, lane, 16, r50; mov.u32 r54, bar; setp.eq.u32 p2, lane, 0;
        @p2 mbarrier.init.shared.b64 [bar], {LANES}; bar.sync 0; xor.b32 r52, lane, 1; mad.lo.u32 r52, r52, 16, r50;
        cvt.u64.u32 d54, r54; cvta.shared.u64 d54, d54; {copy} {end} ld.shared.v2.b64 {{d56, d57}}, [r52];"""
        ran = kernel.run(body, {"d1": place}, ["d56", "d57"])
        assert ran.result.ok, (mnemonic, ran.result)
        got = np.stack(ran.columns, axis=1).astype(np.uint64).view(np.uint8).reshape(LANES, 16)
        assert (got == data[np.arange(LANES) ^ 1]).all(), mnemonic


def _bulk_operands(specs: Sequence[OperandSpec], ends: Sequence[str]) -> str:
    """Operands of a bulk copy: its addresses in turn, 512 bytes, mask and policy."""
    left = list(ends)
    made = []
    for spec in specs:
        if spec.kind == "address":
            made.append(left.pop(0))
        else:
            made.append({"b32": str(SIZE), "b16": "h1", "b64": "d2"}[spec.type])
    return ", ".join(made)


@pytest.mark.parametrize("form", LOADS, ids=lambda form: form.name)
def test_a_bulk_copy_brings_bytes_to_one_cta_or_to_all(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        everyone = "multicast::cluster" in mnemonic
        data = _random(mnemonic, 2, SIZE)
        kernel = _pair()
        place = kernel.place(data.tobytes())
        sources = {"d1": np.repeat([place, place + SIZE], LANES), "d2": 0, "h1": 3}
        issue = f"{mnemonic} {_bulk_operands(isa.operands(form, mnemonic), ['[r50]', '[d1]', '[r54]'])};"
        guard = "setp.eq.and.u32 p52, r55, 0, p50; @p52" if everyone else "@p50"
        body = f"@p50 mbarrier.arrive.expect_tx.shared.b64 d3, [bar], {SIZE};\n"
        body += f"barrier.cluster.arrive; barrier.cluster.wait; {guard} {issue}\n"
        _, cells = _two(kernel, body, np.zeros((2, SIZE), np.uint8), data, sources)
        assert (cells == (data[[0, 0]] if everyone else data)).all(), mnemonic


def _reduced(words: list[str], old: NDArray[np.uint8], new: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Element by element."""
    type_ = words[-1]
    size = bits_of(type_) // 8
    before, given = (each.reshape(-1, size) for each in (old, new))
    made = [
        new_value(words, type_, int.from_bytes(a.tobytes(), "little"), [int.from_bytes(b.tobytes(), "little")])
        for a, b in zip(before, given, strict=True)
    ]
    return np.frombuffer(b"".join(each.to_bytes(size, "little") for each in made), np.uint8).reshape(old.shape)


def _elements(type_: str, seed: str) -> NDArray[np.uint8]:
    """[2, 512] bytes of ordinary values of a type."""
    size = bits_of(type_) // 8
    values = draw(type_, 2 * SIZE // size, seed)
    return np.frombuffer(b"".join(each.to_bytes(size, "little") for each in values), np.uint8).reshape(2, SIZE)


@pytest.mark.parametrize("form", SENDS, ids=lambda form: form.name)
def test_a_bulk_copy_sends_shared_memory_to_the_neighbour(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        reduces = words[1] == "reduce"
        type_ = words[-1] if reduces else "b32"
        old, new = _elements(type_, f"old {mnemonic}"), _elements(type_, mnemonic)
        issue = f"@p50 {mnemonic} {_bulk_operands(isa.operands(form, mnemonic), ['[r57]', '[r52]', '[r58]'])};\n"
        body = f"@p50 mbarrier.arrive.expect_tx.shared.b64 d3, [bar], {SIZE};\n{issue}"
        _, cells = _two(_pair(), body, old, new, {})
        assert (cells == (_reduced(words, old, new[::-1]) if reduces else new[::-1])).all(), mnemonic


@pytest.mark.parametrize("form", STORES, ids=lambda form: form.name)
def test_a_bulk_copy_writes_or_reduces_global_memory(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        reduces = words[1] == "reduce"
        type_ = words[-1] if reduces else "b32"
        old, new = _elements(type_, f"old {mnemonic}")[0], _elements(type_, mnemonic)[0]
        assert _store(form, mnemonic, old, new) == (_reduced(words, old, new) if reduces else new).tobytes(), mnemonic


def _store(form: Form, mnemonic: str, old: NDArray[np.uint8], new: NDArray[np.uint8], end: str = "") -> bytes:
    """What is in global memory after a bulk store of `new` over `old`."""
    kernel = Kernel(threads=LANES, before=BEFORE)
    place = kernel.place(old.tobytes())
    issue = f"{mnemonic} {_bulk_operands(isa.operands(form, mnemonic), ['[d1]', '[r52]'])};"
    end = end or "cp.async.bulk.commit_group; @p50 cp.async.bulk.wait_group 0;"
    body = f"""mov.u32 r52, source; mad.lo.u32 r53, lane, 16, r52; setp.eq.u32 p50, lane, 0;
    st.shared.v2.b64 [r53], {{d52, d53}}; fence.proxy.async; bar.sync 0; @p50 {issue} @p50 {end}"""
    sources = {"d1": place, "d2": 0, "d52": _words(new, 0), "d53": _words(new, 1)}
    ran = kernel.run(body, sources, [])
    assert ran.result.ok, (mnemonic, ran.result)
    return kernel.memory.read(place, SIZE)


@pytest.mark.parametrize("form", ENDS, ids=lambda form: form.name)
def test_bulk_groups_end_the_copies_in_them(form: Form) -> None:
    store = next(each for each in STORES if each.name == "cp.async.bulk.global.shared::cta.bulk_group")
    wait = form.name if "wait" in form.name else "cp.async.bulk.wait_group"
    last = "; @p50 cp.async.bulk.wait_group 0" if "read" in form.name else ""
    end = f"cp.async.bulk.commit_group; @p50 {wait} 0{last};"
    new = _random(form.name, SIZE)
    assert _store(store, store.name, np.zeros(SIZE, np.uint8), new, end) == new.tobytes()


@pytest.mark.parametrize("form", [each for each in PREFETCH if "tensor" not in each.name], ids=lambda form: form.name)
def test_a_bulk_prefetch_changes_nothing(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        kernel = Kernel(threads=1)
        place = kernel.place(b"\x07" * SIZE)
        operands = _bulk_operands(isa.operands(form, mnemonic), ["[d1]"])
        ran = kernel.run(f"{mnemonic} {operands}; ld.global.b32 r1, [d1];", {"d1": place, "d2": 0}, ["r1"])
        assert ran.result.ok
        assert int(ran.columns[0][0]) == 0x07070707


@pytest.mark.parametrize("form", REMOTE, ids=lambda form: form.name)
def test_a_store_or_reduction_reaches_the_neighbour_and_its_barrier(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words, specs = mnemonic.split("."), isa.operands(form, mnemonic)
        type_, spec = words[-1], specs[1]
        size = bits_of(type_) // 8
        reduces = words[0] == "red"
        old = _elements(type_, f"old {mnemonic}") if reduces else _random(mnemonic, 2, SIZE)
        cells = draw(type_, 2 * LANES * spec.count, mnemonic)
        names = registers(spec, 1)
        sources: dict[str, Any] = {name: cells[i :: spec.count] for i, name in enumerate(names)}
        body = f"""@p50 mbarrier.arrive.expect_tx.shared.b64 d3, [bar], {LANES * size * spec.count};
        mad.lo.u32 r60, lane, 16, r57; barrier.cluster.arrive; barrier.cluster.wait;
        {mnemonic} [r60], {operand(spec, names)}, [r58];\n"""
        _, got = _two(_pair(), body, old, old, sources)
        expected = old.copy().reshape(2, LANES, 16)
        for lane, value in enumerate(cells):
            cta, place, element = lane // spec.count // LANES, lane // spec.count % LANES, lane % spec.count
            cell = expected[1 - cta, place, size * element : size * (element + 1)]
            before = int.from_bytes(cell.tobytes(), "little")
            made = new_value(words, type_, before, [value]) if reduces else value
            cell[:] = np.frombuffer(made.to_bytes(size, "little"), np.uint8)
        assert (got == expected.reshape(2, SIZE)).all(), mnemonic


def test_the_lists_cover_their_sections() -> None:
    assert len(PLAIN) == 4
    assert len(LOADS) + len(SENDS) + len(STORES) + len(ENDS) + 1 == len(_BULK)
    assert operation_of(["red", "add"]) == "add"
