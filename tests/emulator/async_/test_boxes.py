"""Tensor copies against a model that goes through a box element by element, and against an H200's answers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from timeit import repeat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxbench.emulator.async_.boxes import gather_box, im2col_box, tile_box
from ptxbench.emulator.async_.copies import load_box, reduce_box, store_box, to_tf32
from ptxbench.emulator.async_.tensormap import Im2col, Swizzle, TensorMap, Type
from ptxbench.emulator.errors import Fault, Unsupported

BASE = 0x7000_0000_0000
SIZES = {Type.U8: 1, Type.U16: 2, Type.F32: 4, Type.F64: 8}


class Memory:
    """One allocation at BASE with random bytes."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.data = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)

    def __call__(self, address: int, size: int) -> np.ndarray:
        if not BASE <= address <= address + size <= BASE + self.data.size:
            raise Fault("cudaErrorIllegalAddress", f"{address:#x}")
        return self.data[address - BASE : address - BASE + size]


def shared_address(address: int, swizzle: int) -> int:
    """The XOR as a rule per bit, from the tables of the PTX ISA."""
    line, chunk = address >> 7, address >> 4 & 7
    chunk ^= {Swizzle.NONE: 0, Swizzle.B32: line & 1, Swizzle.B64: line & 3, Swizzle.B128: line & 7}[Swizzle(swizzle)]
    return address & ~0x70 | chunk << 4


def elements(tensor_map: TensorMap, coordinates: tuple[int, ...]) -> Iterator[tuple[int, int | None]]:
    """(offset in the linear image, byte offset in the tensor or None outside) of each element, in the image's order."""
    size, span = SIZES[Type(tensor_map.type)], {0: 0, 1: 32, 2: 64, 3: 128}[tensor_map.swizzle]
    steps = (1, *tensor_map.element_strides[1:])
    axes = [range(0, box, step) for box, step in zip(tensor_map.box, steps, strict=True)]
    for number, reverse in enumerate(product(*reversed(axes))):
        at = [start + move for start, move in zip(coordinates, reversed(reverse), strict=True)]
        row, column = divmod(number, len(axes[0]))
        inside = all(0 <= position < dim for position, dim in zip(at, tensor_map.dims, strict=True))
        strides = (size, *tensor_map.strides)
        source = sum(position * stride for position, stride in zip(at, strides, strict=True))
        yield row * (span or len(axes[0]) * size) + column * size, source if inside else None


@st.composite
def boxes(draw: st.DrawFn) -> tuple[TensorMap, tuple[int, ...], int]:
    """A map, coordinates and a shared address."""
    kind = draw(st.sampled_from([Type.U8, Type.U16, Type.F32, Type.F64]))
    size = SIZES[kind]
    rank = draw(st.integers(1, 5))
    swizzle = draw(st.sampled_from([Swizzle.NONE, Swizzle.B32, Swizzle.B64, Swizzle.B128]))
    most = {0: 10, 1: 2, 2: 4, 3: 8}[swizzle]
    inner = 16 // size * draw(st.integers(1, min(most, 256 * size // 16)))
    outer = draw(st.lists(st.integers(1, 5), min_size=rank - 1, max_size=rank - 1))
    dims = [draw(st.integers(1, 300)), *draw(st.lists(st.integers(1, 6), min_size=rank - 1, max_size=rank - 1))]
    strides, stride = [], -(-dims[0] * size // 16) * 16
    for dim in dims[1:]:
        strides.append(stride)
        stride *= dim
    steps = (draw(st.integers(1, 3)), *draw(st.lists(st.integers(1, 3), min_size=rank - 1, max_size=rank - 1)))
    first = draw(st.integers(-10, 20)) * (16 // size)
    rest = draw(st.lists(st.integers(-3, 7), min_size=rank - 1, max_size=rank - 1))
    tensor_map = TensorMap(kind, BASE, tuple(dims), tuple(strides), (inner, *outer), steps, swizzle=swizzle)
    return tensor_map, (first, *rest), 128 * draw(st.integers(0, 20))


def bytes_of(tensor_map: TensorMap) -> int:
    size = tensor_map.element_bytes
    return tensor_map.dims[-1] * (tensor_map.strides[-1] if tensor_map.strides else tensor_map.dims[0] * size)


@settings(deadline=None)
@given(boxes())
def test_a_load_puts_every_element_where_the_model_puts_it(case: tuple[TensorMap, tuple[int, ...], int]) -> None:
    tensor_map, coordinates, address = case
    memory = Memory(bytes_of(tensor_map) + 16)
    shared = np.full(200_000, 0xEE, dtype=np.uint8)
    expected = shared.copy()
    size = tensor_map.element_bytes
    written = 0
    for place, source in elements(tensor_map, coordinates):
        target = shared_address(address + place, tensor_map.swizzle)
        expected[target : target + size] = 0 if source is None else memory.data[source : source + size]
        written += size
    box = tile_box(tensor_map, coordinates)
    load_box(box, memory, shared, address)
    np.testing.assert_array_equal(shared, expected)
    assert box.bytes == written


@settings(deadline=None)
@given(boxes())
def test_a_store_writes_what_a_load_has_read_and_nothing_else(case: tuple[TensorMap, tuple[int, ...], int]) -> None:
    tensor_map, coordinates, address = case
    memory, result = Memory(bytes_of(tensor_map) + 16), Memory(bytes_of(tensor_map) + 16, seed=1)
    before = result.data.copy()
    shared = np.zeros(200_000, dtype=np.uint8)
    load_box(tile_box(tensor_map, coordinates), memory, shared, address)
    if min(coordinates) < 0:
        with pytest.raises(Fault, match="negative"):
            tile_box(tensor_map, coordinates, store=True)
        return
    store_box(tile_box(tensor_map, coordinates, store=True), result, shared, address)
    size = tensor_map.element_bytes
    for _, source in elements(tensor_map, coordinates):
        if source is not None:
            before[source : source + size] = memory.data[source : source + size]
    np.testing.assert_array_equal(result.data, before)


MEASURED = TensorMap(Type.U16, BASE, (256, 64), (512,), (32, 8), (1, 1))


@pytest.mark.parametrize("swizzle", [Swizzle.NONE, Swizzle.B64, Swizzle.B128])
@pytest.mark.parametrize(
    "coordinates",
    [
        *((248, 0), (0, 60), (248, 60), (-8, 0), (-8, -4), (256, 0), (0, 64), (-32, 0), (0, -8)),
        *((100_000, 100_000), (-(2**31), -(2**31)), (2147483640, 2**31 - 1)),
    ],
)
def test_a_clipped_load_signals_and_writes_the_full_box(coordinates: tuple[int, int], swizzle: Swizzle) -> None:
    memory = Memory(512 * 64)
    memory.data |= 1
    shared = np.full(4096, 0xEE, dtype=np.uint8)
    box = tile_box(replace(MEASURED, swizzle=swizzle), coordinates)
    load_box(box, memory, shared, 1024)
    assert box.bytes == 512
    inside = max(0, min(256, coordinates[0] + 32) - max(0, coordinates[0]))
    inside *= max(0, min(64, coordinates[1] + 8) - max(0, coordinates[1]))
    assert np.count_nonzero(shared != 0xEE) == 512 - np.count_nonzero(memory.data == 0xEE)
    assert np.count_nonzero((shared != 0xEE) & (shared != 0)) == 2 * inside


@pytest.mark.parametrize(
    ("kind", "rank", "first"),
    [
        *((Type.U8, 2, c) for c in (1, 8, 500, 24)),
        *((Type.U16, 2, c) for c in (1, 2, 4, 12, 250, -3, -4, 2**31 - 1)),
        *((Type.F32, 2, c) for c in (1, 2, -1)),
        *((Type.U16, 1, 4), (Type.U16, 3, 4)),
    ],
)
@pytest.mark.parametrize("store", [False, True])
def test_an_inner_coordinate_off_16_bytes_is_an_illegal_instruction(
    kind: Type, rank: int, first: int, store: bool
) -> None:
    tensor_map = TensorMap(kind, BASE, (512,) * rank, (2048,) * (rank - 1), (16,) * rank, (1,) * rank)
    with pytest.raises(Fault) as caught:
        tile_box(tensor_map, (first, *(0,) * (rank - 1)), store=store)
    assert caught.value.error == "cudaErrorIllegalInstruction"


def test_a_store_beyond_the_upper_bound_writes_what_is_inside_and_is_no_error() -> None:
    for coordinates, count in (((248, 60), 32), ((256, 0), 0), ((0, 64), 0)):
        memory = Memory(512 * 64)
        memory.data[:] = 0
        store_box(tile_box(MEASURED, coordinates, store=True), memory, np.full(4096, 7, dtype=np.uint8), 1024)
        assert np.count_nonzero(memory.data) == 2 * count


@pytest.mark.parametrize("coordinates", [(-8, 0), (0, -1), (-32, 0)])
def test_a_negative_store_coordinate_is_an_illegal_instruction(coordinates: tuple[int, int]) -> None:
    with pytest.raises(Fault) as caught:
        tile_box(MEASURED, coordinates, store=True)
    assert caught.value.error == "cudaErrorIllegalInstruction"


def test_a_narrow_box_leaves_gaps_as_measured() -> None:
    memory = Memory(512 * 64)
    shared = np.zeros(4096, dtype=np.uint8)
    box = tile_box(replace(MEASURED, box=(16, 16), swizzle=Swizzle.B128), (0, 0))
    for row in range(16):
        memory.data[512 * row : 512 * row + 16] = 2 * row + 1
        memory.data[512 * row + 16 : 512 * row + 32] = 2 * row + 2
    load_box(box, memory, shared, 1024)
    lines = shared[1024 : 1024 + 5 * 128].reshape(5, 8, 16)[:, :, 0]
    assert lines.tolist() == [
        [1, 2, 0, 0, 0, 0, 0, 0],
        [4, 3, 0, 0, 0, 0, 0, 0],
        [0, 0, 5, 6, 0, 0, 0, 0],
        [0, 0, 8, 7, 0, 0, 0, 0],
        [0, 0, 0, 0, 9, 10, 0, 0],
    ]
    assert box.bytes == 512
    assert box.shared_bytes == 15 * 128 + 32


@pytest.mark.parametrize("step", [1, 2, 3, 4, 8])
def test_element_strides_of_rows_skip_rows_and_bytes(step: int) -> None:
    memory = Memory(512 * 64)
    shared = np.zeros(4096, dtype=np.uint8)
    box = tile_box(replace(MEASURED, element_strides=(2, step)), (0, 0))
    load_box(box, memory, shared, 0)
    rows = memory.data.reshape(64, 512)[0:8:step, :64]
    assert box.bytes == 64 * -(-8 // step)
    np.testing.assert_array_equal(shared[: box.bytes].reshape(-1, 64), rows)


@pytest.mark.parametrize("stride", [0, 16])
def test_overlapping_rows_are_read_as_they_lie(stride: int) -> None:
    memory = Memory(4096)
    shared = np.zeros(4096, dtype=np.uint8)
    load_box(tile_box(replace(MEASURED, strides=(stride,)), (0, 0)), memory, shared, 0)
    for row in range(8):
        np.testing.assert_array_equal(shared[64 * row : 64 * row + 64], memory.data[stride * row : stride * row + 64])


@pytest.mark.parametrize("kind", [Type.F16, Type.BF16, Type.F32, Type.TF32, Type.F32_FTZ, Type.F64])
def test_a_nan_fill_writes_7ff7_everywhere_outside(kind: Type) -> None:
    shared = np.zeros(1024, dtype=np.uint8)
    tensor_map = TensorMap(kind, BASE, (64, 64), (512,), (16, 4), (1, 1), fill=1)
    box = tile_box(tensor_map, (0, 64))
    load_box(box, Memory(16), shared, 0)
    assert (shared[: box.bytes].view(np.uint16) == 0x7FF7).all()


# f32 bits in, bits after a load as TF32
ROUNDED = {
    **{0x3F801000: 0x3F800000, 0x3F803000: 0x3F804000, 0x3F801001: 0x3F802000, 0x7F7FFFFF: 0x7F800000},
    **{0x7F7FF000: 0x7F800000, 0x7FC00001: 0x7FFFE000, 0xFF800001: 0x7FFFE000, 0x00000001: 0, 0x00400000: 0x00400000},
    **{0x007FFFFF: 0x00800000, 0x00003000: 0x00004000, 0xFF800000: 0xFF800000, 0x80000001: 0x80000000},
}


@pytest.mark.parametrize("kind", [Type.F32, Type.F32_FTZ, Type.TF32, Type.TF32_FTZ])
def test_only_tf32_maps_change_what_they_load(kind: Type) -> None:
    memory, shared = Memory(64), np.zeros(1024, dtype=np.uint8)
    values = np.array([*ROUNDED, 0, 0, 0], dtype=np.uint32)
    memory.data[:] = values.view(np.uint8)
    load_box(tile_box(TensorMap(kind, BASE, (16,), (), (16,), (1,)), (0,)), memory, shared, 0)
    expected = [*ROUNDED.values(), 0, 0, 0] if kind in (Type.TF32, Type.TF32_FTZ) else values.tolist()
    assert shared[:64].view(np.uint32).tolist() == expected


@given(st.integers(0, 0xFFFF_FFFF))
def test_tf32_rounds_to_the_nearest_even(bits: int) -> None:
    value = np.uint32(bits).view(np.float32)
    result = int(to_tf32(np.array([bits], dtype=np.uint32))[0])
    if not np.isfinite(value):
        assert result == (bits if np.isinf(value) else 0x7FFFE000)
        return
    low, high = bits & ~0x1FFF, (bits & ~0x1FFF) + 0x2000
    distance = bits - low
    assert result == (low if distance < 0x1000 or (distance == 0x1000 and not low & 0x2000) else high)


@pytest.mark.parametrize("address", [16, 32, 64, 1040])
def test_a_shared_address_off_128_bytes_is_misaligned(address: int) -> None:
    for move in (load_box, store_box):
        with pytest.raises(Fault) as caught:
            move(tile_box(MEASURED, (0, 0)), Memory(512 * 64), np.zeros(4096, dtype=np.uint8), address)
        assert caught.value.error == "cudaErrorMisalignedAddress"


def test_a_box_beyond_shared_memory_or_beyond_the_allocation_is_an_illegal_address() -> None:
    for memory, address in ((Memory(512 * 64), 3712), (Memory(512), 0)):
        with pytest.raises(Fault) as caught:
            load_box(tile_box(MEASURED, (0, 0)), memory, np.zeros(4096, dtype=np.uint8), address)
        assert caught.value.error == "cudaErrorIllegalAddress"


def test_four_rows_are_gathered_and_scattered() -> None:
    tensor_map = replace(MEASURED, box=(64, 1), swizzle=Swizzle.B128)
    memory, shared = Memory(512 * 64), np.zeros(4096, dtype=np.uint8)
    box = gather_box(tensor_map, 8, (3, 70, 0, 9))
    load_box(box, memory, shared, 1024)
    rows = memory.data.reshape(64, 512)[:, 16:144]
    assert box.bytes == 512
    for place, row in enumerate((3, None, 0, 9)):
        for chunk in range(8):
            at = 1024 + 128 * place + 16 * (chunk ^ place)
            expected = np.zeros(16) if row is None else rows[row, 16 * chunk : 16 * chunk + 16]
            np.testing.assert_array_equal(shared[at : at + 16], expected)
    result = Memory(512 * 64)
    result.data[:] = 0
    store_box(gather_box(tensor_map, 8, (1, 2, 4, 99), store=True), result, shared, 1024)
    np.testing.assert_array_equal(result.data.reshape(64, 512)[[1, 4], 16:144], rows[[3, 0]])
    assert not result.data.reshape(64, 512)[2].any()


def test_an_im2col_load_is_the_matrix_of_a_convolution() -> None:
    images, height, width, channels = 2, 5, 6, 16
    data = np.random.default_rng(3).integers(1, 60000, (images, height, width, channels), dtype=np.uint16)
    memory = Memory(data.nbytes)
    memory.data[:] = data.view(np.uint8).ravel()
    padded = np.zeros((images, height + 2, width + 2, channels), dtype=np.uint16)
    padded[:, 1:-1, 1:-1] = data
    tensor_map = TensorMap(
        *(Type.U16, BASE, (channels, width, height, images)),
        *((2 * channels, 2 * channels * width, 2 * channels * width * height), (), (1, 1, 1, 1)),
        im2col=Im2col((-1, -1), (-1, -1), 8, images * height * width - 7),
    )
    for r, s, channel in ((0, 0, 0), (2, 1, 8), (1, 2, 16)):
        box = im2col_box(tensor_map, (channel, 0, 0, 0), (s, r))
        shared = np.full(8192, 0xEE, dtype=np.uint8)
        load_box(box, memory, shared, 0)
        start = 7  # pixels of the bounding box before (W 0, H 0)
        expected = padded[:, r : r + height, s : s + width].reshape(-1, channels)[start:, channel : channel + 8]
        got = shared[: box.bytes].view(np.uint16).reshape(-1, 8)
        np.testing.assert_array_equal(got, expected if channel < channels else np.zeros_like(got))


def test_an_im2col_load_steps_over_pixels_by_the_element_strides() -> None:
    data = np.arange(1, 1 + 5 * 7 * 8, dtype=np.uint16).reshape(1, 5, 7, 8)
    memory = Memory(data.nbytes)
    memory.data[:] = data.view(np.uint8).ravel()
    tensor_map = TensorMap(
        *(Type.U16, BASE, (8, 7, 5, 1), (16, 112, 560), (), (1, 2, 2, 1)), im2col=Im2col((0, 0), (-2, -2), 8, 6)
    )
    shared = np.zeros(1024, dtype=np.uint8)
    load_box(im2col_box(tensor_map, (0, 0, 0, 0), (1, 2)), memory, shared, 0)
    expected = data[0, 2:7:2, 1:6:2].reshape(-1, 8)
    np.testing.assert_array_equal(shared[:96].view(np.uint16).reshape(6, 8), expected)


def test_a_tile_copy_with_an_im2col_map_and_the_reverse_are_illegal() -> None:
    column = TensorMap(
        *(Type.U16, BASE, (8, 7, 5, 1), (16, 112, 560), (), (1, 1, 1, 1)), im2col=Im2col((0, 0), (0, 0), 8, 6)
    )
    with pytest.raises(Fault, match="other mode"):
        tile_box(column, (0, 0, 0, 0))
    with pytest.raises(Fault, match="other mode"):
        im2col_box(MEASURED, (0, 0), ())
    with pytest.raises(Fault, match="3 coordinates"):
        tile_box(MEASURED, (0, 0, 0))


def test_an_interleaved_map_counts_pixels_of_whole_slices_of_channels() -> None:
    """Dimension 0 steps over slices of 16 bytes side by side, dimension 1 counts slices; a box holds one of them."""
    memory = Memory(1024 * 5)
    tensor_map = TensorMap(Type.U16, BASE, (32, 6, 5), (128, 1024), (8, 12, 3), (1, 1, 1), interleave=1)
    shared = np.full(4096, 0xEE, dtype=np.uint8)
    box = tile_box(tensor_map, (1, 4, 2))
    load_box(box, memory, shared, 0)
    assert box.bytes == 8 * 16 * 3
    for place in range(box.bytes // 16):
        pixel, image = place % 8, place // 8
        source = 16 * (1 + pixel) + 128 * 4 + 1024 * (2 + image)
        np.testing.assert_array_equal(shared[16 * place : 16 * place + 16], memory.data[source : source + 16])
    with pytest.raises(Unsupported):
        tile_box(replace(tensor_map, element_strides=(1, 1, 2)), (0, 0, 0))


def test_a_reduction_adds_the_box_inside_the_tensor() -> None:
    tensor_map = TensorMap(Type.F32, BASE, (60, 20), (240,), (16, 8), (1, 1), swizzle=Swizzle.B64)
    memory, shared = Memory(240 * 20), np.zeros(4096, dtype=np.uint8)
    old = np.random.default_rng(1).standard_normal((20, 60), dtype=np.float32)
    new = np.random.default_rng(2).standard_normal((8, 16), dtype=np.float32)
    source = Memory(512)
    source.data[:] = new.view(np.uint8).ravel()
    image = replace(tensor_map, dims=(16, 8), strides=(64,))
    load_box(tile_box(image, (0, 0)), source, shared, 512)
    memory.data[:] = old.view(np.uint8).ravel()
    reduce_box(tile_box(tensor_map, (48, 15), store=True), memory, shared, 512, "add")
    old[15:20, 48:60] += new[:5, :12]
    np.testing.assert_array_equal(memory.data.view(np.float32).reshape(20, 60), old)


def test_a_reduction_into_rows_that_share_bytes_counts_each_row() -> None:
    tensor_map = TensorMap(Type.U32, BASE, (4, 8), (0,), (4, 8), (1, 1))
    memory, shared = Memory(16), np.zeros(1024, dtype=np.uint8)
    memory.data[:] = 0
    shared[:128] = np.arange(32, dtype=np.uint32).view(np.uint8)
    reduce_box(tile_box(tensor_map, (0, 0), store=True), memory, shared, 0, "add")
    assert memory.data.view(np.uint32).tolist() == np.arange(32).reshape(8, 4).sum(axis=0).tolist()


def test_a_reduction_that_a_type_does_not_have_is_illegal_even_outside_the_tensor() -> None:
    for coordinates in ((0, 0), (256, 0)):
        with pytest.raises(Fault, match="no add of type none"):
            reduce_box(tile_box(MEASURED, coordinates), Memory(512 * 64), np.zeros(1024, dtype=np.uint8), 0, "add")


def test_a_box_of_a_gemm_costs_microseconds() -> None:
    memory, shared = Memory(4096 * 512), np.zeros(1 << 17, dtype=np.uint8)
    tensor_map = TensorMap(Type.BF16, BASE, (2048, 512), (4096,), (64, 128), (1, 1), swizzle=Swizzle.B128)

    def load() -> None:
        load_box(tile_box(tensor_map, (64, 128)), memory, shared, 1024)

    assert min(repeat(load, number=50, repeat=10)) / 50 < 250e-6  # 25 on a quiet machine
