"""Tensor copies of all ranks, im2col, reductions and changed tensor maps, in kernels, against slices of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.emulator.forms.harness import Kernel
from tests.emulator.forms.test_atomics import new_value

from ptxbench.emulator.async_.encode import encode
from ptxbench.emulator.async_.tensormap import Im2col, TensorMap, Type
from ptxbench.emulator.ptx import isa
from ptxbench.emulator.ptx.isa import Form

HOPPER = [form for form in isa.coverage() if "sm_90a" in form.targets]
_COPIES = [form for form in HOPPER if form.name.startswith(("cp.async.bulk.tensor", "cp.async.bulk.prefetch.tensor"))]
LOADS = [form for form in _COPIES if "mbarrier" in form.name]
STORES = [form for form in _COPIES if "bulk_group" in form.name]
PREFETCHES = [form for form in _COPIES if "prefetch" in form.name]
REDUCTIONS = [form for form in HOPPER if form.name.startswith("cp.reduce.async.bulk.tensor")]
CHANGES = [form for form in HOPPER if form.name.startswith("tensormap.replace")]
PUBLISH = [form for form in HOPPER if form.name.startswith("tensormap.cp_fenceproxy")]

DIMS = (12, 5, 4, 3, 2)
BOX = (4, 3, 2, 2, 2)
START = (8, 3, 1, 2, 0)
"""Coordinates; boxes reach beyond some edges."""
PIXELS, CHANNELS = 9, 4


def _tensor(rank: int, address: int, box: tuple[int, ...] = ()) -> TensorMap:
    dims = DIMS[:rank]
    strides = tuple(4 * int(np.prod(dims[:i])) for i in range(1, rank))
    return TensorMap(Type.U32, address, dims, strides, box or BOX[:rank], (1,) * rank)


def _column(rank: int, address: int) -> TensorMap:
    """An im2col map whose bounding box is the whole tensor."""
    corner = (0,) * (rank - 2)
    return replace(_tensor(rank, address), box=(), im2col=Im2col(corner, corner, CHANNELS, PIXELS))


def _record(tensor_map: TensorMap) -> bytes:
    made = encode(tensor_map)
    assert isinstance(made, bytes), made
    return made


def _data(rank: int, seed: int = 1) -> NDArray[np.uint32]:
    """A tensor, dimension 0 last."""
    return np.random.default_rng(seed).integers(1, 1 << 20, DIMS[:rank][::-1], np.uint32)


def _box(data: NDArray[np.uint32], start: Sequence[int], box: Sequence[int]) -> NDArray[np.uint32]:
    """The box in the order of shared memory, zeros outside."""
    padded = np.pad(data, [(0, size) for size in box[::-1]])
    return padded[tuple(slice(at, at + size) for at, size in zip(start[::-1], box[::-1], strict=True))].copy()


def _pixels(rank: int, start: Sequence[int]) -> list[tuple[int, ...]]:
    """Positions (W, H, D, N as far as the rank goes) of consecutive pixels, W first."""
    place = list(start[1:])
    made = []
    for _ in range(PIXELS):
        made.append(tuple(place))
        for axis in range(len(place)):
            place[axis] += 1
            if axis == len(place) - 1 or place[axis] < DIMS[axis + 1]:
                break
            place[axis] = 0
    return made


def _columns(data: NDArray[np.uint32], start: Sequence[int], offsets: Sequence[int]) -> NDArray[np.uint32]:
    """Pixels moved by the offsets, their channels one after the other, zeros outside."""
    rank = data.ndim
    made = np.zeros((PIXELS, CHANNELS), np.uint32)
    for row, place in enumerate(_pixels(rank, start)):
        moved = [at + offset for at, offset in zip(place, [*offsets, 0], strict=True)]
        if all(at < size for at, size in zip(moved, DIMS[1:rank], strict=True)):
            made[row] = data[tuple(moved[::-1])][start[0] : start[0] + CHANNELS]
    return made


SHARED = ".shared .align 1024 .b8 tile[2048]; .shared .align 8 .b64 bar;"
ISSUE = """mov.u32 r50, tile; mov.u32 r54, bar; mov.u64 d1, block; cvta.param.u64 d1, d1; mov.u32 r55, %cluster_ctarank;
setp.eq.u32 p50, lane, 0; setp.eq.and.u32 p52, r55, 0, p50;
@p50 mbarrier.init.shared.b64 [bar], 1; fence.mbarrier_init.release.cluster;
@p50 mbarrier.arrive.expect_tx.shared.b64 d3, [bar], {bytes};
barrier.cluster.arrive; barrier.cluster.wait;
{guard} {issue};
W: mbarrier.try_wait.parity.acquire.cluster.shared.b64 p51, [bar], 0; @!p51 bra W;
mad.lo.u32 r51, lane, 16, r50; mad.wide.u32 d5, lane, 16, d4;
ld.shared.v2.b64 {{d6, d7}}, [r51]; st.global.v2.b64 [d5], {{d6, d7}};
barrier.cluster.arrive; barrier.cluster.wait;"""


def _operands(form: Form, mnemonic: str, rank: int) -> str:
    """[shared], [map, {coordinates}], [barrier], {offsets}, mask, policy, in the form's order."""
    made = []
    shared = iter(("[r50]", "[r54]"))
    for spec in isa.operands(form, mnemonic):
        if spec.kind == "address":
            made.append(next(shared))
        elif spec.kind == "tensor":
            made.append(f"[d1, {{{', '.join(f'r{i}' for i in range(1, rank + 1))}}}]")
        elif spec.kind == "offsets":
            made.append(f"{{{', '.join(f'h{i}' for i in range(1, spec.count + 1))}}}")
        else:
            made.append("h9" if spec.type == "b16" else "d8")
    return ", ".join(made)


def _coordinates(rank: int, start: Sequence[int], offsets: Sequence[int]) -> dict[str, int]:
    where = {f"r{i + 1}": start[i] for i in range(rank)}
    return {**where, **{f"h{i + 1}": offset for i, offset in enumerate(offsets)}, "h9": 3, "d8": 0}


@pytest.mark.parametrize("form", LOADS, ids=lambda form: form.name)
def test_a_tensor_load_brings_the_box_or_the_pixels(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        rank = next(int(word[0]) for word in words if word[1:] == "d")
        everyone = "multicast::cluster" in words
        kernel = Kernel(threads=32, grid=2, cluster=2, before=SHARED)
        data = _data(rank)
        place = kernel.place(data.tobytes())
        offsets = [1] * (rank - 2) if "im2col" in words else []
        start = (4, *START[1:rank]) if offsets else START[:rank]
        expected = _columns(data, start, offsets) if offsets else _box(data, start, BOX[:rank])
        kernel.block = _record(_column(rank, place) if offsets else _tensor(rank, place))
        out = kernel.place(bytes(1024))
        issue = f"{mnemonic} {_operands(form, mnemonic, rank)}"
        body = ISSUE.format(bytes=expected.nbytes, guard="@p52" if everyone else "@p50", issue=issue)
        sources = {"d4": np.repeat([out, out + 512], 32), **_coordinates(rank, start, offsets)}
        ran = kernel.run(body, sources, [])
        assert ran.result.error == "", (mnemonic, ran.result)
        got = [kernel.memory.read(out + 512 * i, expected.nbytes) for i in range(2)]
        assert got == [expected.tobytes()] * 2, mnemonic


STORE = """mov.u32 r50, tile; mov.u64 d1, block; cvta.param.u64 d1, d1; setp.eq.u32 p50, lane, 0;
mad.lo.u32 r51, lane, 16, r50; ld.global.v2.b64 {{d6, d7}}, [d4]; st.shared.v2.b64 [r51], {{d6, d7}};
fence.proxy.async; bar.sync 0; @p50 {issue}; @p50 cp.async.bulk.commit_group; @p50 cp.async.bulk.wait_group 0;"""


def _stored(form: Form, mnemonic: str, tile: NDArray[np.uint32], old: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """The tensor after a store or reduction of a tile."""
    rank = old.ndim
    kernel = Kernel(threads=32, before=SHARED)
    place, source = kernel.place(old.tobytes()), kernel.place(tile.tobytes().ljust(512, b"\0"))
    column = "im2col_no_offs" in mnemonic
    kernel.block = _record(_column(rank, place) if column else _tensor(rank, place))
    start = (4, *START[1:rank]) if column else START[:rank]
    issue = f"{mnemonic} {_operands(form, mnemonic, rank)}"
    sources = {"d4": source + 16 * np.arange(32, dtype=np.uint64), **_coordinates(rank, start, [])}
    ran = kernel.run(STORE.format(issue=issue), sources, [])
    assert ran.result.ok, (mnemonic, ran.result)
    return np.frombuffer(kernel.memory.read(place, old.nbytes), np.uint32).reshape(old.shape)


def _expected(mnemonic: str, tile: NDArray[np.uint32], old: NDArray[np.uint32], operation: str) -> NDArray[np.uint32]:
    made, rank = old.copy(), old.ndim
    if "im2col_no_offs" in mnemonic:
        start = (4, *START[1:rank])
        places = [(*place[::-1], start[0] + c) for place in _pixels(rank, start) for c in range(CHANNELS)]
    else:
        start = START[:rank]
        indices = np.ndindex(BOX[:rank][::-1])
        places = [tuple(a + i for a, i in zip(start[::-1], index, strict=True)) for index in indices]
    for place, value in zip(places, tile.ravel().tolist(), strict=True):
        if all(at < size for at, size in zip(place, made.shape, strict=True)):
            type_ = "b32" if operation in ("and", "or", "xor") else "u32"
            made[place] = new_value([operation], type_, int(made[place]), [value]) if operation else value
    return made


def _tile(mnemonic: str, rank: int) -> NDArray[np.uint32]:
    shape = (PIXELS, CHANNELS) if "im2col_no_offs" in mnemonic else BOX[:rank][::-1]
    return np.random.default_rng(9).integers(1, 1 << 20, shape, np.uint32)


@pytest.mark.parametrize("form", [*STORES, *REDUCTIONS], ids=lambda form: form.name)
def test_a_tensor_store_or_reduction_changes_what_lies_inside(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        rank = next(int(word[0]) for word in words if word[1:] == "d")
        known = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
        operation = next((word for word in words if word in known), "") if words[1] == "reduce" else ""
        tile, old = _tile(mnemonic, rank), _data(rank, 2)
        made = _stored(form, mnemonic, tile, old)
        assert (made == _expected(mnemonic, tile, old, operation)).all(), mnemonic


@pytest.mark.parametrize("form", PREFETCHES, ids=lambda form: form.name)
def test_a_tensor_prefetch_changes_nothing(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        words = mnemonic.split(".")
        rank = next(int(word[0]) for word in words if word[1:] == "d")
        kernel = Kernel(threads=1)
        data = _data(rank)
        place = kernel.place(data.tobytes())
        offsets = [1] * (rank - 2) if "im2col" in words else []
        kernel.block = _record(_column(rank, place) if offsets else _tensor(rank, place))
        body = f"mov.u64 d1, block; cvta.param.u64 d1, d1; {mnemonic} {_operands(form, mnemonic, rank)};"
        assert kernel.run(body, _coordinates(rank, START, offsets), []).result.ok
        assert kernel.memory.read(place, data.nbytes) == data.tobytes()


PLAIN = TensorMap(Type.F32, 1 << 20, (64, 32, 16), (256, 8192), (16, 8, 4), (1, 1, 1))
CHANGED = {
    "global_address": (replace(PLAIN, address=1 << 21), 1 << 21),
    "rank": (replace(PLAIN, dims=(64, 32), strides=(256,), box=(16, 8), element_strides=(1, 1)), 1),
    "box_dim": (replace(PLAIN, box=(32, 8, 4)), 32),
    "global_dim": (replace(PLAIN, dims=(60, 32, 16)), 60),
    "element_stride": (replace(PLAIN, element_strides=(2, 1, 1)), 2),
    "global_stride": (replace(PLAIN, strides=(512, 8192)), 512),
    "elemtype": (replace(PLAIN, type=Type.S32), 3),
    "interleave_layout": (PLAIN, 0),
    "swizzle_mode": (replace(PLAIN, swizzle=3), 3),
    "fill_mode": (replace(PLAIN, fill=1), 1),
}
"""What the record becomes, and the value that is given (PTX ISA, tensormap.replace: its own numbers of types)."""


@pytest.mark.parametrize("form", CHANGES, ids=lambda form: form.name)
def test_a_changed_map_is_the_map_that_would_have_been_encoded(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        field = mnemonic.split(".")[3]
        expected, value = CHANGED[field]
        immediates = sum(spec.kind == "immediate" for spec in isa.operands(form, mnemonic))
        wide = mnemonic.endswith("b64")
        register = "d9" if wide else "r9"
        literal = field in ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode")
        rest = str(value) if literal else f"0, {register}" if immediates else register
        shared = "shared::cta" in mnemonic
        kernel = Kernel(threads=1, before=".shared .align 128 .b8 map[128];")
        before = _record(PLAIN)
        place = kernel.place(before)
        move = "ld.{}.v2.b64 {{d5, d6}}, [{}+{}]; st.{}.v2.b64 [{}+{}], {{d5, d6}};"
        copies = "".join(move.format("global", "d1", i, "shared", "r2", i) for i in range(0, 128, 16))
        back = "".join(move.format("shared", "r2", i, "global", "d1", i) for i in range(0, 128, 16))
        change = f"{mnemonic} [{'r2' if shared else 'd1'}], {rest};"
        body = f"mov.u32 r2, map; {copies} {change} {back}" if shared else change
        ran = kernel.run(body, {"d1": place, register: value}, [])
        assert ran.result.ok, (mnemonic, ran.result)
        assert kernel.memory.read(place, 128) == _record(expected), mnemonic


@pytest.mark.parametrize("form", PUBLISH, ids=lambda form: form.name)
def test_a_map_is_published_from_shared_to_global_memory(form: Form) -> None:
    for mnemonic in isa.mnemonics(form):
        kernel = Kernel(before=".shared .align 128 .b8 map[128];")
        record, out = kernel.place(_record(PLAIN)), kernel.place(bytes(128))
        body = f"""mov.u32 r2, map; mad.lo.u32 r3, lane, 4, r2; mad.wide.u32 d3, lane, 4, d1; ld.global.b32 r4, [d3];
        st.shared.b32 [r3], r4; bar.warp.sync -1; {mnemonic} [d2], [r2], 128;"""
        ran = kernel.run(body, {"d1": record, "d2": out}, [])
        assert ran.result.ok, (mnemonic, ran.result)
        assert kernel.memory.read(out, 128) == _record(PLAIN), mnemonic
