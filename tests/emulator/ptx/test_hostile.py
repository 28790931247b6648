"""Hostile texts are refused or read, in bounded time, and nothing but PtxError is ever raised."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.emulator.ptx.samples import instructions, text
from tests.emulator.ptx.texts import COMPILED, compiled, module

from ptxbench.emulator.errors import PtxError
from ptxbench.emulator.ptx.parse import parse
from ptxbench.emulator.ptx.source import Limits

FRAGMENTS = (
    *("{", "}", "[", "]", "(", ")", "<", ">", ";", ",", ".", ":", "@", "!", "%", "|", "_", "-", "+", "/*", "*/", "//"),
    *(
        '"',
        "\n",
        "\0",
        "é",
        "0x",
        "0f",
        "1U",
        "%r1",
        ".reg",
        ".param",
        ".b32",
        ".entry",
        ".func",
        ".section",
        "bra ",
        "call ",
    ),
    *(
        ".branchtargets",
        ".loc 1 2 3",
        "99999999999999999999",
        "{{{{",
        "[[[[",
        "!!!!",
        "a|b|c",
        "1?2:3",
        ".v4",
        "inlined_at",
    ),
)
MAX_SECONDS = 20.0


def read(text_: str, limits: Limits | None = None) -> PtxError | None:
    """The error, if the text has one."""
    start = time.process_time()
    try:
        parse(text_, limits or Limits())
        found = None
    except PtxError as error:
        found = error
    assert time.process_time() - start < MAX_SECONDS
    assert found is None or 1 <= found.line <= text_.count("\n") + 1
    return found


def mutated(text_: str, random_: random.Random) -> str:
    """The text with a few places cut, doubled, or overwritten."""
    for _ in range(random_.randrange(1, 4)):
        start = random_.randrange(len(text_) + 1)
        end = min(len(text_), start + random_.choice((0, 1, 1, 2, 5, 30, 400)))
        piece = text_[start:end]
        new = random_.choice(("", piece * 2, random_.choice(FRAGMENTS), random_.choice(FRAGMENTS) + piece, piece[::-1]))
        text_ = text_[:start] + new + text_[end:]
    return text_


SMALL = (
    *(compiled(name)[:9000] for name in COMPILED),
    text("sm_100a", [line for _, line in instructions("sm_100a", variants=False)][::40])[0],
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(SMALL), st.randoms(use_true_random=False))
def test_a_mutated_text_is_read_or_refused(original: str, random_: random.Random) -> None:
    read(mutated(original, random_))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(FRAGMENTS), max_size=40))
def test_statements_of_random_pieces_are_read_or_refused(pieces: list[str]) -> None:
    read(module(".reg .b32 %r<4>;\n" + " ".join(pieces)))


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=200))
def test_random_characters_are_read_or_refused(characters: str) -> None:
    read(module(characters))
    read(characters)


REPEATED = {
    "open scopes": module("{" * 500_000),
    "open brackets": module(".reg .b32 r; mov.u32 r, " + "[" * 500_000 + ";"),
    "open vectors": module(".reg .b32 r; mov.u32 r, " + "{" * 500_000 + ";"),
    "closed vectors": module(".reg .b32 r; mov.u32 r, " + "{" * 50_000 + "r" + "}" * 50_000 + ";"),
    "negations": module(".reg .pred r; and.pred r, r, " + "!" * 500_000 + "r;"),
    "pairs": module(".reg .pred r; mov.pred " + "r|" * 200_000 + "r, r;"),
    "comments": "/*" * 1_000_000,
    "line comments": module("//\n" * 300_000),
    "strings": module('.pragma "x";' * 100_000),
    "labels": module("".join(f"l{number}:\n" for number in range(100_000))),
    "a long word": module("a" * 2_000_000 + ";"),
    "a long mnemonic": module("add" + ".s32" * 300_000 + " a, b;"),
    "long mnemonics": module("".join(f"add.x{number}" + ".u" * 60 + ";\n" for number in range(20_000))),
    "spaces": module("add" + " " * 1_000_000 + ".s32;"),
    "commas": module(".reg .b32 r; mov.u32 r" + "," * 500_000 + ";"),
    "no semicolon": module("mov.u32 " * 300_000),
    "a deep chain of inlined calls": module(".loc 1 1 1, function_name f, inlined_at 1 1 1\n" * 30_000 + "ret;"),
    "scopes after each other": module("{ .reg .b32 x; mov.u32 x, 1; }\n" * 30_000),
    "sections": ".version 9.0\n.target sm_90a\n" + ".section .debug_info {}\n" * 100_000,
    "parameters": ".version 9.0\n.target sm_90a\n.func f(" + ".param .b32 x," * 100_000,
    "dimensions": ".version 9.0\n.target sm_90a\n.global .b8 x" + "[1]" * 200_000 + ";",
    "an initialiser": ".version 9.0\n.target sm_90a\n.global .b8 x[] = {" + "1," * 1_000_000 + "1};",
    "nested initialisers": ".version 9.0\n.target sm_90a\n.global .b8 x[] = " + "{" * 500_000,
    "functions": ".version 9.0\n.target sm_90a\n" + "".join(f".func f{n}() {{ ret; }}\n" for n in range(25_000)),
}


@pytest.mark.parametrize("kind", REPEATED)
def test_a_text_of_many_repetitions_ends_in_time(kind: str) -> None:
    read(REPEATED[kind])


def test_a_text_beyond_the_limit_is_refused_unread() -> None:
    error = read("x" * 2_000, Limits(text=1_000))
    assert error is not None
    assert "the limit is 1000" in error.message


@pytest.mark.parametrize(
    ("limits", "body", "message"),
    [
        (Limits(instructions=2), "ret;\nret;\nret;", "too many instructions"),
        (Limits(nesting=3), "{ { ret; } }", "nested too deeply"),
        (Limits(mnemonics=1), "mov.u32;\nmov.u64;", "too many different mnemonics"),
        (Limits(variables=3), ".shared .b32 u, v, w;", "too many variables"),
        (Limits(statement=10), ".shared .align 16 .b8 x[3333333333333333333];", "too long"),
    ],
)
def test_each_limit_holds(limits: Limits, body: str, message: str) -> None:
    error = read(module(body), limits)
    assert error is not None
    assert message in error.message


def test_a_megabyte_is_parsed_in_a_second_and_a_half() -> None:
    original = compiled("gemm.sm_90a")
    kernel = original[original.index(".entry") :].split("\t.file")[0]
    head = original[: original.index(".entry")]
    copies = -(-1_000_000 // len(kernel))
    large = head + "".join(kernel.replace("4gemmE14", f"{number:05d}gemmE14") for number in range(copies))
    assert len(large) >= 1_000_000
    best = min(_seconds(large) for _ in range(3))
    assert best < 1.5


def _seconds(large: str) -> float:
    start = time.process_time()
    parse(large)
    return time.process_time() - start
