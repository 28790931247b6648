"""Programs of tensor copies: boxes of ranks 1 to 5 that hang over the edge, im2col, stores, reductions, edited maps."""

from __future__ import annotations

from tests.emulator.agreement.program import MapOf, Part, Program
from tests.emulator.agreement.values import random_bytes

from ptxbench.emulator.async_.tensormap import Im2col, Swizzle, TensorMap, Type
from ptxbench.emulator.ptx.isa import Form, mnemonics, operands

REGISTERS = ".reg .b32 r<20>; .reg .b64 d<20>; .reg .pred p<8>; .reg .b16 h<8>;"
SIZES, BOX, CORNER = (48, 5, 4, 3, 2), (32, 4, 2, 2, 2), (32, 2, -1, 1, 1)
"""Of the tensor, the box and its corner; the first in bytes."""
TENSOR = 48 * 5 * 4 * 3 * 2
AREA = 1024
"""Bytes of the largest box."""
_TYPES = {1: Type.U32, 2: Type.F32, 3: Type.BF16, 4: Type.U8, 5: Type.U32}
_ELEMENT = {Type.U32: 4, Type.F32: 4, Type.BF16: 2, Type.U8: 1}
WIDTH = 192
"""Bytes of `out` per thread where a tensor lies in it."""


def rank_of(mnemonic: str) -> int:
    """Dimensions of the tensor."""
    return next(int(word[0]) for word in mnemonic.split(".") if word in ("1d", "2d", "3d", "4d", "5d"))


def tile(rank: int, type_: Type) -> TensorMap:
    """The map of a tile of that rank."""
    size = _ELEMENT[type_]
    dims = (SIZES[0] // size, *SIZES[1:rank])
    box = (BOX[0] // size, *BOX[1:rank])
    pitch, strides = SIZES[0], []
    for each in dims[1:]:
        strides.append(pitch)
        pitch *= each
    swizzle = Swizzle.B32 if rank % 2 == 0 else Swizzle.NONE
    fill = int(type_ in (Type.F32, Type.BF16))
    return TensorMap(type_, 0, dims, tuple(strides), box, (1,) * rank, swizzle=swizzle, fill=fill)


def columns(rank: int, lower: int = -1, upper: int = -1, pixels: int = 12) -> TensorMap:
    """The map of im2col boxes: 8 channels of 4 bytes; by default filters that are 3 wide."""
    dims = (*(8, 6, 4, 3)[: rank - 1], 2)
    pitch, strides = 32, []
    for each in dims[1:]:
        strides.append(pitch)
        pitch *= each
    spatial = rank - 2
    boxes = Im2col((lower,) * spatial, (upper,) * spatial, 8, pixels)
    return TensorMap(Type.U32, 0, dims, tuple(strides), (), (1,) * rank, im2col=boxes)


def _bytes(mapped: TensorMap) -> int:
    if mapped.im2col:
        return mapped.im2col.channels * mapped.im2col.pixels * 4
    total = _ELEMENT[Type(mapped.type)]
    for each in mapped.box:
        total *= each
    return total


def _corner(mapped: TensorMap, least: int = -1) -> str:
    """The coordinates, as a vector; stores take none below 0."""
    if mapped.im2col:
        return "{" + ", ".join(["0", "1", *["0"] * (mapped.rank - 3), "0"]) + "}"
    first = CORNER[0] // _ELEMENT[Type(mapped.type)]
    return "{" + ", ".join(map(str, (first, *(max(each, least) for each in CORNER[1 : mapped.rank])))) + "}"


_START = f"""
.reg .b64 policy, map, x, y, cells, g64; .reg .b32 bar, base; .reg .pred first;
.shared .align 1024 .b8 smem[{AREA}]; .shared .align 8 .b64 barrier;
createpolicy.fractional.L2::evict_first.b64 policy; mov.u64 map, @K_block; cvta.param.u64 map, map;
mov.u32 bar, barrier; mov.u32 base, smem; setp.eq.u32 first, t, 0;
mov.u64 cells, smem; mad.wide.u32 cells, t, 32, cells; mad.wide.u32 g64, t, 32, given;
@first mbarrier.init.shared::cta.b64 [bar], 1; fence.mbarrier_init.release.cluster;
"""
_CLEAR = """st.shared.v2.b64 [cells], {-1, 3}; st.shared.v2.b64 [cells+16], {5, 7}; fence.proxy.async; bar.sync 0;"""
_SHOW = """ld.shared.v2.b64 {x, y}, [cells]; st.global.v2.b64 [od], {x, y};
ld.shared.v2.b64 {x, y}, [cells+16]; st.global.v2.b64 [od+16], {x, y}; bar.sync 0;"""
_BOTH = "barrier.cluster.arrive; barrier.cluster.wait;"


def _tail(form: Form, mnemonic: str) -> str:
    """Offsets, mask and policy, as far as the mnemonic has them."""
    texts = []
    for spec in operands(form, mnemonic):
        if spec.kind == "offsets":
            texts.append("{" + ", ".join(f"h{2 - n % 2}" for n in range(spec.count)) + "}")
        elif spec.kind == "register" and spec.type == "b16":
            texts.append("h3")
        elif spec.kind == "register" and spec.type == "b64":
            texts.append("policy")
    return "".join(f", {text}" for text in texts)


def _load(form: Form, mnemonic: str, place: int, mapped: TensorMap) -> Part:
    who = "setp.eq.u32 p3, rank, 0; and.pred p3, p3, first;" if "multicast" in mnemonic else "mov.pred p3, first;"
    issue = f"{mnemonic} [base], [map, {_corner(mapped)}], [bar]{_tail(form, mnemonic)};"
    body = f"""{REGISTERS} mov.b16 h1, 0; mov.b16 h2, 2; mov.b16 h3, 3; {who} {_CLEAR}
@first mbarrier.arrive.expect_tx.shared::cta.b64 d1, [bar], {_bytes(mapped)}; {_BOTH} @p3 {issue}
AGAIN{place}: mbarrier.try_wait.parity.shared::cta.b64 p2, [bar], {place % 2}; @!p2 bra AGAIN{place};
{_SHOW} {_BOTH}"""
    return Part(mnemonic, body, 32)


def loads(form: Form) -> list[Program]:
    """Loads and prefetches of one box; what lies around it shows too."""
    names = mnemonics(form)
    rank = rank_of(names[0])
    mapped = columns(rank) if ".im2col" in names[0] else tile(rank, _TYPES[rank])
    parts = []
    for place, mnemonic in enumerate(names):
        if "prefetch" in mnemonic:
            issue = f"@first {mnemonic} [map, {_corner(mapped)}]{_tail(form, mnemonic)};"
            parts.append(Part(mnemonic, f"{REGISTERS} mov.b16 h1, 0; mov.b16 h2, 2; {issue} st.global.b32 [od], t;", 4))
        else:
            parts.append(_load(form, mnemonic, place, mapped))
    given = random_bytes(form.name, TENSOR)
    return [
        Program(
            form.name,
            tuple(parts),
            threads=32,
            cluster=2,
            grid=2,
            given=given,
            start=_START,
            block=MapOf("given", mapped),
        )
    ]


def stores(form: Form) -> list[Program]:
    """Stores and reductions into a tensor in `out`, one program per mnemonic; what lies around the box shows too."""
    made = []
    for mnemonic in mnemonics(form):
        rank = rank_of(mnemonic)
        if "im2col_no_offs" in mnemonic:
            made.append(_store(form, mnemonic, columns(rank, 0, 0)))
        else:
            made.append(_store(form, mnemonic, tile(rank, Type.U32)))
    if form.name.startswith("cp.async") and "im2col_no_offs" in form.name:
        for lower, upper, pixels in ((-1, -1, 3), (0, -1, 12), (-1, 0, 12), (0, -1, 3), (-1, 0, 3)):
            name = f" corners {lower} {upper} pixels {pixels}"
            made.append(_store(form, mnemonics(form)[0], columns(rank, lower, upper, pixels), name))
    return made


def _store(form: Form, mnemonic: str, mapped: TensorMap, name: str = "") -> Program:
    body = f"""{REGISTERS} .reg .b32 i; .reg .pred more; mov.u32 i, t;
FILL: mad.wide.u32 d1, i, 4, given; ld.global.b32 r1, [d1]; and.b32 r1, r1, 15; mad.wide.u32 d1, i, 4, ob;
st.global.b32 [d1], r1; add.u32 i, i, 32; setp.lt.u32 more, i, {TENSOR // 4}; @more bra FILL;
ld.global.v2.b64 {{x, y}}, [g64+64]; st.shared.v2.b64 [cells], {{x, y}};
ld.global.v2.b64 {{x, y}}, [g64+80]; st.shared.v2.b64 [cells+16], {{x, y}}; fence.proxy.async; bar.sync 0;
@first {mnemonic} [map, {_corner(mapped, 0)}], [base]{_tail(form, mnemonic)};
@first cp.async.bulk.commit_group; @first cp.async.bulk.wait_group 0; bar.sync 0;"""
    part = Part(mnemonic + name, body, WIDTH)
    given = random_bytes(form.name, TENSOR)
    return Program(
        form.name, (part,), threads=32, given=given, start=_START, block=MapOf("out", mapped), ends=bool(name)
    )


_EDITS = {
    # field: operands behind the address, bytes of the box after it
    "global_address": ("moved", 128),
    "rank": ("r1", 128),
    "box_dim": ("1, r2", 64),
    "global_dim": ("1, r3", 128),
    "element_stride": ("1, r2", 64),
    "global_stride": ("0, stride", 128),
    "elemtype": ("8", 128),  # f32 with subnormals flushed
    "interleave_layout": ("0", 128),
    "swizzle_mode": ("0", 128),
    "fill_mode": ("0", 128),
}


def edits(form: Form) -> list[Program]:
    """`tensormap.replace` and `cp_fenceproxy`: a load with the edited map."""
    parts = []
    for place, mnemonic in enumerate(mnemonics(form)):
        words = mnemonic.split(".")
        publish = words[1] == "cp_fenceproxy"
        operand, size = ("", 128) if publish else _EDITS[words[3]]
        shared = publish or "shared::cta" in words
        scope = next((word for word in words if word in ("cta", "cluster", "gpu", "sys")), "gpu")
        target = "edited" if shared else "there"
        target = target if "global" in words or shared else "generic"
        release = (
            mnemonic
            if publish
            else "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned"
        )
        edit = "" if publish else f"@first {mnemonic} [{target}], {operand};"
        after = (
            f"bar.sync 0; {release} [there], [edited], 128;"
            if shared
            else "fence.proxy.tensormap::generic.release.gpu;"
        )
        acquire = f"fence.proxy.tensormap::generic.acquire.{scope} [generic], 128;"
        parts.append(Part(mnemonic, _edited(place, edit, after, acquire, size, shared), 32))
    mapped = tile(2, Type.F32)
    given = random_bytes(form.name, TENSOR) + bytes(128 * len(parts) + 128)
    start = f"{_START} .shared .align 128 .b8 copy[128]; .reg .b64 edited, there, generic, moved, stride, m64;"
    block = MapOf("given", mapped)
    return [Program(form.name, tuple(parts), threads=32, given=given, start=start, block=block)]


def _edited(place: int, edit: str, after: str, acquire: str, size: int, shared: bool) -> str:
    corner = _corner(tile(2, Type.F32))
    where = "st.shared.b32 [d2], r5;" if shared else "st.global.b32 [d2], r5;"
    base = "edited" if shared else "there"
    return f"""{REGISTERS} mov.u64 edited, copy; add.u64 there, given, {TENSOR + 127 + 128 * place};
and.b64 there, there, -128;
cvta.global.u64 generic, there; add.u64 moved, given, 96; cvta.global.u64 moved, moved; mov.u64 stride, 96;
mov.u32 r1, 1; mov.u32 r2, 2; mov.u32 r3, 3; mad.wide.u32 m64, t, 4, map; ld.b32 r5, [m64];
mad.wide.u32 d2, t, 4, {base};
{where} bar.sync 0; {edit} {after} {acquire} {_CLEAR}
@first mbarrier.arrive.expect_tx.shared::cta.b64 d1, [bar], {size};
@first cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [base], [generic, {corner}], [bar];
AGAIN{place}: mbarrier.try_wait.parity.shared::cta.b64 p2, [bar], {place % 2}; @!p2 bra AGAIN{place};
{_SHOW}"""
