"""Every warp form runs in two full warps and, where it may, in half a warp, against models on lists of lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from tests.emulator.forms.floats import FLOATS
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.integers import value
from tests.emulator.forms.numbers import NAN, decode
from tests.emulator.forms.values import columns

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.examples import width_of
from ptxbench.emulator.ptx.isa import Form, Kind

SYNC = [form for form in isa.coverage() if form.name == "bar.warp.sync"]
LANES = 64
FULL = 0xFFFFFFFF
FORMS = [form for form in isa.coverage() if form.kind is Kind.WARP and form.name != "bar.warp.sync"]
Lanes = Sequence[Sequence[int]]


def _shfl(words: Sequence[str], columns_: Lanes) -> list[list[int]]:
    """PTX ISA, section shfl.sync: the source lane, and whether it lies within the segment."""
    a, b, c = columns_[:3]
    made, inside = [], []
    for lane in range(32):
        by, clamp, segment = b[lane] & 31, c[lane] & 31, c[lane] >> 8 & 31
        low = lane & segment
        high = low | (clamp & ~segment & 31)
        source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": low | (by & ~segment & 31)}[words[2]]
        told = source >= high if words[2] == "up" else source <= high
        inside.append(int(told))
        made.append(a[source if told else lane])
    return [made, inside]


def _vote(words: Sequence[str], columns_: Lanes) -> list[list[int]]:
    votes = columns_[0]
    ballot = sum(vote << lane for lane, vote in enumerate(votes))
    told = {"all": all(votes), "any": any(votes), "uni": len(set(votes)) == 1, "ballot": ballot}[words[2]]
    return [[int(told)] * 32]


def _match(words: Sequence[str], columns_: Lanes) -> list[list[int]]:
    a = columns_[0]
    same = [sum(1 << other for other in range(32) if a[other] == a[lane]) for lane in range(32)]
    if words[1] == "any":
        return [same]
    agreed = len(set(a)) == 1
    return [[FULL if agreed else 0] * 32, [int(agreed)] * 32]


def _redux(words: Sequence[str], columns_: Lanes) -> list[list[int]]:
    type_, name = words[-1], words[2]
    if type_ == "f32":
        best = columns_[0][0]
        for each in columns_[0][1:]:
            got = FLOATS[name]([name, *words[3:]], [best, each])[0]
            assert isinstance(got, int)
            best = 0x7FFFFFFF if got == NAN else got
        return [[best] * 32]
    numbers = [value(each, type_) for each in columns_[0]]
    total = numbers[0]
    for each in numbers[1:]:
        total = {
            "add": total + each,
            "min": min(total, each),
            "max": max(total, each),
            "and": total & each,
            "or": total | each,
            "xor": total ^ each,
        }[name]
    return [[total & FULL] * 32]


MODELS: dict[str, Callable[[Sequence[str], Lanes], list[list[int]]]] = {
    **{"shfl": _shfl, "vote": _vote, "match": _match, "redux": _redux},
    "activemask": lambda words, columns_: [[FULL] * 32],
    "elect": lambda words, columns_: [[0] * 32, [1] + [0] * 31],
}


def _columns(name: str, types: Sequence[str], seed: str) -> list[list[int]]:
    made = columns(types, LANES, seed)
    if name == "match":  # few values, all the same in the second warp
        made[0] = [made[0][0] if lane >= 32 else made[0][lane % 5] for lane in range(LANES)]
    if name == "vote":
        made[0] = [lane % 3 % 2 if lane < 32 else 1 for lane in range(LANES)]
    if name == "redux" and types[0] == "f32":  # a NaN in the second warp alone
        made[0] = [x if lane >= 32 or not decode(x, "f32").nan else 0x3F800000 for lane, x in enumerate(made[0])]
    return made


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_warp_form_gives_what_the_isa_says(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        specs = isa.operands(form, mnemonic)
        reads = [each for each in specs if each.read]
        names = [f"{width_of(each.type)}{place}" for place, each in enumerate(reads, 1)]
        given = _columns(words[0], [each.type for each in reads], mnemonic)
        if words[0] not in ("activemask",):
            given[-1] = [FULL] * LANES
        target = specs[0]
        results = [f"{width_of(target.type)}20", *(["p21"] if target.pair else [])]
        body = f"{mnemonic} {', '.join(['|'.join(results), *names])};"
        ran = Kernel(threads=LANES, target=form.targets[0]).run(body, dict(zip(names, given, strict=True)), results)
        assert ran.result.ok, ran.result
        for first in (0, 32):
            expected = MODELS[words[0]](words, [each[first : first + 32] for each in given])
            for column, wanted in zip(ran.columns, expected, strict=True):
                assert column[first : first + 32].tolist() == wanted, mnemonic


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_warp_form_takes_the_lanes_of_its_mask_alone(form: Form) -> None:
    """The upper half of each warp executes it; what a lower lane holds would change the result."""
    mnemonic = isa.mnemonics(form)[0]
    words, specs = mnemonic.split("."), isa.operands(form, mnemonic)
    reads = [each for each in specs if each.read]
    names = [f"{width_of(each.type)}{place}" for place, each in enumerate(reads, 1)]
    if words[0] == "shfl":
        given: list[list[int]] = [list(range(100, 164)), [1] * LANES, [0x1F if words[2] != "up" else 0] * LANES]
        given.append([FULL << 16 & FULL] * LANES)
    else:
        given = [[5 if lane % 32 >= 16 else lane for lane in range(LANES)], [FULL << 16 & FULL] * LANES][-len(reads) :]
        if reads and reads[0].type == "pred":
            given[0] = [lane % 32 // 16 for lane in range(LANES)]
        given = given if reads else []
    target = specs[0]
    results = [f"{width_of(target.type)}20", *(["p21"] if target.pair else [])]
    inner = f"{mnemonic} {', '.join(['|'.join(results), *names])};"
    body = f"and.b32 r60, lane, 16; setp.eq.u32 p60, r60, 0; @p60 bra OUT;\n{inner}\nOUT:"
    ran = Kernel(threads=LANES, target=form.targets[0]).run(body, dict(zip(names, given, strict=True)), results)
    assert ran.result.error == "", ran.result
    got, kind = int(ran.columns[0][20]), words[2] if len(words) > 2 else ""
    number = {"add": 80, "min": 5, "max": 5, "and": 5, "or": 5, "xor": 0}
    expected = {
        "shfl": {"up": 119, "down": 121, "bfly": 121, "idx": got}.get(kind, 0),
        "vote": 0xFFFF0000 if words[-1] == "b32" else 1,
        "match": 0xFFFF0000,
        "activemask": 0xFFFF0000,
        "elect": 16,
        "redux": number.get(kind, 0),
    }[words[0]]
    assert got == expected


@pytest.mark.parametrize("form", SYNC, ids=lambda form: form.name)
def test_a_warps_barrier_orders_the_lanes_of_its_mask(form: Form) -> None:
    body = """.shared .b32 words[64]; mov.u32 r1, words; mad.lo.u32 r2, lane, 4, r1; xor.b32 r3, lane, 1;
    mad.lo.u32 r3, r3, 4, r1; st.shared.u32 [r2], lane; BARRIER 0xffffffff; ld.shared.u32 r4, [r3];"""
    ran = Kernel(threads=LANES).run(body.replace("BARRIER", form.name), {}, ["r4"])
    assert ran.result.ok
    assert ran.columns[0].tolist() == (np.arange(LANES) ^ 1).tolist()
