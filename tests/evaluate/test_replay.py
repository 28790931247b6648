"""Replay programs: what the candidate's process makes of them on a driver of ours, and that no bytes can harm it."""

from __future__ import annotations

import ctypes
import os
import re
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from ptxbench.emulator.async_.tensormap import Im2col, Swizzle, TensorMap, Type
from ptxbench.errors import SandboxError
from ptxbench.evaluate.child.memory import GUARD, Buffer
from ptxbench.evaluate.child.parts import SOURCES
from ptxbench.evaluate.child.session import CandidateFault, Session
from ptxbench.evaluate.child.wire import Argument
from ptxbench.evaluate.replay import (
    COOPERATIVE,
    MAGIC,
    NONE,
    PROGRAMMATIC,
    VERSION,
    Calls,
    Code,
    Encode,
    Piece,
    Place,
    Program,
    Step,
    UnfitError,
    encode_program,
    map_words,
)
from ptxbench.schema.problem import DType
from ptxbench.settings import Settings
from ptxbench.toolchain.native import native_binary

StartSession = Callable[..., Session]

SHAPE = (64, 32)
ARGUMENTS = tuple(Argument(number, GUARD, DType.FLOAT32, SHAPE) for number in range(2))
VALUES = tuple(float(number % 97) - 48 for number in range(64 * 32))
INPUT = struct.pack("=2048f", *VALUES)
IN, OUT, OWN = Place(0, 0, 0), Place(0, 1, 0), Place(1, 0, 0)
NULL, LEGACY, GIVEN, MADE = 0, 1, 3, 4
TILED = TensorMap(Type.F32, 0, (64, 16), (256,), (32, 8), (1, 1), swizzle=Swizzle.B128, l2=2)
COLUMN = TensorMap(
    *(Type.F32, 0, (64, 16, 8, 2), (256, 4096, 32768), (), (1, 1, 1, 1)), im2col=Im2col((-1, -2), (0, 1), 32, 100)
)


def pointer(place: Place) -> Piece:
    return Piece(bytes(8), ((0, place),))


def launch(kernel: int, *pieces: Piece, cluster: tuple[int, int, int] = (1, 1, 1), flags: int = 0) -> Step:
    return Step(Code.LAUNCH, (kernel, 3, 2, 1, 64, 1, 1, *cluster, 1024, GIVEN, flags), pieces)


def twice(source: Place, target: Place, count: int = 2048) -> Step:
    return launch(0, pointer(source), pointer(target), Piece(struct.pack("<Q", count)))


def program(*calls: tuple[Step, ...], kernels: tuple[str, ...] = ("twice", "mapped")) -> Program:
    shapes = ((2, 32, SHAPE), (2, 32, SHAPE))
    table = tuple((0, name) for name in kernels)
    return Program((b"cubin",), table, (Calls(shapes, 1, (1,), (2,), calls),))


@pytest.fixture
def replayed(start_session: StartSession, tmp_path: Path) -> Callable[..., Session]:
    """A session that replays a program."""

    def start(made: Program, **changes: object) -> Session:
        path = tmp_path / "program.bin"
        path.write_bytes(encode_program(made))
        return start_session(path, "run", replayed=True, **changes)

    return start


@pytest.fixture
def filled(buffers: tuple[Buffer, Buffer]) -> tuple[Buffer, Buffer]:
    ctypes.memmove(buffers[0].data_ptr, INPUT, len(INPUT))
    return buffers


def floats(buffer: Buffer) -> tuple[float, ...]:
    return struct.unpack("=2048f", ctypes.string_at(buffer.data_ptr, buffer.nbytes))


def said(session: Session) -> list[str]:
    """What the driver was asked for after it had loaded the machine code."""
    lines = session.close().stderr.splitlines()
    return [line for line in lines if not line.startswith(("module", "event"))]


def test_a_recorded_launch_reaches_the_actual_buffers(
    replayed: Callable[..., Session], filled: tuple[Buffer, Buffer]
) -> None:
    session = replayed(program((twice(IN, OUT),), (twice(OUT, OUT, 8),)))
    session.call(ARGUMENTS, 10.0)
    assert floats(filled[1]) == tuple(2 * value for value in VALUES)
    session.call(ARGUMENTS, 10.0)
    assert floats(filled[1])[:9] == (*(4 * value for value in VALUES[:8]), 2 * VALUES[8])
    assert said(session) == 2 * ["launch twice 3,2,1 64,1,1 1024 made"]


def test_addresses_are_put_in_anew_for_every_call(
    replayed: Callable[..., Session], filled: tuple[Buffer, Buffer]
) -> None:
    session = replayed(program(*(3 * ((twice(IN, OUT, 4),),))))
    session.call(ARGUMENTS[::-1], 10.0)  # what was the output is the input now
    assert floats(filled[0])[:5] == (0, 0, 0, 0, VALUES[4])


def test_tensor_maps_are_encoded_by_the_driver_for_the_actual_memory(
    replayed: Callable[..., Session], filled: tuple[Buffer, Buffer]
) -> None:
    maps = (Encode(0, Place(0, 0, 256), map_words(TILED)), Encode(128, IN, map_words(COLUMN)))
    session = replayed(program((launch(1, Piece(bytes(256), (), maps), pointer(OUT)),)))
    session.call(ARGUMENTS, 10.0)
    assert floats(filled[1])[:64] == VALUES[64:128]
    assert said(session)[:2] == ["tiled 7 2 64,256,32,1 16,0,8,1 0 3 2 0", "im2col 7 4 -1,-2 0,1 32 100"]


def test_launch_attributes_and_function_attributes_are_those_recorded(replayed: Callable[..., Session]) -> None:
    steps = (
        Step(Code.ATTRIBUTE, (0, 8, 99_000)),
        launch(1, Piece(bytes(128), (), (Encode(0, IN, map_words(TILED)),)), pointer(OUT), cluster=(2, 1, 1)),
        replace(twice(IN, OUT, 1), words=(0, 1, 1, 1, 32, 1, 1, 1, 1, 1, 0, NULL, COOPERATIVE | PROGRAMMATIC)),
    )
    session = replayed(program(steps))
    session.call(ARGUMENTS, 10.0)
    assert said(session) == [
        "attribute twice 8 99000",
        "tiled 7 2 64,256,32,1 16,0,8,1 0 3 2 0",
        "launch mapped 3,2,1 64,1,1 1024 made cluster 2,1,1",
        "launch twice 1,1,1 32,1,1 0 null cooperative programmatic",
    ]


def test_memory_streams_and_events_are_used_as_recorded(
    replayed: Callable[..., Session], filled: tuple[Buffer, Buffer]
) -> None:
    two_rows = struct.pack("<4f", 1, 2, 3, 4)
    steps = (
        Step(Code.POOL, (4, 1 << 20)),
        Step(Code.ALLOCATE, (0, 8192, GIVEN)),
        Step(Code.FILL, (*OWN.words, 0xAB, 1, 8192, 1, 8192, MADE)),
        Step(Code.FILL, (*OWN.words, 0x3F80, 2, 2, 2, 16, GIVEN)),
        Step(Code.COPY_IN, (*OWN.words, 8, 16, 1, NULL), (Piece(two_rows),)),
        Step(Code.COPY_IN, (*OUT.words, 128, 8, 2, GIVEN), (Piece(two_rows),)),
        Step(Code.COPY, (*Place(0, 1, 8).words, 8, *OWN.words, 8, 8, 1, GIVEN)),
        Step(Code.COPY, (*Place(0, 1, 136).words, 128, *IN.words, 256, 4, 2, LEGACY)),
        Step(Code.RECORD, (0, GIVEN)),
        Step(Code.WAIT, (0, MADE)),
        *(Step(Code.WAIT_EVENT, (0,)), Step(Code.WAIT_STREAM, (MADE,)), Step(Code.WAIT_ALL)),
        Step(Code.FREE, (*OWN.words, GIVEN)),
    )
    session = replayed(program(steps))
    session.call(ARGUMENTS, 10.0)
    out = floats(filled[1])
    assert (out[:4], out[32:36], out[66]) == ((1, 2, 1, 2), (3, 4, VALUES[0], 0), VALUES[64])
    assert said(session) == [
        "pool 4 1048576",
        "allocate 8192 made",
        "fill 8 ab 8192 made",
        "fill 16 rows 3f80 2 2 16 made",
        "copy in 16 null",
        "rows in 8 2 8 128 made",
        "copy 8 made",
        "rows on 4 2 256 128 legacy",
        *("record made", "wait made", "wait for event", "wait for made"),
        "free made",
    ]


def test_variables_of_the_module_are_found_by_name(
    replayed: Callable[..., Session], filled: tuple[Buffer, Buffer]
) -> None:
    symbol = Step(Code.SYMBOL, (0,), (Piece(b"table\0"),))
    session = replayed(program((symbol, twice(IN, OWN, 64), twice(OWN, OUT, 64))))
    session.call(ARGUMENTS, 10.0)
    assert floats(filled[1])[:64] == tuple(4 * value for value in VALUES[:64])


def test_a_staged_call_under_a_tool_is_replayed_on_the_copies(
    replayed: Callable[..., Session], filled: tuple[Buffer, Buffer]
) -> None:
    session = replayed(program((twice(IN, OUT),)), staged=True, wrapper=("/usr/bin/env",))
    session.call(ARGUMENTS, 10.0)
    assert floats(filled[1]) == tuple(2 * value for value in VALUES)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (
            replace(program(()), workloads=(replace(program(()).workloads[0], steps=()),)),
            "no further call was recorded",
        ),
        (
            program((Step(Code.SYMBOL, (0,), (Piece(b"unknown\0"),)), twice(OWN, OUT))),
            "memory that was never allocated",
        ),
    ],
)
def test_what_was_not_recorded_is_no_fault_of_the_candidate(
    replayed: Callable[..., Session], made: Program, why: str
) -> None:
    session = replayed(made)
    for _ in range(len(made.workloads[0].steps) - 1):
        session.call(ARGUMENTS, 10.0)
    with pytest.raises(SandboxError, match=why):
        session.call(ARGUMENTS, 10.0)


def test_a_call_with_other_shapes_is_refused(replayed: Callable[..., Session]) -> None:
    session = replayed(program((twice(IN, OUT),)))
    with pytest.raises(SandboxError, match="no call with these shapes was recorded"):
        session.call(tuple(Argument(number, GUARD, DType.FLOAT32, (32, 32)) for number in range(2)), 10.0)


def test_a_kernel_that_the_machine_code_lacks_ends_as_an_error_of_the_device(replayed: Callable[..., Session]) -> None:
    with pytest.raises(CandidateFault) as caught:
        replayed(program((), kernels=("missing",)))
    assert caught.value.code == "cuda_error"


def test_a_malformed_program_is_refused(start_session: StartSession, tmp_path: Path) -> None:
    path = tmp_path / "program.bin"
    path.write_bytes(encode_program(program((twice(IN, OUT),)))[:-8])
    with pytest.raises(SandboxError, match="malformed"):
        start_session(path, "run", replayed=True)


# ---- the file ----


@pytest.fixture(scope="session")
def opens(native_settings: Settings) -> Callable[[bytes], bool]:
    """Whether the reader of programs takes these bytes."""
    library = ctypes.CDLL(str(native_binary("libprogram.so", [SOURCES / "program.c"], native_settings, kind="shared")))

    def tried(data: bytes) -> bool:
        file = os.memfd_create("program")
        try:
            os.write(file, data)
            return library.program_open(ctypes.create_string_buffer(256), file) == 0
        finally:
            os.close(file)

    return tried


WORD = st.integers(0, NONE)
PLACES = st.one_of(
    st.builds(Place, st.just(0), st.integers(0, 1), WORD), st.builds(Place, st.just(1), st.just(0), WORD)
)
PIECES = st.builds(
    lambda size, patch, place, maps: Piece(bytes(size + 128), ((patch, place),), maps),
    st.integers(0, 300),
    st.integers(0, 120),
    PLACES,
    st.lists(st.builds(Encode, st.just(0), PLACES, st.tuples(*[WORD] * 40)), max_size=2).map(tuple),
)
STEPS = st.one_of(
    st.builds(lambda pieces, flags: launch(1, *pieces, flags=flags), st.lists(PIECES, max_size=3), WORD),
    st.builds(lambda place, words: Step(Code.FILL, (*place.words, *words, GIVEN)), PLACES, st.tuples(*[WORD] * 5)),
    st.builds(lambda size: Step(Code.ALLOCATE, (0, size, NONE)), WORD),
    st.builds(lambda place: Step(Code.FREE, (*place.words, MADE)), PLACES),
    st.just(Step(Code.WAIT, (0, MADE))),
)
PROGRAMS = st.lists(st.lists(STEPS, max_size=4).map(tuple), min_size=1, max_size=3).map(lambda calls: program(*calls))


@given(made=PROGRAMS)
@examples(max_examples=60, deadline=None)
def test_every_program_that_is_written_can_be_read(opens: Callable[[bytes], bool], made: Program) -> None:
    assert opens(encode_program(made))


@given(made=PROGRAMS, data=st.data())
@examples(max_examples=150, deadline=None)
def test_no_change_of_a_word_and_no_cut_makes_the_reader_crash(
    opens: Callable[[bytes], bool], made: Program, data: st.DataObject
) -> None:
    words = bytearray(encode_program(made))
    at = 8 * data.draw(st.integers(0, len(words) // 8 - 1))
    struct.pack_into("<Q", words, at, data.draw(st.one_of(WORD, st.integers(0, 70))))
    opens(bytes(words))
    assert not opens(bytes(words[: data.draw(st.integers(0, len(words) - 1))]))


@pytest.mark.parametrize(
    "step",
    [
        twice(Place(0, 2, 0), OUT),
        twice(Place(1, 1, 0), OUT),
        twice(Place(2, 0, 0), OUT),
        launch(2),
        launch(0, Piece(bytes(8), ((1, IN),))),
        launch(0, Piece(bytes(128), (), (Encode(8, IN, map_words(TILED)),))),
        Step(Code.WAIT_STREAM, (5,)),
        Step(Code.WAIT_EVENT, (1,)),
        Step(Code.ALLOCATE, (1, 8, NONE)),
        Step(Code.COPY_IN, (*OUT.words, 8, 8, 2, GIVEN), (Piece(bytes(8)),)),
        Step(Code.SYMBOL, (0,), (Piece(b"table"),)),
        Step(Code.WAIT_ALL, (0,)),
    ],
)
def test_a_number_out_of_range_makes_a_program_malformed(opens: Callable[[bytes], bool], step: Step) -> None:
    assert not opens(encode_program(program((step,))))


def test_a_map_of_columns_along_w_alone_is_not_replayed() -> None:
    wide = replace(COLUMN, im2col=Im2col((-1,), (0,), 32, 100, wide=1))
    with pytest.raises(UnfitError, match="cuTensorMapEncodeIm2colWide"):
        map_words(wide)


def test_both_sides_have_the_same_numbers() -> None:
    header = (SOURCES / "program.h").read_text()
    (codes,) = re.findall(r"enum step_code \{(.*?)\};", header, re.DOTALL)
    assert [name.strip() for name in codes.split(",") if name.strip()] == [
        *(f"STEP_{code.name}" for code in Code),
        "STEP_CODES",
    ]
    assert f"#define PROGRAM_MAGIC {MAGIC:#x}u\n" in header
    assert f"#define PROGRAM_VERSION {VERSION}\n" in header
    assert f"LAUNCH_COOPERATIVE = {COOPERATIVE}, LAUNCH_PROGRAMMATIC = {PROGRAMMATIC}" in header
