"""mov between registers and vectors, and the address forms that only change bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Execute = Callable[..., Any]


def test_registers_are_packed_lowest_first(execute: Execute) -> None:
    assert execute("mov.b32 %r1, {%h1, %h2};", [0x1111], [0x2222]) == [0x22221111]
    assert execute("mov.b64 {%r1, %r2}, %d1;", [0x1122334455667788]) == [[0x55667788], [0x11223344]]
    assert execute("mov.b64 %d1, {%h1, %h2, %h3, %h4};", [1], [2], [3], [4]) == [0x0004000300020001]
    assert execute("mov.b128 %q1, {%d1, %d2};", [1], [2]) == [[1, 2]]
    assert execute("mov.b128 {%r1, %r2, %r3, %r4}, %q1;", [[1 | 2 << 32, 3 | 4 << 32]]) == [[1], [2], [3], [4]]


def test_mapa_changes_the_rank_byte(execute: Execute) -> None:
    """Addresses seen on an H200: rank 3's first static variable, and the generic address of the same place."""
    assert execute("mapa.shared::cluster.u32 %r1, %r2, %r3;", [0x01000400], [3]) == [0x03000400]
    assert execute("mapa.u64 %d1, %d2, %r3;", [0x7F9D01000400], [3]) == [0x7F9D03000400]
    assert execute("getctarank.shared::cluster.u32 %r1, %r2;", [0x03000400]) == [3]
