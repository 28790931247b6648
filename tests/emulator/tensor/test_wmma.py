"""wmma from memory to memory, and mma.m8n8k4 from the lanes that the ISA draws, against products in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from ptxbench.emulator.errors import Unsupported
from ptxbench.emulator.ptx.ir import Instruction
from ptxbench.emulator.tensor.fragments import unpack
from ptxbench.emulator.tensor.mma import Mma
from ptxbench.emulator.tensor.quad_pairs import QuadPairMma
from ptxbench.emulator.tensor.warp_products import warp_product
from ptxbench.emulator.tensor.wmma import Wmma, WmmaMove

Read = Callable[..., Instruction]
TYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32}
TYPES |= {"f64": np.float64, "s8": np.int8, "u8": np.uint8, "s32": np.int32}
CASES = [
    # shape, A and B, C and D, registers of A, B, C
    ("m16n16k16", "f16", "f32", 8, 8, 8),
    ("m8n32k16", "f16", "f16", 8, 8, 4),
    ("m32n8k16", "bf16", "f32", 8, 2, 8),
    ("m16n16k8", "tf32", "f32", 4, 4, 8),
    ("m8n8k4", "f64", "f64", 1, 1, 2),
    ("m8n32k16", "u8", "s32", 1, 4, 8),
    ("m16n16k16", "s8", "s32", 2, 2, 8),
]


def _list(first: int, count: int, letter: str) -> str:
    return "{" + ", ".join(f"%{letter}{first + i}" for i in range(count)) + "}"


def _move(read: Read, what: str, layout: str, shape: str, type_: str, registers: int) -> WmmaMove:
    vector = _list(1, registers, "d" if type_ == "f64" else "r")
    operands = f"{vector}, [%d9], %r200" if what.startswith("load") else f"[%d9], {vector}, %r200"
    return WmmaMove.parse(read(f"wmma.{what}.sync.aligned.{layout}.{shape}.global.{type_} {operands};"))


def _read_elements(move: WmmaMove, memory: NDArray[Any], stride: int) -> Any:
    """What one warp loads from memory that starts with the matrix."""
    bytes_ = memory.view(np.uint8).ravel()
    width = move.element_bytes
    rows = np.stack([bytes_[at : at + width] for at in move.offsets(stride)])
    return np.ascontiguousarray(rows).view(f"uint{8 * width}").reshape(1, -1)


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize(("shape", "factor", "result", "in_a", "in_b", "in_c"), CASES)
def test_a_product_goes_from_memory_to_memory(  # noqa: PLR0917
    shape: str, factor: str, result: str, in_a: int, in_b: int, in_c: int, layout: str, mode: str, instruction: Read
) -> None:
    m, n, k = (int(each) for each in shape[1:].replace("n", " ").replace("k", " ").split())
    rng = np.random.default_rng(1)
    left, right, old = (rng.integers(-3, 4, size) for size in ((m, k), (k, n), (m, n)))
    if factor == "u8":
        left, right = abs(left), abs(right)
    pad = 4

    def stored(values: NDArray[Any], type_: str) -> tuple[NDArray[Any], int]:
        """The matrix in this layout, rows (or columns) `pad` elements apart."""
        lines = values if layout == "row" else values.T
        memory = np.zeros((lines.shape[0], lines.shape[1] + pad), TYPES[type_])
        memory[:, :-pad] = lines.astype(TYPES[type_])
        return memory, memory.shape[1]

    registers = []
    for what, values, type_, count in (
        ("load.a", left, factor, in_a),
        ("load.b", right, factor, in_b),
        ("load.c", old, result, in_c),
    ):
        move = _move(instruction, what, layout, shape, type_, count)
        memory, stride = stored(values, type_)
        made = move.load(_read_elements(move, memory, stride))
        assert made.shape == (count, 32)
        registers.append(list(made))
    names = f"{result}.{result}" if factor == "f16" else f"{result}.{factor}.{factor}.{result}"
    letter = "d" if factor == "f64" else "r"
    text = f"wmma.mma.sync.aligned.{layout}.{layout}.{shape}.{names} " + ", ".join(
        _list(16 * i, count, letter) if letter == "r" else _list(4 * i, count, letter)
        for i, count in enumerate((in_c, in_a, in_b, in_c))
    )
    form = Wmma.parse(instruction(text + ";"))
    made = form.multiply(registers[0], registers[1], registers[2], mode)
    assert made.shape == (form.d_registers, 32)
    back = _move(instruction, "store.d", layout, shape, result, in_c)
    memory, stride = stored(np.zeros((m, n)), result)
    bytes_ = memory.view(np.uint8).reshape(-1)
    for at, element in zip(back.offsets(stride), back.store(list(made))[0], strict=True):
        bytes_[at : at + back.element_bytes] = np.frombuffer(element.tobytes(), np.uint8)
    lines = memory[:, :-pad].astype(np.float64)
    assert ((lines if layout == "row" else lines.T) == left @ right + old).all()


def test_elements_below_a_byte_go_as_words(instruction: Read) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 2**32, (8, 4), np.uint32), rng.integers(0, 2**32, (8, 4), np.uint32)
    moves = [
        _move(instruction, "load.a", "row", "m8n8k32", "s4", 1),
        _move(instruction, "load.b", "col", "m8n8k32", "s4", 1),
    ]
    registers = [move.load(_read_elements(move, each, 32)) for move, each in zip(moves, (a, b), strict=True)]
    text = "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {%r1, %r2}, {%r3}, {%r4}, {%r5, %r6};"
    form = Wmma.parse(instruction(text))
    made = form.multiply(registers[0], registers[1], np.zeros((2, 32), np.uint32))
    values = [(unpack(each, 4).astype(int) ^ 8) - 8 for each in (a, b)]
    stored = _move(instruction, "store.d", "row", "m8n8k32", "s32", 2).store(made)[0].view(np.int32)
    assert (stored.reshape(8, 8) == values[0] @ values[1].T).all()


def test_bits_are_combined_by_the_named_function(instruction: Read) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 2**32, (1, 32), np.uint32), rng.integers(0, 2**32, (1, 32), np.uint32)
    for name, combine in (("xor", np.bitwise_xor), ("and", np.bitwise_and)):
        text = (
            f"wmma.mma.{name}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32 {{%r1,%r2}},{{%r3}},{{%r4}},{{%r5,%r6}};"
        )
        made = Wmma.parse(instruction(text)).multiply(a, b, np.zeros((2, 32), np.uint32))
        rows = combine(a.reshape(8, 1, 4), b.reshape(1, 8, 4))
        assert (made.reshape(8, 8) == np.bitwise_count(rows).sum(axis=2)).all()


def test_satfinite_leaves_numbers_only(instruction: Read) -> None:
    lists = ", ".join(_list(20 * i, count, "r") for i, count in enumerate((4, 8, 8, 4)))
    form = Wmma.parse(instruction(f"wmma.mma.sync.aligned.row.row.m16n16k16.f16.f16.satfinite {lists};"))
    big, c = np.full((8, 32), 0x7BFF7BFF, np.uint32), np.zeros((4, 32), np.uint32)
    assert (form.multiply(big, big, c) == 0x7BFF7BFF).all()
    assert (form.multiply(big, big ^ np.uint32(0x80008000), c) == 0xFBFFFBFF).all()
    assert (form.multiply(np.full((8, 32), 0x7E007E00, np.uint32), big, c) == 0).all()


def test_another_instruction_is_unsupported(instruction: Read) -> None:
    for parse in (Wmma.parse, WmmaMove.parse, QuadPairMma.parse, warp_product):
        with pytest.raises(Unsupported):
            parse(instruction("add.u32 %r1, %r2, %r3;"))


def test_every_product_of_a_warp_is_found_in_one_way(instruction: Read) -> None:
    four = "{%r1, %r2, %r3, %r4}"
    forms = {
        f"mma.sync.aligned.m8n8k4.row.col.f16.f16.f16.f16 {four}, {{%r5, %r6}}, {{%r7, %r8}}, {four};": QuadPairMma,
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d1, %d2}, {%d3}, {%d4}, {%d1, %d2};": Mma,
        "wmma.mma.sync.aligned.row.col.m8n8k32.s32.u4.u4.s32 {%r1, %r2}, {%r3}, {%r4}, {%r5, %r6};": Wmma,
    }
    for text, form in forms.items():
        assert isinstance(warp_product(instruction(text)), form)


@pytest.mark.parametrize("mode", ["fast", "exact"])
@pytest.mark.parametrize("types", ["f16.f16.f16.f16", "f32.f16.f16.f16", "f32.f16.f16.f32"])
@pytest.mark.parametrize("b_layout", ["row", "col"])
@pytest.mark.parametrize("a_layout", ["row", "col"])
def test_two_quads_of_lanes_make_each_of_four_products(
    a_layout: str, b_layout: str, types: str, mode: str, instruction: Read
) -> None:
    counts = [8 if each == "f32" else 4 for each in (types[:3], types[-3:])]
    lists = ", ".join(_list(10 * i, count, "r") for i, count in enumerate((counts[0], 2, 2, counts[1])))
    form = QuadPairMma.parse(instruction(f"mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{types} {lists};"))
    rng = np.random.default_rng(4)
    a, b = (rng.integers(-8, 9, (2, 2, 32)).astype(np.float16) for _ in range(2))
    c_type = np.float32 if types.endswith("f32") else np.float16
    c = rng.integers(-8, 9, (counts[1], 32) if c_type is np.float32 else (counts[1], 2, 32)).astype(c_type)

    def words(values: NDArray[Any]) -> NDArray[np.uint32]:
        if values.ndim == 2:
            return values.view(np.uint32)
        return np.ascontiguousarray(values.swapaxes(1, 2)).view(np.uint32)[..., 0]

    made = form.multiply(list(words(a)), list(words(b)), list(words(c)), mode)
    for quad in range(4):
        left, right, total = np.zeros((8, 4)), np.zeros((4, 8)), np.zeros((8, 8))
        lanes = [*range(4 * quad, 4 * quad + 4), *range(4 * quad + 16, 4 * quad + 20)]
        for lane in lanes:
            up = 4 * (lane >= 16)
            for i in range(4):
                row, column = (lane % 4 + up, i) if a_layout == "row" else (i + up, lane % 4)
                left[row, column] = a[i // 2, i % 2, lane]
                row, column = (lane % 4, i + up) if b_layout == "row" else (i, lane % 4 + up)
                right[row, column] = b[i // 2, i % 2, lane]
            for place, value in _accumulated(c, lane):
                total[place] = value
        expected = left @ right + total
        result = made.view(np.float32) if types.startswith("f32") else _halves(made)
        for lane in lanes:
            for place, value in _accumulated(result, lane):
                assert value == expected[place]


def _halves(words: NDArray[np.uint32]) -> NDArray[np.float16]:
    return np.ascontiguousarray(words[..., None].view(np.float16).swapaxes(1, 2))


def _accumulated(values: NDArray[Any], lane: int) -> list[tuple[tuple[int, int], float]]:
    """(row, column) and value of what a lane holds of C or D."""
    up = 4 * (lane >= 16)
    if values.ndim == 3:
        return [((lane % 4 + up, i), float(values[i // 2, i % 2, lane])) for i in range(8)]
    return [(((lane & 1) + (i & 2) + up, (i & 4) + (lane & 2) + (i & 1)), float(values[i, lane])) for i in range(8)]
