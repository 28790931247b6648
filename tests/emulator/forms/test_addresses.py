"""Addresses: state spaces, generic addresses, other CTAs' shared memory; each answer is used or computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.forms.harness import Kernel

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.isa import Form

ASKED = [form for form in isa.coverage() if form.name.startswith("isspacep.")]
GENERIC = [form for form in isa.coverage() if form.name.startswith("cvta.")]
RANKS = [form for form in isa.coverage() if form.name.split(".")[0] in ("mapa", "getctarank")]
BEFORE = ".const .align 8 .b64 fixed = 77; .shared .align 8 .b64 near; .global .align 8 .b64 far = 55;"
PLACES = """.local .align 8 .b64 own; st.local.b64 [own], 66; mov.u64 d9, near; st.shared.b64 [d9], 44;
mov.u64 d1, fixed; cvta.const.u64 d1, d1; mov.u64 d2, far; cvta.global.u64 d2, d2;
mov.u64 d3, own; cvta.local.u64 d3, d3; cvta.shared.u64 d4, d9; mov.u64 d5, block; cvta.param.u64 d5, d5;"""
SPACES = ("const", "global", "local", "shared", "param")
"""Whose generic addresses d1 to d5 are."""


@pytest.mark.parametrize("form", ASKED, ids=lambda form: form.name)
def test_isspacep_tells_the_space_of_a_generic_address(form: Form) -> None:
    space = form.name.removeprefix("isspacep.").removesuffix("::entry")
    body = PLACES + "".join(f"{form.name} p{i}, d{i};" for i in range(1, 6))
    ran = Kernel(before=BEFORE).run(body, {}, [f"p{i}" for i in range(1, 6)])
    assert ran.result.ok, ran.result
    told = [bool(column[0]) for column in ran.columns]
    # An H200 takes the address of a parameter for global, too.
    assert told == [each == space.partition("::")[0] or (space, each) == ("global", "param") for each in SPACES]


@pytest.mark.parametrize("form", GENERIC, ids=lambda form: form.name)
def test_cvta_goes_to_generic_addresses_and_back(form: Form) -> None:
    words = form.name.split(".")
    space = next(word for word in words if word not in ("cvta", "to", "u64"))
    base = space.partition("::")[0]
    place = {"const": "fixed", "global": "far", "local": "own", "shared": "near", "param": "block"}[base]
    number = SPACES.index(base) + 1
    suffix = f"{base}::entry" if space == "param::entry" else base
    if "to" in words:
        body = f"{form.name} d20, d{number}; ld.{suffix if base != 'param' else 'param'}.b64 d21, [d20];"
        body = body if base != "param" else f"{form.name} d20, d{number}; cvta.param.u64 d22, d20; ld.b64 d21, [d22];"
    else:
        body = f"mov.u64 d20, {place}; {form.name} d20, d20; ld.b64 d21, [d20];"
    ran = Kernel(before=BEFORE, block=(33).to_bytes(8, "little")).run(PLACES + body, {}, ["d21"])
    assert ran.result.ok, ran.result
    assert set(ran.columns[0].tolist()) == {{"const": 77, "global": 55, "local": 66, "shared": 44, "param": 33}[base]}


@pytest.mark.parametrize("form", RANKS, ids=lambda form: form.name)
def test_ranks_of_shared_addresses(form: Form) -> None:
    """CTA r of two stores 100 + r; mapa reaches the other's word, getctarank tells whose an address is."""
    words = form.name.split(".")
    narrow, generic = words[-1] == "u32", "shared::cluster" not in words
    letter = "r" if narrow else "d"
    address = f"cvt.u{32 if narrow else 64}.u64 {letter}20, {'d4' if generic else 'd9'};"
    if narrow and generic:  # a 32-bit generic address does not exist in a 64-bit module: a shared one is what fits
        address = "cvt.u32.u64 r20, d9;"
    access = "ld" if generic and not narrow else "ld.shared::cluster"
    mapped = f"mapa{'' if generic else '.shared::cluster'}.{words[-1]} {letter}21, {letter}20, r6;"
    body = f"""mov.u64 d9, near; cvta.shared.u64 d4, d9; mov.u32 r5, %cluster_ctarank; add.u32 r7, r5, 100;
    st.shared.u32 [d9], r7; xor.b32 r6, r5, 1; {address} {mapped}
    barrier.cluster.arrive; barrier.cluster.wait;
    {access}.u32 r8, [{letter}21]; getctarank{"" if generic else ".shared::cluster"}.{words[-1]} r9, {letter}21;
    barrier.cluster.arrive; barrier.cluster.wait;"""
    ran = Kernel(threads=32, grid=2, cluster=2, before=BEFORE).run(body, {}, ["r8", "r9"])
    assert ran.result.error == "", ran.result
    assert ran.columns[0].tolist() == [101] * 32 + [100] * 32
    assert ran.columns[1].tolist() == np.repeat([1, 0], 32).tolist()
