"""Names of inlined functions, from the bytes that line information has."""

from __future__ import annotations

import pytest

from ptxbench.emulator.ptx.ir import Location
from ptxbench.emulator.ptx.names import inlined_name
from ptxbench.emulator.ptx.parse import parse
from ptxbench.emulator.report import Place


def as_bytes(name: str) -> str:
    return "".join(
        f".b8 {','.join(str(value) for value in name[at : at + 7].encode())}\n" for at in range(0, len(name), 7)
    )


@pytest.mark.parametrize(
    ("mangled", "name"),
    [
        ("_Z9fibonaccii", "fibonacci"),
        ("_ZN12_GLOBAL__N_18tma_loadEj", "tma_load"),
        ("_ZNK12_GLOBAL__N_14Ring5emptyEi", "empty"),
        ("_ZN2cg4syncILi3EEEvv", "sync"),
        ("plain_c", "plain_c"),
        ("_ZN999999999aE", "aE"),
        ("_Z", ""),
        ("not a name", ""),
        ("", ""),
    ],
)
def test_the_last_part_of_a_mangled_name_is_the_functions(mangled: str, name: str) -> None:
    assert inlined_name(as_bytes(mangled + "\0")) == name


def test_a_location_knows_the_function_that_is_inlined() -> None:
    text = f"""
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k() {{
.reg .b32 r;
.loc 1 20 3
.loc 1 33 5, function_name $L__info_string0, inlined_at 1 20 3
mov.u32 r, 1;
ret;
}}
.file 1 "a/helpers.cuh"
.section .debug_str
{{
$L__info_string0:
{as_bytes("_Z8tma_loadj" + chr(0))}
}}
"""
    (block,) = parse(text).functions["k"].blocks
    location = block.instructions[0].location
    assert location == Location("a/helpers.cuh", 33, Location("a/helpers.cuh", 20), "tma_load")


OWN = Location("src/gemm.cu", 120, Location("src/gemm.cu", 300), "produce")


@pytest.mark.parametrize(
    ("location", "said"),
    [
        (Location("src/gemm.cu", 7), "gemm.cu:7"),
        (OWN, "gemm.cu:300 (inlined in produce at gemm.cu:120)"),
        (Location("helpers.cuh", 33, OWN, "tma_load"), "gemm.cu:120 (inlined in tma_load at helpers.cuh:33)"),
        (
            Location("helpers.cuh", 9, Location("helpers.cuh", 33, OWN, "tma_load"), "copy"),
            "gemm.cu:120 (inlined in tma_load at helpers.cuh:33, copy at helpers.cuh:9)",
        ),
        (Location("gemm.cu", 9, Location("gemm.cu", 33)), "gemm.cu:33 (inlined in a function at gemm.cu:9)"),
    ],
)
def test_a_place_names_the_users_line_and_what_is_inlined_there(location: Location, said: str) -> None:
    assert str(Place.of(location)) == said
