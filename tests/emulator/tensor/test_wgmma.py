"""wgmma from shared memory and registers to accumulators, against matrix products in float64 and Python integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor.descriptor import Descriptor
from ptxbench.emulator.tensor.formats import FORMATS, Bits
from ptxbench.emulator.tensor.fragments import wgmma_a, wgmma_d
from ptxbench.emulator.tensor.wgmma import Wgmma

TYPES: dict[str, Any] = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}


def _form(a: str, b: str, d: str, n: int = 32, **options: Any) -> Wgmma:
    k = {32: 8, 16: 16, 8: 32, 1: 256}[FORMATS[a].bits]
    return Wgmma(n, k, (FORMATS[a], FORMATS[b]), FORMATS[d], options.pop("a_in_registers", False), **options)


def _values(name: str, shape: tuple[int, int], seed: int) -> tuple[Bits, NDArray[np.float64]]:
    """Element bits and their values."""
    drawn = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    if name == "tf32":
        bits = drawn.view(np.uint32) & np.uint32(0xFFFFE000)
        return bits, bits.view(np.float32).astype(np.float64)
    typed = drawn.astype(TYPES[name])
    return typed.view(f"uint{FORMATS[name].bits}"), typed.astype(np.float64)


def _accumulator(values: NDArray[Any], n: int) -> Bits:
    bits = values.view(f"uint{values.dtype.itemsize * 8}")
    return wgmma_d(n, values.dtype.itemsize * 8).spread(bits[None]).astype(np.uint32)


def _result(registers: Bits, n: int, dtype: Any) -> NDArray[np.float64]:
    return wgmma_d(n, np.dtype(dtype).itemsize * 8).matrix(registers)[0].view(dtype).astype(np.float64)


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize(
    ("a", "b", "d"),
    [
        ("bf16", "bf16", "f32"),
        ("f16", "f16", "f32"),
        ("tf32", "tf32", "f32"),
        ("e4m3", "e5m2", "f32"),
        ("e5m2", "e4m3", "f32"),
        ("f16", "f16", "f16"),
        ("e4m3", "e4m3", "f16"),
    ],
)
def test_floating_products_are_near_the_exact_ones(a: str, b: str, d: str, mode: str) -> None:
    form = _form(a, b, d)
    a_bits, left = _values(a, (64, form.k), 1)
    b_bits, right = _values(b, (form.n, form.k), 2)
    dtype = {"f32": np.float32, "f16": np.float16}[d]
    c = np.random.default_rng(3).normal(size=(64, form.n)).astype(dtype)
    made = form.multiply(a_bits, b_bits, list(_accumulator(c, form.n)), mode)
    assert made.shape == (form.d_registers, 128)
    tolerance = 2.0**-10 if d == "f16" or (mode == "exact" and FORMATS[a].bits == 8) else 2.0**-20
    scale = np.abs(left) @ np.abs(right).T + np.abs(c)
    assert (np.abs(_result(made, form.n, dtype) - (left @ right.T + c)) <= tolerance * scale).all()


def test_without_scale_d_the_old_accumulator_is_not_read() -> None:
    form = _form("bf16", "bf16", "f32")
    a_bits, left = _values("bf16", (64, 16), 1)
    b_bits, right = _values("bf16", (32, 16), 2)
    nan = np.full((form.d_registers, 128), 0x7FC00000, np.uint32)
    for mode in ("fast", "exact"):
        assert np.allclose(_result(form.multiply(a_bits, b_bits, None, mode), 32, np.float32), left @ right.T)
        assert (form.multiply(a_bits, b_bits, nan, mode) == 0x7FFFFFFF).all()


def test_negation_changes_the_sign_of_an_operand() -> None:
    a_bits, left = _values("f16", (64, 16), 1)
    b_bits, right = _values("f16", (32, 16), 2)
    for negated, sign in (((True, False), -1), ((False, True), -1), ((True, True), 1)):
        made = _form("f16", "f16", "f32", negated=negated).multiply(a_bits, b_bits, None, "exact")
        assert np.allclose(_result(made, 32, np.float32), sign * (left @ right.T), atol=1e-5)


def _tile(bits: Bits, addresses: Callable[[int, int], int], size: int = 1 << 16) -> NDArray[np.uint8]:
    """Shared memory with the elements [mn, k] at these byte addresses."""
    memory = np.zeros(size, np.uint8)
    for (mn, k), value in np.ndenumerate(bits):
        at = addresses(mn, k)
        memory[at : at + bits.itemsize] = np.frombuffer(value.tobytes(), np.uint8)
    return memory


def _chunks(memory: NDArray[np.uint8], addresses: NDArray[np.int64]) -> NDArray[np.uint8]:
    return memory.reshape(-1, 16)[addresses >> 4]


@pytest.mark.parametrize(("name", "step"), [("bf16", 0), ("bf16", 3), ("e4m3", 2), ("tf32", 1)])
def test_a_tile_of_a_tensor_copy_is_read_k_major(name: str, step: int) -> None:
    """64 or 32 rows of 128 bytes under the 128-byte swizzle, entered at a step of 32 bytes along K."""
    form = _form(name, name, "f32")
    size = FORMATS[name].bits // 8
    for rows, matrix, addresses in ((64, form.a_matrix, form.a_addresses), (32, form.b_matrix, form.b_addresses)):
        whole, _ = _values(name, (rows, 128 // size), 5)
        memory = _tile(whole, lambda r, k: 2048 + 128 * r + ((k * size) ^ (r % 8 * 16)))
        descriptor = Descriptor(2048 + 32 * step, 16, 1024, 0, 128)
        first = step * form.k
        assert (matrix(_chunks(memory, addresses(descriptor))) == whole[:, first : first + form.k]).all()


def test_a_tile_of_a_tensor_copy_is_read_mn_major() -> None:
    """[K rows, 64 wide] boxes under the 128-byte swizzle; two boxes side by side make 128 along N."""
    form = _form("bf16", "bf16", "f32", n=128, transposed=(True, True))
    for rows, matrix, addresses in ((128, form.b_matrix, form.b_addresses), (64, form.a_matrix, form.a_addresses)):
        whole, _ = _values("bf16", (rows, 16), 6)
        memory = _tile(whole, lambda mn, k: mn // 64 * 8192 + 128 * k + (mn % 64 * 2 ^ k % 8 * 16))
        assert (matrix(_chunks(memory, addresses(Descriptor(0, 8192, 1024, 0, 128)))) == whole).all()


def test_a_narrow_mn_major_operand_takes_one_chunk() -> None:
    form = _form("f16", "f16", "f32", n=8, transposed=(False, True))
    whole, _ = _values("f16", (8, 16), 7)
    memory = _tile(whole, lambda mn, k: 256 + mn * 2 + k * 16)
    assert (form.b_matrix(_chunks(memory, form.b_addresses(Descriptor(256, 128, 0, 0, 0)))) == whole).all()


@pytest.mark.parametrize("name", ["bf16", "tf32", "e4m3"])
def test_a_may_come_from_registers(name: str) -> None:
    form = _form(name, name, "f32", a_in_registers=True)
    bits, _ = _values(name, (64, form.k), 8)
    registers = wgmma_a(FORMATS[name].bits).spread(bits[None])
    assert registers.shape == (4, 128)
    assert (form.a_from_registers(list(registers)) == bits).all()


@pytest.mark.parametrize(("a", "b"), [("s8", "s8"), ("u8", "s8"), ("s8", "u8"), ("u8", "u8")])
def test_integer_products_are_exact(a: str, b: str) -> None:
    rng = np.random.default_rng(9)
    a_bits, b_bits = rng.integers(0, 256, (64, 32), np.uint8), rng.integers(0, 256, (32, 32), np.uint8)
    c = rng.integers(-(2**20), 2**20, (64, 32), np.int32)
    left, right = (
        bits.view(np.int8 if name == "s8" else np.uint8).astype(int) for bits, name in ((a_bits, a), (b_bits, b))
    )
    made = _form(a, b, "s32").multiply(a_bits, b_bits, _accumulator(c, 32))
    assert (_result(made, 32, np.int32) == left @ right.T + c).all()


def test_integer_sums_wrap_or_clamp_as_the_device_does() -> None:
    """C near the edge plus 32 products: bits that an H200 gave."""
    for c, factor, wrapped, clamped in (
        (0x7FFFFF00, 127, 0x8007DF20, 0x7FFFFFFF),
        (0x80000100, 0x80, 0x7FF81100, 0x80000000),
    ):
        a_bits, b_bits = np.full((64, 32), 127, np.uint8), np.full((32, 32), factor, np.uint8)
        old = np.full((16, 128), c, np.uint32)
        assert (_form("s8", "s8", "s32").multiply(a_bits, b_bits, old) == wrapped).all()
        assert (_form("s8", "s8", "s32", satfinite=True).multiply(a_bits, b_bits, old) == clamped).all()


def test_single_bits_are_counted() -> None:
    form = _form("b1", "b1", "s32", n=8, a_in_registers=True)
    rng = np.random.default_rng(10)
    registers = rng.integers(0, 2**32, (4, 128), np.uint32)
    a_bits = form.a_from_registers(registers)
    assert a_bits.shape == (64, 256)
    memory = rng.integers(0, 256, 4096, np.uint8)
    b_bits = form.b_matrix(_chunks(memory, form.b_addresses(Descriptor(0, 128, 256, 0, 0))))
    assert (b_bits[1, :128] == np.unpackbits(memory[16:32], bitorder="little")).all()
    made = _result(form.multiply(a_bits, b_bits, None), 8, np.int32)
    assert (made == (a_bits[:, None, :] & b_bits[None, :, :]).sum(axis=2)).all()


def _list(first: int, count: int) -> str:
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def test_the_static_form_is_read_from_the_instruction(instruction: Callable[..., Instruction]) -> None:
    bf16, s8 = FORMATS["bf16"], FORMATS["s8"]
    ss = instruction(f"wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {_list(1, 8)}, %d1, %d2, %p1, 1, -1, 0, 1;")
    assert Wgmma.parse(ss) == Wgmma(16, 16, (bf16, bf16), FORMATS["f32"], False, (False, True), (False, True))
    rs = instruction(
        f"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {_list(1, 4)}, {_list(10, 4)}, %d2, %p1, -1, 1, 1;"
    )
    assert Wgmma.parse(rs) == Wgmma(8, 16, (bf16, bf16), FORMATS["f32"], True, (True, False), (False, True))
    s32 = instruction(f"wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8.satfinite {_list(1, 4)}, %d1, %d2, %p1;")
    assert Wgmma.parse(s32) == Wgmma(8, 32, (s8, s8), FORMATS["s32"], False, satfinite=True)
    assert Wgmma.parse(s32).d_registers == 4
    with pytest.raises(Unsupported):
        Wgmma.parse(instruction("add.u32 %r1, %r2, %r3;"))
