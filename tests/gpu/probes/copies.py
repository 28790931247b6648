"""Probes of tensor copies: im2col and interleaved maps, clipped multicasts, reductions by boxes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tests.gpu.probes.operands import column, packed
from tests.gpu.probes.probe import UNTOUCHED, Probe

from ptxbench.emulator.async_.tensormap import Im2col, Swizzle, TensorMap, Type

TENSOR = 1 << 15
"""Where the tensor lies in the output buffer, behind the image of shared memory."""
STATE = 16
"""Bytes in front of each CTA's image: the barrier's bits after `inval`, and whether its phase was over in time."""

LOAD = """mov.u32 r1, data; add.u32 r2, r1, {room}; mov.u32 r8, %cluster_ctarank; mul.lo.u32 r9, r8, {region};
cvt.u64.u32 d2, r9; add.u64 d3, d1, d2; setp.ne.u32 p0, r0, 0; mov.u32 r3, r0; mov.b32 r4, {untouched};
CLEAR: setp.ge.u32 p1, r3, {words}; @p1 bra CLEARED; shl.b32 r5, r3, 2; add.u32 r5, r5, r1; st.shared.b32 [r5], r4;
add.u32 r3, r3, 128; bra CLEAR;
CLEARED: @p0 bra READY; mbarrier.init.shared::cta.b64 [r2], 1;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [r2], {bytes};
READY: fence.proxy.async; fence.mbarrier_init.release.cluster; barrier.cluster.arrive; barrier.cluster.wait;
mov.b64 d4, map0; cvta.param.u64 d4, d4; setp.ne.u32 p2, r8, 0; or.pred p2, p0, p2; @p2 bra ISSUED;
{statements}
ISSUED: mov.u32 r6, 0;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 p3, [r2], 0; @p3 bra OVER; add.u32 r6, r6, 1;
setp.lt.u32 p4, r6, 50; @p4 bra WAIT;
OVER: barrier.cluster.arrive; barrier.cluster.wait; @p0 bra IMAGE;
mbarrier.inval.shared::cta.b64 [r2]; ld.shared.b64 d5, [r2]; selp.b64 d6, 1, 0, p3; st.global.v2.b64 [d3], {{d5, d6}};
IMAGE: mov.u32 r3, r0;
MORE: setp.ge.u32 p1, r3, {words}; @p1 bra DONE; shl.b32 r5, r3, 2; cvt.u64.u32 d7, r5; add.u64 d7, d7, d3;
add.u32 r5, r5, r1; ld.shared.b32 r7, [r5]; st.global.b32 [d7+16], r7; add.u32 r3, r3, 128; bra MORE;
DONE:"""

STORE = """shl.b32 r1, r0, 4; mov.u32 r2, data; mov.u64 d2, d0; cvt.u64.u32 d3, r1; add.u64 d2, d2, d3;
FILL: setp.ge.u32 p1, r1, {bytes}; @p1 bra FILLED; add.u32 r3, r2, r1;
ld.global.v2.b64 {{d3, d4}}, [d2]; st.shared.v2.b64 [r3], {{d3, d4}};
add.u32 r1, r1, 2048; add.u64 d2, d2, 2048; bra FILL;
FILLED: fence.proxy.async; bar.sync 0; setp.ne.u32 p0, r0, 0; @p0 bra DONE;
mov.b64 d4, map0; cvta.param.u64 d4, d4;
{statements}
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;
DONE:"""


@dataclass(frozen=True)
class Load:
    """A load of one box by the first CTA, to itself or to all CTAs of the cluster.

    Attributes:
        expected: Bytes that a barrier expects.
        image: Bytes of shared memory that are shown.
        offsets: Of an im2col copy.
    """

    name: str
    map: TensorMap
    at: tuple[int, ...]
    expected: int
    image: int
    offsets: tuple[int, ...] | None = None
    tensor: bytes = b""
    mask: int = 0
    first: int = 0

    def probe(self) -> Probe:
        """The launch."""
        way = "" if self.offsets is None else ".im2col"
        cast = ".multicast::cluster" if self.mask else ""
        copy = f"cp.async.bulk.tensor.{self.map.rank}d.shared::cluster.global{way}.mbarrier::complete_tx::bytes{cast}"
        copy += f" [r1], [d4, {{{', '.join(f'r{20 + place}' for place in range(self.map.rank))}}}], [r2]"
        text = "".join(f"mov.b32 r{20 + place}, {value};\n" for place, value in enumerate(self.at))
        if self.offsets is not None:
            text += "".join(f"mov.b16 h{place}, {value};\n" for place, value in enumerate(self.offsets))
            copy += ", {" + ", ".join(f"h{place}" for place in range(len(self.offsets))) + "}"
        if self.mask:
            text += f"mov.b16 h9, {self.mask};\n"
            copy += ", h9"
        ctas, region = (2 if self.mask else 1), STATE + self.image
        body = LOAD.format(
            room=self.image,
            region=region,
            untouched=f"0x{UNTOUCHED:02x}{UNTOUCHED:02x}{UNTOUCHED:02x}{UNTOUCHED:02x}",
            words=self.image // 4,
            bytes=self.expected,
            statements=text + copy + ";",
        )
        start = bytes([UNTOUCHED]) * TENSOR + self.tensor
        shape = (ctas, 1, 1)
        moved = replace(self.map, address=TENSOR)
        probe = Probe(self.name, body, out=len(start), maps=(moved,), start=start, grid=shape, block=(128, 1, 1))
        return replace(probe, cluster=shape, shared=self.image + 16, first=self.first, shown=ctas * region)


def _counted(size: int) -> bytes:
    """16-bit numbers that tell where they lie."""
    return np.arange(size // 2, dtype="<u2").tobytes()


def _dense(dims: Sequence[int], size: int) -> tuple[int, ...]:
    """Strides of a dense tensor."""
    return tuple(size * int(np.prod(dims[:place])) for place in range(1, len(dims)))


def _columns() -> Iterator[Load]:
    """im2col loads: 3, 4 and 5 dimensions, strides, swizzles, corners, offsets, columns that leave the tensor."""
    dims: tuple[int, ...] = (16, 7, 6, 3)
    corners = Im2col((-1, -1), (-1, -1), 16, 32)
    base = TensorMap(Type.U16, 0, dims, _dense(dims, 2), (), (1, 1, 1, 1), im2col=corners)
    kinds = {
        "": base,
        "steps 1 2 2 1 ": replace(base, element_strides=(1, 2, 2, 1)),
        "8 channels ": replace(base, im2col=replace(corners, channels=8)),
        "32 channels ": replace(base, im2col=replace(corners, channels=32)),
        "corners 0 -2 ": replace(base, im2col=replace(corners, lower=(0, 0), upper=(-2, -2))),
        "swizzle 32 ": replace(base, swizzle=Swizzle.B32),
        "swizzle 128 ": replace(base, swizzle=Swizzle.B128),
        "200 pixels ": replace(base, im2col=replace(corners, pixels=200)),
    }
    places = [(0, -1, -1, 0), (0, 0, 0, 0), (0, 3, 4, 1), (8, 2, 2, 1), (0, 4, 3, 2), (0, 6, 5, 0), (-16, 0, 0, 1)]
    for label, tensor_map in kinds.items():
        for at in places:
            for offsets in ((0, 0), (2, 1)):
                yield _column(f"im2col: {label}at {at} offsets {offsets}", tensor_map, at, offsets)
    outside = [(0, -3, 0, 0), (0, 0, -4, 0), (0, 9, 0, 0), (0, 0, 0, 3), (0, 0, 0, -1), (16, 0, 0, 0), (1, 0, 0, 0)]
    for at in outside:
        yield _column(f"im2col: at {at}", base, at, (0, 0))
    dims = (16, 40, 3)
    line = replace(
        base, dims=dims, strides=_dense(dims, 2), element_strides=(1, 1, 1), im2col=Im2col((-2,), (1,), 16, 48)
    )
    yield _column("im2col: 3 dimensions", line, (0, -2, 0), (0,))
    yield _column("im2col: 3 dimensions, offset 3", line, (0, 7, 1), (3,))
    dims = (8, 4, 3, 3, 2)
    deep = replace(
        base, dims=dims, strides=_dense(dims, 2), element_strides=(1,) * 5, im2col=Im2col((-1,) * 3, (-1,) * 3, 8, 64)
    )
    yield _column("im2col: 5 dimensions", deep, (0, -1, -1, -1, 0), (0, 0, 0))
    yield _column("im2col: 5 dimensions, offsets 2 1 2", deep, (0, 1, 1, 0, 0), (2, 1, 2))


def _column(name: str, tensor_map: TensorMap, at: tuple[int, ...], offsets: tuple[int, ...]) -> Load:
    assert tensor_map.im2col is not None
    column_ = tensor_map.im2col
    size = column_.channels * column_.pixels * 2
    pitch = tensor_map.span or column_.channels * 2
    tensor = _counted(2 * int(np.prod(tensor_map.dims)))
    return Load(name, tensor_map, at, size, pitch * column_.pixels, offsets, tensor)


def _interleaved() -> Iterator[Load]:
    """Interleaved maps: what a coordinate counts, what a stride steps over, what a box brings."""
    shapes = (
        ((32, 6, 5), (16, 4, 3)),
        ((32, 6, 5), (16, 40, 2)),
        ((32, 6, 5, 3), (16, 4, 3, 2)),
        ((4, 6, 5), (2, 4, 3)),
    )
    for mode, kind, width in ((1, Type.U16, 2), (2, Type.U16, 2), (1, Type.U8, 1), (1, Type.F32, 4)):
        swizzle, size = (Swizzle.B32, 32) if mode == 2 else (Swizzle.NONE, 16)
        for dims, box in shapes:
            strides = (size * 8, size * 8 * 8, size * 8 * 8 * 8)[: len(dims) - 1]
            tensor_map = TensorMap(kind, 0, dims, strides, box, (1,) * len(dims), interleave=mode, swizzle=swizzle)
            places = (
                (0, 0, 0),
                (1, 1, 1),
                (16 // width, 0, 0),
                (0, 4, 0),
                (0, 0, 4),
                (20, 0, 0),
                (0, -1, 0),
                (0, 6, 0),
            )
            slices = size * int(np.prod([*box[:-2], box[-1]]))  # however many channels, a box is one slice deep
            for at in dict.fromkeys(places):
                at_all = (*at, 0)[: len(dims)]
                name = f"interleave {mode}: {Type(kind).name} {dims} box {box} at {at_all}"
                load = Load(name, tensor_map, at_all, slices, 16384, None, _counted(1 << 17))
                # Boxes of 40 channels were asked before that was known: only their image is an answer.
                yield replace(load, first=STATE if 40 in box else 0)


def _multicasts() -> Iterator[Load]:
    """Boxes that leave the tensor, brought to both CTAs, or to the other one alone."""
    dims = (64, 32)
    base = TensorMap(Type.U16, 0, dims, (128,), (32, 8), (1, 1))
    for at in ((0, 0), (56, 0), (0, 28), (56, 28), (-8, -4), (64, 0), (0, 100)):
        for swizzle in (Swizzle.NONE, Swizzle.B64):
            tensor_map = replace(base, swizzle=swizzle)
            name = f"multicast: at {at}, swizzle {swizzle.name}"
            yield Load(name, tensor_map, at, 512, 1024, None, _counted(4096), mask=3)
    yield Load(
        "multicast: NaN fill", replace(base, type=Type.BF16, fill=1), (56, 28), 512, 1024, None, _counted(4096), 3
    )


INTEGERS = (Type.U32, Type.S32, Type.U64, Type.S64)
SUMS = (Type.U32, Type.S32, Type.U64, Type.F16, Type.BF16, Type.F32, Type.F32_FTZ, Type.TF32, Type.TF32_FTZ)
LOGIC = [(kind, operation) for kind in INTEGERS for operation in ("and", "or", "xor")]
EXTREMES = [(kind, operation) for kind in (*INTEGERS, Type.F16, Type.BF16) for operation in ("min", "max")]
NOT_LISTED = [(Type.F64, "add"), (Type.S64, "add"), (Type.F32, "min"), (Type.F32, "and"), (Type.U16, "add")]
NOT_LISTED += [(Type.U8, "max"), (Type.U64, "inc"), (Type.F16, "xor")]
REDUCTIONS = [*((kind, "add") for kind in SUMS), *EXTREMES, *LOGIC, (Type.U32, "inc"), (Type.U32, "dec"), *NOT_LISTED]
EDGES_OF = {Type.F32_FTZ: "f32", Type.TF32_FTZ: "tf32"}
"""Whose edges a type shares; otherwise its own."""


def _reduction(kind: Type, operation: str) -> Probe:
    width = TensorMap(kind, 0, (1,), (), (1,), (1,)).element_bytes
    shape = (128 // width, 16)
    tensor_map = TensorMap(kind, 0, shape, (128,), shape, (1, 1))
    name = f"box reduction: {operation} {kind.name}"
    edges = EDGES_OF.get(kind, kind.name.lower())
    given, start = (
        packed(column(f"{name} {side}", edges, 2048 // width), 8 * width, 64).astype("<u8").tobytes()
        for side in ("source", "target")
    )
    copy = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{operation}.bulk_group [d4, {{r20, r21}}], [r2];"
    body = STORE.format(bytes=2048, statements="mov.b32 r20, 0; mov.b32 r21, 0; " + copy)
    return Probe(name, body, given, 2048, (tensor_map,), start, block=(128, 1, 1), shared=2048)


def _stores() -> Iterator[Probe]:
    """Plain stores of types that loads convert, and im2col stores without offsets."""
    for kind in (Type.TF32, Type.TF32_FTZ, Type.F32_FTZ):
        probe = _reduction(kind, "add")
        body = probe.body.replace("cp.reduce.async", "cp.async").replace(".add.bulk_group", ".bulk_group")
        yield replace(probe, name=f"box store: {kind.name}", body=body)
    dims = (16, 7, 6, 3)
    corners = Im2col((0, 0), (0, 0), 16, 32)
    column_map = TensorMap(Type.U16, 0, dims, _dense(dims, 2), (), (1,) * 4, im2col=corners)
    size = 2 * int(np.prod(dims))
    for at in ((0, 0, 0, 0), (0, 3, 4, 1), (0, 4, 5, 2), (8, 0, 0, 0), (0, -1, 0, 0)):
        places = "".join(f"mov.b32 r{20 + place}, {value};\n" for place, value in enumerate(at))
        copy = "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [d4, {r20, r21, r22, r23}], [r2];"
        body = STORE.format(bytes=2048, statements=places + copy)
        yield Probe(f"im2col store: at {at}", body, _counted(2048), size, (column_map,), block=(128, 1, 1), shared=2048)


def copies() -> Iterator[Probe]:
    """All of them."""
    for load in (*_columns(), *_interleaved(), *_multicasts()):
        yield load.probe()
    for kind, operation in REDUCTIONS:
        yield _reduction(kind, operation)
    yield from _stores()
