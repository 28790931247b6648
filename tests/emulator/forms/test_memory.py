"""Every load and store runs in every state space it names, each lane at its own 32 bytes, against the bytes there."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.values import bits_of

from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.examples import width_of
from ptxbench.emulator.ptx.isa import Form, Kind
from ptxbench.emulator.ptx.shapes import OperandSpec

LANES = 64
PLACE = 32
"""Bytes of each lane."""
MOST = 8
"""Mnemonics in one kernel."""
_OPCODES = ("ld.", "ld(", "ldu", "st.", "st(")
FORMS = [
    form
    for form in isa.coverage()
    if form.section == "9.7.9 Data movement: load and store"
    and form.kind is Kind.MEMORY
    and form.name.startswith(_OPCODES)
    and form.name != "st.bulk"
]
_MORE_HINTS = {
    *("L1::evict_unchanged", "L1::evict_first", "L1::evict_last", "L1::no_allocate", "L2::128B", "L2::256B"),
    *("L2::evict_first", "L2::evict_last", "cg", "cs", "lu", "cv", "wt"),
}
"""One cache hint of each kind is enough: they are read alike, and do nothing."""
_ECHO = """.func (.param .align 32 .b8 back[32]) echo(.param .align 32 .b8 given[32]) {
.reg .b64 e<5>;
ld.param.v2.b64 {e1, e2}, [given]; ld.param.v2.b64 {e3, e4}, [given+16];
st.param.v2.b64 [back], {e1, e2}; st.param.v2.b64 [back+16], {e3, e4};
ret; }"""


def _data(name: str) -> NDArray[np.uint8]:
    return np.random.default_rng(zlib.crc32(name.encode())).integers(0, 256, (LANES, PLACE), np.uint8)


def space_of(mnemonic: str) -> str:
    """The state space that a mnemonic names; generic is global here."""
    words = mnemonic.split(".")
    known = ("local", "const", "param", "shared", "shared::cta", "shared::cluster", "param::entry", "param::func")
    found = next((word for word in words if word in known), "global")
    return {"shared::cta": "shared", "shared::cluster": "shared", "param::entry": "param"}.get(found, found)


def registers(spec: OperandSpec, first: int) -> list[str]:
    """Registers for a register or a vector."""
    return [f"{width_of(spec.type)}{first + i}" for i in range(spec.count)]


def operand(spec: OperandSpec, names: Sequence[str]) -> str:
    """As it stands in the instruction."""
    return f"{{{', '.join(names)}}}" if spec.kind == "vector" else names[0]


def _batches(form: Form) -> Iterator[tuple[str, tuple[OperandSpec, ...], list[str]]]:
    first, *others = isa.mnemonics(form)
    chosen = [first, *(each for each in others if not _MORE_HINTS & (set(each.split(".")) - set(first.split("."))))]
    pairs = [(space_of(each), isa.operands(form, each), each) for each in chosen]
    pairs.sort(key=lambda pair: (pair[0], str(pair[1])))
    for (space, specs), group in groupby(pairs, key=lambda pair: pair[:2]):
        names = [name for *_, name in group]
        for start in range(0, len(names), MOST):
            yield space, specs, names[start : start + MOST]


def _declared(space: str, data: NDArray[np.uint8]) -> str:
    """Variables at module level."""
    if space == "const":
        return f".const .align 32 .b8 there[{data.size}] = {{{', '.join(map(str, data.ravel()))}}};"
    return {"shared": f".shared .align 32 .b8 there[{LANES * PLACE}];", "param::func": _ECHO}.get(space, "")


_FILL = {
    "shared": "st.shared.v2.b64 [d61], {d50, d51}; st.shared.v2.b64 [d61+16], {d52, d53}; bar.sync 0;",
    "local": "st.local.v2.b64 [d61], {d50, d51}; st.local.v2.b64 [d61+16], {d52, d53};",
    "param::func": """st.param.v2.b64 [argument], {d50, d51}; st.param.v2.b64 [argument+16], {d52, d53};
        call (answer), echo, (argument);""",
}
_ADDRESS = {
    "shared": "mov.u32 r60, there; mad.lo.u32 r60, lane, 32, r60; cvt.u64.u32 d61, r60;",
    "local": ".local .align 32 .b8 there[32]; mov.u64 d61, there;",
    "const": "mov.u64 d60, there; mad.wide.u32 d61, lane, 32, d60;",
    "param::func": ".param .align 32 .b8 argument[32]; .param .align 32 .b8 answer[32];",
}


def _loaded(data: NDArray[np.uint8], spec: OperandSpec) -> NDArray[np.uint64]:
    """Expected register contents [elements, lanes], or [elements, lanes, 2] for 128 bits."""
    size = bits_of(spec.type) // 8
    words = np.zeros((LANES, spec.count, 16), np.uint8)
    words[:, :, :size] = data[:, : size * spec.count].reshape(LANES, spec.count, size)
    whole = words.view(np.uint64).swapaxes(0, 1)
    return whole if size == 16 else whole[:, :, 0]


@pytest.mark.parametrize("form", [each for each in FORMS if each.name.startswith("ld")], ids=lambda form: form.name)
def test_a_load_brings_the_bytes_of_its_place(form: Form) -> None:
    for space, specs, names in _batches(form):
        data = _data(form.name)
        if space == "param":
            data = np.repeat(data[:1], LANES, axis=0)
        kernel = Kernel(threads=LANES, target=form.targets[0], before=_declared(space, data), block=data[0].tobytes())
        place = kernel.place(data.tobytes()) + PLACE * np.arange(LANES, dtype=np.uint64)
        address = {"param": "block", "param::func": "answer"}.get(space, "d62" if space == "global" else "d61")
        policy = ", d63" if len(specs) > 2 else ""
        lines, asked = [], []
        for number, name in enumerate(names):
            made = registers(specs[0], 1 + number * specs[0].count)
            lines.append(f"{name} {operand(specs[0], made)}, [{address}]{policy};")
            asked.append(made)
        words = data.view(np.uint64)
        sources = {"d62": place, "d63": 0, **{f"d{50 + i}": words[:, i] for i in range(4)}}
        body = "\n".join([_ADDRESS.get(space, ""), _FILL.get(space, ""), *lines])
        ran = kernel.run(body, sources, [each for made in asked for each in made])
        assert ran.result.ok, (names, ran.result)
        expected = _loaded(data, specs[0])
        for number, name in enumerate(names):
            got = ran.columns[number * specs[0].count : (number + 1) * specs[0].count]
            assert all((one == other).all() for one, other in zip(got, expected, strict=True)), name


_READ_BACK = {
    "global": "ld.global.v2.b64 {A, B}, [d62]; ld.global.v2.b64 {C, D}, [d62+16];",
    "shared": "ld.shared.v2.b64 {A, B}, [d61]; ld.shared.v2.b64 {C, D}, [d61+16];",
    "local": "ld.local.v2.b64 {A, B}, [d61]; ld.local.v2.b64 {C, D}, [d61+16];",
    "param::func": """call (answer), echo, (argument);
        ld.param.v2.b64 {A, B}, [answer]; ld.param.v2.b64 {C, D}, [answer+16];""",
}
_FILL_AGAIN = {
    **{space: text.replace("bar.sync 0;", "").split("call")[0] for space, text in _FILL.items()},
    "global": "st.global.v2.b64 [d62], {d50, d51}; st.global.v2.b64 [d62+16], {d52, d53};",
}


@pytest.mark.parametrize("form", [each for each in FORMS if each.name.startswith("st")], ids=lambda form: form.name)
def test_a_store_changes_its_bytes_and_no_others(form: Form) -> None:
    for named, specs, names in _batches(form):
        space = "param::func" if named == "param" else named
        before, new = _data(form.name), _data(f"new {form.name}")
        kernel = Kernel(threads=LANES, target=form.targets[0], before=_declared(space, before))
        place = kernel.place(before.tobytes()) + PLACE * np.arange(LANES, dtype=np.uint64)
        address = {"param::func": "argument"}.get(space, "d62" if space == "global" else "d61")
        made = registers(specs[1], 10 if bits_of(specs[1].type) == 128 else 40)
        policy = ", d63" if len(specs) > 2 else ""
        lines, back = [_ADDRESS.get(space, "")], []
        for number, name in enumerate(names):
            four = [f"d{4 * number + i}" for i in range(1, 5)]
            read = _READ_BACK[space]
            for letter, register in zip("ABCD", four, strict=True):
                read = re.sub(rf"\b{letter}\b", register, read)
            store = f"{name} [{address}], {operand(specs[1], made)}{policy};"
            lines += [_FILL_AGAIN[space], store, read]
            back.append(four)
        words = before.view(np.uint64)
        old = {f"d{50 + i}": words[:, i] for i in range(4)}
        sources = {"d62": place, "d63": 0, **old, **dict(zip(made, _columns(new, specs[1]), strict=True))}
        ran = kernel.run("\n".join(lines), sources, [each for four in back for each in four])
        assert ran.result.ok, (names, ran.result)
        count = bits_of(specs[1].type) // 8 * specs[1].count
        expected = before.copy()
        expected[:, :count] = new[:, :count]
        for number, name in enumerate(names):
            got = np.stack(ran.columns[4 * number : 4 * number + 4], axis=1)
            assert (got == expected.view(np.uint64)).all(), name


def _columns(data: NDArray[np.uint8], spec: OperandSpec) -> list[Any]:
    """What the registers hold whose bytes shall be stored."""
    given = _loaded(data, spec)
    if bits_of(spec.type) == 128:
        return [[int(low) | int(high) << 64 for low, high in each] for each in given]
    return list(given)
