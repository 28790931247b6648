"""What an H200 answered about boxes, descriptors, barriers, clusters, where no table beside a part has it."""

from __future__ import annotations

import numpy as np
import pytest
from tests.emulator.core.small import Ran, run, store, text
from tests.emulator.scalar.conftest import read
from tests.emulator.scalar.conftest import run as run_scalar

from ptxbench.emulator.async_.boxes import tile_box
from ptxbench.emulator.async_.copies import load_box, store_box, to_tf32
from ptxbench.emulator.async_.encode import Refused, encode
from ptxbench.emulator.async_.tensormap import Swizzle, TensorMap, Type
from ptxbench.emulator.codegen.scalar.operations import scalar_operation
from ptxbench.emulator.launch import KernelLaunch, run_launch
from ptxbench.emulator.machine.memory import DeviceMemory
from ptxbench.emulator.ptx.parse import parse
from ptxbench.emulator.tensor.descriptor import Descriptor, chunk_addresses
from ptxbench.emulator.tensor.swizzle import swizzle

BASE = 0x7000_0000_0000
TENSOR = TensorMap(Type.U16, BASE, (256, 64), (512,), (32, 8), (1, 1))
SPANS = {Swizzle.B32: 32, Swizzle.B64: 64, Swizzle.B128: 128}
NARROW = [(kind, inner) for kind, span in SPANS.items() for inner in range(16, span + 1, 16)]


class Memory:
    """A tensor of 256 x 64 numbers of 16 bits at BASE."""

    def __init__(self) -> None:
        self.data = (np.arange(256 * 64, dtype=np.uint16) + 1).view(np.uint8).copy()

    def __call__(self, address: int, size: int) -> np.ndarray:
        return self.data[address - BASE : address - BASE + size]


def places(kind: Swizzle, inner: int, rows: int, start: int) -> np.ndarray:
    """Shared address of each byte of a box: int64 [rows, inner]."""
    span = SPANS[kind]
    linear = start + span * np.arange(rows)[:, None] + np.arange(inner)
    return swizzle(linear.astype(np.int64), span)


@pytest.mark.parametrize("start", [1024, 1024 + 128, 1024 + 512])
@pytest.mark.parametrize(("kind", "inner"), NARROW)
def test_rows_of_a_narrow_box_lie_a_span_apart(kind: Swizzle, inner: int, start: int) -> None:
    """42 loads: every element where the formula puts it, all else untouched, and only the box's bytes signalled."""
    memory, shared = Memory(), np.full(4096, 0xEE, np.uint8)
    tensor_map = TensorMap(Type.U16, BASE, (256, 64), (512,), (inner // 2, 16), (1, 1), swizzle=kind)
    box = tile_box(tensor_map, (0, 0))
    load_box(box, memory, shared, start)
    expected = np.full(4096, 0xEE, np.uint8)
    expected[places(kind, inner, 16, start)] = memory.data.reshape(64, 512)[:16, :inner]
    np.testing.assert_array_equal(shared, expected)
    assert box.bytes == inner * 16


@pytest.mark.parametrize(("kind", "inner"), NARROW)
def test_a_store_reads_the_image_that_a_load_writes(kind: Swizzle, inner: int) -> None:
    """14 stores."""
    memory, shared = Memory(), np.random.default_rng(1).integers(0, 256, 4096, np.uint8)
    tensor_map = TensorMap(Type.U16, BASE, (256, 64), (512,), (inner // 2, 16), (1, 1), swizzle=kind)
    expected = memory.data.reshape(64, 512).copy()
    expected[:16, :inner] = shared[places(kind, inner, 16, 1024)]
    store_box(tile_box(tensor_map, (0, 0), store=True), memory, shared, 1024)
    np.testing.assert_array_equal(memory.data.reshape(64, 512), expected)


@pytest.mark.parametrize("first", range(-64, 320, 8))
@pytest.mark.parametrize("row", [-9, -1, 0, 3, 63, 64, 1000])
def test_every_multiple_of_16_bytes_and_every_outer_coordinate_is_taken(first: int, row: int) -> None:
    assert tile_box(TENSOR, (first, row)).bytes == 512


def test_a_box_larger_than_its_tensor_is_encoded_and_signals_the_whole_box() -> None:
    large = TensorMap(Type.U16, BASE, (16, 4), (512,), (32, 8), (1, 1))
    assert not isinstance(encode(large), Refused)
    memory, shared = Memory(), np.full(1024, 0xEE, np.uint8)
    box = tile_box(large, (0, 0))
    load_box(box, memory, shared, 0)
    image = shared[:512].reshape(8, 64)
    assert box.bytes == 512
    assert (image[:4, :32] == memory.data.reshape(64, 512)[:4, :32]).all()
    assert not image[4:].any()
    assert not image[:, 32:].any()


def test_tf32_maps_convert_as_the_instruction_does() -> None:
    bits = np.random.default_rng(2).integers(0, 1 << 32, 4000, np.uint32)
    bits[:64] = 0x7F80_0000 + np.arange(64, dtype=np.uint32) * 0x0001_FFFF
    operation = scalar_operation(read("cvt.rn.tf32.f32 %r1, %r2;"))
    assert operation is not None
    assert to_tf32(bits).tolist() == run_scalar(operation, bits.tolist())


def addresses(descriptor: Descriptor, mn_major: bool = False) -> np.ndarray:
    """Chunk addresses of 64 rows of 16-bit elements, 16 deep."""
    return chunk_addresses(descriptor, 64, 32, 2, mn_major)


@pytest.mark.parametrize(("span", "mask"), [(32, 1), (64, 3), (128, 7)])
def test_the_base_offset_is_taken_from_the_line_number(span: int, mask: int) -> None:
    """All eight values; of the smaller patterns only its low bits matter."""
    for base in range(8):
        made = addresses(Descriptor(2048, 16, 8 * span, base, span))
        linear = 2048 + np.arange(64)[:, None] // 8 * 8 * span + np.arange(64)[:, None] % 8 * span + np.arange(2) * 16
        assert (made == linear ^ ((linear >> 7) - base & mask) << 4).all()
        assert (made == addresses(Descriptor(2048, 16, 8 * span, base & mask, span))).all()


@pytest.mark.parametrize("span", [32, 64, 128])
def test_a_tile_is_entered_at_any_row_and_chunk(span: int) -> None:
    """Without a base offset the exchange follows the absolute address; with one it follows the tile's own lines."""
    whole = addresses(Descriptor(2048, 16, 8 * span, 0, span))
    for row in range(8):
        made = addresses(Descriptor(2048 + row * span, 16, 8 * span, 0, span))
        assert (made[: 8 - row] == whole[row:8]).all()
    for step in range(0, span - 16, 16):
        made = addresses(Descriptor(2048 + step, 16, 8 * span, 0, span))
        linear = 2048 + step + np.arange(8)[:, None] * span + np.arange(2) * 16
        assert (made[:8] == swizzle(linear.astype(np.int64), span)).all()
    for line in range(8):
        made = addresses(Descriptor(2048 + 128 * line, 16, 8 * span, line, span))
        assert (made - 128 * line == whole).all() or span < 128


@pytest.mark.parametrize("span", [32, 64, 128])
def test_the_leading_offset_means_nothing_in_a_swizzled_k_major_tile(span: int) -> None:
    first = addresses(Descriptor(1024, 0, 1024, 0, span))
    for leading in (16, 2048):
        assert (addresses(Descriptor(1024, leading, 1024, 0, span)) == first).all()


@pytest.mark.parametrize("stride", [0, 1040, 1152])
def test_rows_of_eight_lie_any_multiple_of_16_apart(stride: int) -> None:
    made = addresses(Descriptor(1024, 16, stride, 0, 128))
    linear = 1024 + np.arange(64)[:, None] // 8 * stride + np.arange(64)[:, None] % 8 * 128 + np.arange(2) * 16
    assert (made == swizzle(linear.astype(np.int64), 128)).all()


@pytest.mark.parametrize("span", [0, 128])
def test_leading_and_stride_change_places_between_plain_and_swizzled_mn_major_tiles(span: int) -> None:
    made = chunk_addresses(Descriptor(0, 4096, 2048, 0, span), 128, 32, 2, True)
    step_k, step_mn = (4096, 2048) if span == 0 else (2048, 4096)
    assert made[8, 0] - made[0, 0] == step_k
    assert made[0, 64 // 8 if span else 1] - made[0, 0] == step_mn


PRODUCT = """
.reg .f32 %a<4>; mov.u32 %r40, cell; shr.u32 %r41, %r40, 4; cvt.u64.u32 %d2, %r41; add.u64 %d3, %d2, {offset};
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%a0, %a1, %a2, %a3}}, %d3, %d2, 0, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
"""


def product(offset: int, threads: int = 128, before: str = "") -> Ran:
    """One wgmma on 2 KiB of shared memory, A further on."""
    return run(
        before + PRODUCT.format(offset=offset >> 4), threads=threads, before=".shared .align 1024 .b8 cell[2048];"
    )


def test_a_descriptor_beyond_the_allocation_is_an_illegal_address() -> None:
    assert not product(0).error
    assert product(100 << 10).error == "cudaErrorIllegalAddress"


def test_a_warpgroup_that_begins_at_the_second_warp_is_illegal() -> None:
    """160 threads; warps 1 to 4 multiply."""
    before = "setp.lt.u32 %p1, %r50, 32; @%p1 bra OUT;\n"
    ran = run(before + PRODUCT.format(offset=0) + "OUT:", threads=160, before=".shared .align 1024 .b8 cell[2048];")
    assert ran.error == "cudaErrorIllegalInstruction"


MULTICAST = """
mov.u32 %r40, cell; ld.param.u64 %d1, [given]; mov.u32 %r41, %cluster_ctarank; setp.ne.u32 %p9, %r50, 0;
@!%p9 mbarrier.init.shared::cta.b64 [bar], 1; @!%p9 mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
st.shared.u32 [%r40], 0; fence.proxy.async;
barrier.cluster.arrive; barrier.cluster.wait; setp.ne.u32 %p8, %r41, 0; or.pred %p8, %p8, %p9; mov.b16 %h1, {mask};
@!%p8 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
    [cell], [%d1], 16, [bar], %h1;
shr.u32 %r42, {mask}, %r41; and.b32 %r42, %r42, 1; setp.eq.u32 %p7, %r42, 0; @%p7 bra OVER;
W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0; @!%p1 bra W;
OVER: ld.shared.u32 %r1, [%r40]; mov.u32 %r51, %ctaid.x; mov.u32 %r52, %ctaid.y; mov.u32 %r53, %nctaid.x;
mad.lo.u32 %r51, %r52, %r53, %r51; mul.wide.u32 %d2, %r51, 8; add.u64 %d2, %d2, %d50;
@!%p9 st.global.v2.u32 [%d2], {{%r1, %r41}}; barrier.cluster.arrive; barrier.cluster.wait;
"""


@pytest.mark.parametrize("shape", [(2, 2), (2, 4), (4, 4)])
@pytest.mark.parametrize("mask", [0b1, 0b1010, 0b0110])
def test_a_bit_of_a_multicast_is_the_rank_x_fastest(shape: tuple[int, int], mask: int) -> None:
    memory, count = DeviceMemory(1 << 20), shape[0] * shape[1]
    out, given = memory.allocate(8 * count), memory.allocate(16)
    memory.write(given, (7).to_bytes(16, "little"))
    parameters = (out.to_bytes(8, "little"), given.to_bytes(8, "little"))
    sizes = (*shape, 1)
    body = text(MULTICAST.format(mask=mask), ".shared .align 128 .b8 cell[16]; .shared .align 8 .b64 bar;")
    launch = KernelLaunch("k", sizes, (32, 1, 1), sizes, parameters=parameters, explicit_cluster=True)
    result = run_launch(parse(body), launch, memory)
    assert not result.error
    answers = np.frombuffer(memory.read(out, 8 * count), np.uint32).reshape(count, 2)
    assert answers[:, 1].tolist() == list(range(count))
    assert answers[:, 0].tolist() == [7 * (mask >> rank & 1) for rank in range(count)]


@pytest.mark.parametrize(
    ("static", "align", "dynamic", "place"),
    [(0, 16, 1024, 0x400), (4, 16, 1024, 0x410), (100, 16, 1024, 0x470), (100, 1024, 5000, 0x800)],
)
def test_dynamic_shared_memory_lies_behind_the_static(static: int, align: int, dynamic: int, place: int) -> None:
    """The whole of it is there, and the sizes count what lies between."""
    variables = f".shared .align 4 .b8 fixed[{static}];\n" if static else ""
    variables += f".extern .shared .align {align} .b8 cell[];"
    body = "mov.u32 %r1, fixed; st.shared.u8 [%r1], 1;\n" if static else ""
    body += f"mov.u32 %r1, cell; st.shared.u8 [%r1+{dynamic - 1}], 1; mov.u32 %r2, %total_smem_size;\n"
    body += "mov.u32 %r3, %aggr_smem_size; st.global.v2.u32 [%d50], {%r1, %r2}; st.global.u32 [%d50+8], %r3;"
    ran = run(body, threads=1, before=variables, shared=dynamic, words=4)
    user = place - 0x400 + dynamic
    assert not ran.error
    assert ran.words[:3].tolist() == [place, (user + 127) // 128 * 128, user + 1024]


PEER = """
.shared .align 8 .b64 bar; mov.u32 %r40, bar; mov.u32 %r41, %cluster_ctarank; setp.ne.u32 %p9, %r41, 0;
mbarrier.init.shared::cta.b64 [%r40], 32; fence.mbarrier_init.release.cluster; st.global.u32 [%d50], 0;
barrier.cluster.arrive; barrier.cluster.wait; @!%p9 bra SPIN; st.volatile.global.u32 [%d50], 1; bra OUT;
SPIN: ld.volatile.global.u32 %r43, [%d50]; setp.eq.u32 %p1, %r43, 0; @%p1 bra SPIN;
mapa.shared::cluster.u32 %r42, %r40, 1;
{statement}
OUT:
"""


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("ld.shared::cluster.u32 %r1, [%r42];", "cudaErrorLaunchFailure"),
        ("st.shared::cluster.u32 [%r42], 1;", "cudaErrorLaunchFailure"),
        ("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r42];", "cudaErrorLaunchFailure"),
        ("barrier.cluster.arrive; barrier.cluster.wait;", ""),
    ],
)
def test_a_peer_that_has_exited_cannot_be_reached_but_is_not_waited_for(statement: str, error: str) -> None:
    assert run(PEER.format(statement=statement), threads=32, grid=2, cluster=2).error == error


ONE = ".shared .align 128 .b8 cell[64]; .shared .align 8 .b64 bar[2];"
BEGIN = "mov.u32 %r40, bar; mbarrier.init.shared::cta.b64 [%r40], 1; ld.param.u64 %d1, [given];\n"


def test_a_misaligned_barrier_of_a_bulk_copy_is_a_misaligned_address() -> None:
    copy = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [cell], [%d1], 16, [bar+4];"
    assert run(BEGIN + copy, threads=1, before=ONE, given=bytes(16)).error == "cudaErrorMisalignedAddress"


def test_an_own_barrier_may_be_named_as_one_of_the_cluster() -> None:
    body = BEGIN + "mbarrier.arrive.shared::cluster.b64 _, [%r40];\n"
    body += "mbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], 0; selp.u32 %r1, 1, 0, %p1;\n" + store()
    assert run(body, threads=1, before=ONE).words.tolist() == [1]


@pytest.mark.parametrize("hint", ["", ", 20", ", 100000000"])
def test_a_wait_that_fails_answers_false_whatever_its_hint(hint: str) -> None:
    body = BEGIN + "mbarrier.try_wait.parity.shared::cta.b64 %p1, [bar], 0" + hint + ";\nselp.u32 %r1, 1, 2, %p1;\n"
    assert run(body + store(), threads=1, before=ONE).words.tolist() == [2]


def test_an_arrive_that_should_not_complete_completes() -> None:
    body = BEGIN + "mbarrier.arrive.noComplete.release.cta.shared::cta.b64 %d2, [%r40], 1;\n"
    body += "mbarrier.test_wait.parity.shared::cta.b64 %p1, [bar], 0; selp.u32 %r1, 1, 0, %p1;\n" + store()
    assert run(body, threads=1, before=ONE).words.tolist() == [1]
