"""Tensor maps: which arguments the driver takes, the record, and its change by a kernel."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.emulator.async_.encode import Refused, encode
from ptxbench.emulator.async_.tensormap import (
    Im2col,
    Swizzle,
    TensorMap,
    Type,
    from_bytes,
    is_record,
    replace_field,
    to_bytes,
)
from ptxbench.emulator.errors import Fault

GOOD = TensorMap(Type.BF16, 0x7000_0000_0000, (5120, 4096), (10240,), (64, 128), (1, 1), swizzle=Swizzle.B128)
WIDE = replace(GOOD, type=Type.U16, dims=(256, 64), strides=(512,), box=(8, 16))
COLUMN = TensorMap(
    *(Type.F16, 0x1000, (64, 14, 14, 8), (128, 1792, 25088), (), (1, 1, 1, 1)),
    swizzle=Swizzle.B128,
    im2col=Im2col((-1, -1), (-1, -1), 64, 128),
)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"strides": (0,)},
        {"strides": (16,)},
        {"box": (64, 256)},
        {"dims": (1, 1)},
        {"dims": (1 << 32, 1)},
        {"element_strides": (8, 8)},
        {"box": (8, 16)},
        {"box": (256, 256), "swizzle": 0},
        {"dims": (128,), "strides": (), "box": (64,), "element_strides": (1,)},
    ],
)
def test_the_driver_takes_a_map_and_its_record_gives_the_arguments_back(change: dict[str, object]) -> None:
    arguments = replace(GOOD, **change)  # type: ignore[arg-type]
    record = encode(arguments)
    assert isinstance(record, bytes)
    assert len(record) == 128
    assert from_bytes(record) == arguments


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"box": (4, 16)}, "8 bytes, which is not a multiple of 16"),
        ({"box": (12, 16)}, "24 bytes, which is not a multiple of 16"),
        ({"box": (72, 16)}, "144 bytes, more than the swizzle's 128"),
        ({"box": (64, 257)}, "boxDim[1] 257"),
        ({"box": (64, 0)}, "boxDim[1] 0"),
        ({"element_strides": (1, 9)}, "elementStrides[1] 9"),
        ({"element_strides": (0, 1)}, "elementStrides[0] 0"),
        ({"strides": (24,)}, "globalStrides[0] 24"),
        ({"strides": (1 << 40,)}, "globalStrides[0]"),
        ({"address": 0x1008}, "globalAddress 0x1008"),
        ({"dims": (0, 4096)}, "globalDim[0] 0"),
        ({"dims": (5120, (1 << 32) + 1)}, "globalDim[1]"),
        ({"interleave": 1}, "tensorRank 2"),
        ({"type": Type.U16, "fill": 1}, "NaN fill"),
        ({"type": 16}, "tensorDataType 16"),
        ({"swizzle": 7}, "swizzle 7"),
        ({"fill": 2}, "oobFill 2"),
        ({"l2": 4}, "l2Promotion 4"),
        ({"dims": (), "strides": (), "box": (), "element_strides": ()}, "tensorRank 0"),
    ],
)
def test_the_driver_refuses_a_map_and_the_reason_names_the_rule(change: dict[str, object], reason: str) -> None:
    answer = encode(replace(GOOD, **change))  # type: ignore[arg-type]
    assert isinstance(answer, Refused)
    assert answer.code == 1
    assert reason in answer.reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({}, ""),
        ({"im2col": Im2col((-128, -1), (127, -1), 64, 1024)}, ""),
        ({"im2col": Im2col((-129, -1), (-1, -1), 64, 128)}, "pixelBoxLowerCorner -129"),
        ({"im2col": Im2col((-1, -1), (-1, 128), 64, 128)}, "pixelBoxUpperCorner 128"),
        ({"im2col": Im2col((-1, -1), (-1, -1), 257, 128)}, "channelsPerPixel 257"),
        ({"im2col": Im2col((-1, -1), (-1, -1), 64, 1025)}, "pixelsPerColumn 1025"),
        ({"im2col": Im2col((-1, -1), (-1, -1), 72, 128)}, "144 bytes"),
        ({"dims": (64, 14), "strides": (128,), "im2col": Im2col((), (), 64, 1)}, "tensorRank 2"),
    ],
)
def test_im2col_arguments_are_taken_or_refused(change: dict[str, object], reason: str) -> None:
    arguments = replace(COLUMN, **change)  # type: ignore[arg-type]
    answer = encode(arguments)
    if reason:
        assert isinstance(answer, Refused)
        assert reason in answer.reason
    else:
        assert isinstance(answer, bytes)
        assert from_bytes(answer) == arguments


@pytest.mark.parametrize("record", [b"", bytes(128), b"ptxb.map".ljust(128, b"\xff"), to_bytes(GOOD)[:127]])
def test_other_bytes_are_no_tensor_map(record: bytes) -> None:
    assert not is_record(record)
    with pytest.raises(Fault, match="no tensor map"):
        from_bytes(record)


@pytest.mark.parametrize(
    ("field", "ordinal", "value", "changed"),
    [
        ("global_address", 0, 0x9000, {"address": 0x9000}),
        ("box_dim", 1, 32, {"box": (64, 32)}),
        ("global_dim", 0, 77, {"dims": (77, 4096)}),
        ("global_stride", 0, 160, {"strides": (160,)}),
        ("element_stride", 1, 2, {"element_strides": (1, 2)}),
        ("elemtype", 0, 8, {"type": Type.F32_FTZ}),
        ("elemtype", 0, 9, {"type": Type.F64}),
        ("elemtype", 0, 10, {"type": Type.BF16}),
        ("swizzle_mode", 0, 2, {"swizzle": Swizzle.B64}),
        ("swizzle_atomicity", 0, 1, {"swizzle": Swizzle.B128_ATOM32}),
        ("interleave_layout", 0, 1, {"interleave": 1}),
        ("fill_mode", 0, 1, {"fill": 1}),
        (
            *("rank", 0, 2),
            {"dims": (5120, 4096, 1), "strides": (10240, 0), "box": (64, 128, 1), "element_strides": (1, 1, 1)},
        ),
        ("rank", 0, 0, {"dims": (5120,), "strides": (), "box": (64,), "element_strides": (1,)}),
    ],
)
def test_a_kernel_replaces_one_field(field: str, ordinal: int, value: int, changed: dict[str, object]) -> None:
    record = replace_field(to_bytes(GOOD), field, value, ordinal)
    assert from_bytes(record) == replace(GOOD, **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(("field", "ordinal", "value"), [("box_dim", 2, 1), ("elemtype", 0, 16), ("rank", 0, 5)])
def test_a_field_that_does_not_exist_cannot_be_replaced(field: str, ordinal: int, value: int) -> None:
    with pytest.raises(Fault, match=r"tensormap\.replace"):
        replace_field(to_bytes(GOOD), field, value, ordinal)


@given(st.integers(0, 255), st.integers(0, 127))
def test_damaged_records_are_refused_or_read_without_a_crash(value: int, position: int) -> None:
    record = bytearray(to_bytes(COLUMN))
    record[position] = value
    if is_record(bytes(record)):
        assert to_bytes(from_bytes(bytes(record)))[:8] == record[:8]
    else:
        with pytest.raises(Fault):
            from_bytes(bytes(record))
