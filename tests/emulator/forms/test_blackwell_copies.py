"""Copies that sm_100a adds: rows gathered and scattered, columns along W, byte masks, atoms of swizzles."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.test_tensors import PLAIN, STORE

from ptxbench.emulator.async_.encode import Refused, encode
from ptxbench.emulator.async_.tensormap import Im2col, Swizzle, TensorMap, Type
from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.isa import Form

FORMS = [form for form in isa.coverage() if form.targets == ("sm_100a",)]
TENSORS = [form for form in FORMS if form.name.startswith("cp.async.bulk.tensor")]
GATHERS = [form for form in TENSORS if "tile::gather4" in form.name]
SCATTERS = [form for form in TENSORS if "tile::scatter4" in form.name]
WIDE = [form for form in TENSORS if "im2col::w" in form.name]
PREFETCHES = [
    form
    for form in FORMS
    if form.name.startswith("cp.async.bulk.prefetch") and ("gather4" in form.name or "im2col::w" in form.name)
]
MASKED = [form for form in FORMS if "cp_mask" in form.name]
ATOMS = [form for form in FORMS if "swizzle_atomicity" in form.name]

ISSUE = """mov.u32 r50, tile; mov.u32 r54, bar; mov.u64 d1, block; cvta.param.u64 d1, d1; mov.u32 r55, %cluster_ctarank;
setp.eq.u32 p50, lane, 0; setp.eq.and.u32 p52, r55, 0, p50;
@p50 mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
mov.u32 r56, {bytes}; {announced}
@p50 mbarrier.arrive.expect_tx.shared.b64 d3, [bar], r56;
barrier.cluster.arrive; barrier.cluster.wait;
{guard} {issue};
W: mbarrier.try_wait.parity.acquire.cluster.shared.b64 p51, [bar], 0; @!p51 bra W;
barrier.cluster.arrive; barrier.cluster.wait;
mad.lo.u32 r51, lane, 16, r50; mad.wide.u32 d5, lane, 16, d4;
{out}
barrier.cluster.arrive; barrier.cluster.wait;"""
BOTH = "setp.eq.u32 p53, r55, 0; selp.u32 r56, {}, 0, p53;"
"""A multicast of a pair tells all bytes to the CTA that the barrier's address names."""
OUT = "ld.shared.v2.b64 {{d6, d7}}, [r51+{0}]; st.global.v2.b64 [d5+{0}], {{d6, d7}};"
Words = NDArray[np.uint32]


def _words(*shape: int) -> Words:
    return np.random.default_rng(len(shape)).integers(1, 1 << 20, shape, np.uint32)


def _record(tensor_map: TensorMap) -> bytes:
    made = encode(tensor_map)
    assert isinstance(made, bytes), made
    return made


def _operands(form: Form, mnemonic: str) -> str:
    """[shared], [map, {coordinates}], [barrier], {wHalo, wOffset}, mask, policy, in the form's order."""
    made = []
    shared = iter(("[r50]", "[r54]"))
    for spec in isa.operands(form, mnemonic):
        if spec.kind == "address":
            made.append(next(shared))
        elif spec.kind == "tensor":
            made.append(f"[d1, {{{', '.join(f'r{i + 1}' for i in range(spec.count))}}}]")
        elif spec.kind == "offsets":
            made.append("{h1, h2}")
        else:
            made.append("h9" if spec.type == "b16" else "d8")
    return ", ".join(made)


def _loaded(form: Form, mnemonic: str, block: bytes, size: int, kernel: Kernel, given: dict[str, int]) -> list[Words]:
    """What both CTAs of a cluster have in shared memory after a load."""
    everyone = "multicast::cluster" in mnemonic
    kernel.block = block
    step = -(-size // 512) * 512
    out = kernel.place(bytes(2 * step))
    copies = "\n".join(OUT.format(at) for at in range(0, size, 512))
    issue = f"{mnemonic} {_operands(form, mnemonic)}"
    announced = BOTH.format(2 * size) if everyone and "cta_group::2" in mnemonic else ""
    guard = "@p52" if everyone else "@p50"
    body = ISSUE.format(bytes=size, announced=announced, guard=guard, issue=issue, out=copies)
    sources = {"d4": np.repeat([out, out + step], 32), "d8": 0, "h9": 3, **given}
    ran = kernel.run(body, sources, [])
    assert ran.result.error == "", (mnemonic, ran.result)
    return [np.frombuffer(kernel.memory.read(out + step * i, size), np.uint32) for i in range(2)]


def _pair(form: Form, size: int) -> Kernel:
    before = f".shared .align 1024 .b8 tile[{size}]; .shared .align 8 .b64 bar;"
    return Kernel(threads=32, grid=2, cluster=2, before=before, target=form.targets[0])


COLUMN, ROWS = 8, (7, -1, 2, 10)
"""Of a matrix of 10 rows of 12 numbers: half of the box lies beyond the columns, two rows beyond the rows."""


def _rows(place: int) -> TensorMap:
    return TensorMap(Type.U32, place, (12, 10), (48,), (8, 1), (1, 1))


@pytest.mark.parametrize("form", GATHERS, ids=lambda form: form.name)
def test_four_rows_are_gathered(form: Form) -> None:
    data = _words(10, 12)
    expected = np.zeros((4, 8), np.uint32)
    expected[0, :4], expected[2, :4] = data[7, 8:], data[2, 8:]
    for mnemonic in isa.mnemonics(form):
        kernel = _pair(form, 1024)
        where = {f"r{i + 1}": at & 0xFFFFFFFF for i, at in enumerate((COLUMN, *ROWS))}
        place = kernel.place(data.tobytes())
        got = _loaded(form, mnemonic, _record(_rows(place)), expected.nbytes, kernel, where)
        assert all((each == expected.ravel()).all() for each in got), mnemonic


@pytest.mark.parametrize("form", SCATTERS, ids=lambda form: form.name)
def test_four_rows_are_scattered(form: Form) -> None:
    old, tile = _words(10, 12), _words(4, 8) + 1
    expected = old.copy()
    for row, line in zip((7, 0, 2, 9), tile, strict=True):
        expected[row, 8:] = line[:4]
    for mnemonic in isa.mnemonics(form):
        kernel = Kernel(threads=32, before=".shared .align 1024 .b8 tile[1024];", target=form.targets[0])
        place, source = kernel.place(old.tobytes()), kernel.place(tile.tobytes().ljust(512, b"\0"))
        kernel.block = _record(_rows(place))
        where = {f"r{i + 1}": at for i, at in enumerate((COLUMN, 7, 0, 2, 9))}
        given = {"d4": source + 16 * np.arange(32, dtype=np.uint64), "d8": 0, **where}
        ran = kernel.run(STORE.format(issue=f"{mnemonic} {_operands(form, mnemonic)}"), given, [])
        assert ran.result.ok, (mnemonic, ran.result)
        assert kernel.memory.read(place, old.nbytes) == expected.tobytes(), mnemonic


DIMS = (20, 7, 3, 2, 60)
"""Channels, W, H, D, N; a map of rank r has N last."""
PIXELS, CHANNELS, LOWER, UPPER, STEP = 9, 16, -2, -1, 2
START, STILL, HALO, OFFSET = 2, (1, 1), 2, 1


def _wide(place: int, rank: int, mode: int) -> tuple[TensorMap, tuple[int, ...]]:
    dims = (*DIMS[: rank - 1], DIMS[-1])
    strides = tuple(4 * int(np.prod(dims[:i])) for i in range(1, rank))
    steps = (1, STEP, *(1,) * (rank - 2))
    im2col = Im2col((LOWER,), (UPPER,), CHANNELS, PIXELS, mode)
    return TensorMap(Type.U32, place, dims, strides, (), steps, swizzle=Swizzle.B64, im2col=im2col), dims


def _walked(data: Words, blocks: bool) -> Words:
    """The column's pixels from START on, then its halo; W goes through the bounding box, then N."""
    images, wide = data.shape[0], DIMS[1]
    every = [(n, w) for n in range(1, images + 9) for w in range(LOWER, wide + UPPER, STEP)]
    walk = every[every.index((1, START)) :]
    if blocks:
        halo = [walk[32 * block + 32 + i] for i in range(HALO) for block in range(4)]
        walk = walk[:128] + halo
    else:
        walk = walk[: PIXELS + HALO]
    made = np.zeros((len(walk), CHANNELS), np.uint32)
    for row, (n, w) in enumerate(walk):
        if n < images and 0 <= w + OFFSET < wide:
            still = STILL[: data.ndim - 3][::-1]
            made[row] = data[(n, *still, w + OFFSET)][4 : 4 + CHANNELS]
    return made


def _swizzled(rows: Words) -> Words:
    """Rows of 64 bytes: the 16-byte chunk of a row is exchanged by the number of its pair of rows, modulo 4."""
    made = np.zeros_like(rows)
    for row in range(len(rows)):
        for chunk in range(4):
            there = chunk ^ (row // 2 % 4)
            made[row, 4 * there : 4 * there + 4] = rows[row, 4 * chunk : 4 * chunk + 4]
    return made


@pytest.mark.parametrize("form", WIDE, ids=lambda form: form.name)
def test_a_column_along_w_brings_its_pixels_and_its_halo(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        rank = next(int(word[0]) for word in mnemonic.split(".") if word[1:] == "d")
        blocks = "im2col::w::128" in mnemonic
        data = _words(*(*DIMS[: rank - 1], DIMS[-1])[::-1])
        expected = _swizzled(_walked(data, blocks))
        kernel = _pair(form, 10 * 1024)
        tensor_map, _ = _wide(kernel.place(data.tobytes()), rank, 2 if blocks else 1)
        start = (4, START, *STILL[: rank - 3], 1)
        where = {f"r{i + 1}": at for i, at in enumerate(start)} | {"h1": HALO, "h2": OFFSET}
        got = _loaded(form, mnemonic, _record(tensor_map), expected.nbytes, kernel, where)
        assert all((each == expected.ravel()).all() for each in got), mnemonic


@pytest.mark.parametrize("form", PREFETCHES, ids=lambda form: form.name)
def test_a_prefetch_changes_nothing(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        kernel = Kernel(threads=1, target=form.targets[0])
        place = kernel.place(b"\7" * 4096)
        kernel.block = _record(_rows(place))
        where = {f"r{i + 1}": 0 for i in range(5)} | {"h1": 0, "h2": 0, "d8": 0}
        body = f"mov.u64 d1, block; cvta.param.u64 d1, d1; {mnemonic} {_operands(form, mnemonic)};"
        assert kernel.run(body, where, []).result.ok, mnemonic
        assert kernel.memory.read(place, 4096) == b"\7" * 4096


@pytest.mark.parametrize("form", MASKED, ids=lambda form: form.name)
def test_a_bulk_store_writes_the_bytes_of_its_mask(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        old, new = (np.random.default_rng(i).integers(0, 256, 512, np.uint8) for i in (1, 2))
        kernel = Kernel(threads=32, before=".shared .align 128 .b8 source[512];", target=form.targets[0])
        place = kernel.place(old.tobytes())
        policy = "d2, " if "cache_hint" in mnemonic else ""
        body = f"""mov.u32 r52, source; mad.lo.u32 r53, lane, 16, r52; setp.eq.u32 p50, lane, 0;
        st.shared.v2.b64 [r53], {{d52, d53}}; fence.proxy.async; bar.sync 0;
        @p50 {mnemonic} [d1], [r52], 512, {policy}h1;
        @p50 cp.async.bulk.commit_group; @p50 cp.async.bulk.wait_group 0;"""
        halves = new.view(np.uint64).reshape(-1, 2)
        given = {"d1": place, "d2": 0, "h1": 0xA5C1, "d52": halves[:, 0], "d53": halves[:, 1]}
        assert kernel.run(body, given, []).result.ok, mnemonic
        chosen = np.array([0xA5C1 >> (i % 16) & 1 for i in range(512)], bool)
        assert kernel.memory.read(place, 512) == np.where(chosen, new, old).tobytes(), mnemonic


@pytest.mark.parametrize("form", ATOMS, ids=lambda form: form.name)
def test_the_atom_of_a_swizzle_changes_where_the_swizzle_has_128_bytes(form: Form) -> None:
    atoms = (Swizzle.B128, Swizzle.B128_ATOM32, Swizzle.B128_ATOM32_FLIP8, Swizzle.B128_ATOM64)
    wide = replace(PLAIN, swizzle=Swizzle.B128)
    move = "ld.{}.v2.b64 {{d5, d6}}, [{}+{}]; st.{}.v2.b64 [{}+{}], {{d5, d6}};"
    for mnemonic in isa.mnemonics(form):
        shared = "shared::cta" in mnemonic
        for value, atom in enumerate(atoms):
            kernel = Kernel(threads=1, before=".shared .align 128 .b8 map[128];", target=form.targets[0])
            place = kernel.place(_record(wide))
            copies = "".join(move.format("global", "d1", i, "shared", "r2", i) for i in range(0, 128, 16))
            back = "".join(move.format("shared", "r2", i, "global", "d1", i) for i in range(0, 128, 16))
            change = f"{mnemonic} [{'r2' if shared else 'd1'}], {value};"
            body = f"mov.u32 r2, map; {copies} {change} {back}" if shared else change
            assert kernel.run(body, {"d1": place}, []).result.ok, mnemonic
            assert kernel.memory.read(place, 128) == _record(replace(wide, swizzle=atom)), mnemonic


def _message(tensor_map: TensorMap, mode: str, coordinates: tuple[int, ...], offsets: tuple[int, int]) -> str:
    form = next(each for each in TENSORS if f"3d.shared::cta.global.{mode}." in each.name)
    kernel = _pair(form, 10 * 1024)
    data = _words(DIMS[-1], DIMS[1], DIMS[0])
    kernel.block = _record(replace(tensor_map, address=kernel.place(data.tobytes())))
    where = {f"r{i + 1}": at for i, at in enumerate(coordinates)} | {"h1": offsets[0], "h2": offsets[1]}
    issue = f"{form.name} {_operands(form, form.name)}"
    body = ISSUE.format(bytes=64, announced="", guard="@p50", issue=issue, out="")
    ran = kernel.run(body, {"d4": 0, "d8": 0, "h9": 3, **where}, [])
    assert ran.result.error.startswith("cudaErrorIllegalInstruction")
    return "\n".join(each.message for each in ran.result.findings)


def test_what_a_column_along_w_must_not_be_is_named() -> None:
    one, blocks = _wide(0, 3, 1)[0], _wide(0, 3, 2)[0]
    assert ".im2col::w copy with a map of another mode" in _message(blocks, "im2col::w", (0, 0, 0), (0, 0))
    assert ".im2col::w with wHalo 512" in _message(one, "im2col::w", (0, 0, 0), (512, 0))
    assert "below 32 and 32" in _message(blocks, "im2col::w::128", (0, 0, 0), (32, 0))
    assert "pixel 6 along W is behind the bounding box, which ends at 5" in _message(
        one, "im2col::w", (0, 6, 0), (0, 0)
    )
    refused = encode(replace(one, swizzle=Swizzle.NONE))
    assert isinstance(refused, Refused)
    assert "swizzle NONE" in refused.reason
