"""The activity instrument against a CUPTI of ours that records what a test tells it, and its results read back."""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ptxbench.errors import ToolError
from ptxbench.evaluate.child.instrument import Activity, InstrumentError, SpanResult, Spans, check_spans, read_spans
from ptxbench.evaluate.child.memory import GUARD, Buffer
from ptxbench.evaluate.child.parts import SOURCES, Instrument, NativeParts
from ptxbench.evaluate.child.session import Session
from ptxbench.evaluate.child.wire import MAX_ENTRIES, SPAN_ENTRY, SPAN_HEAD, Argument, ForgedMessageError
from ptxbench.schema.problem import DType
from ptxbench.schema.values import Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.native import Link, native_binary
from ptxbench.toolchain.toolkit import find_cupti, find_toolkit

HERE = Path(__file__).parent / "fake_cuda"
ARGUMENTS = tuple(Argument(number, GUARD, DType.FLOAT32, (64, 32)) for number in range(2))
GOOD = SpanResult(1000, 2000, (900, 2100), (), 1, 0, 0, 0, 0)
MULTIPLE_SUBSCRIBERS = 39  # cupti_result.h
UNKNOWN = 999
NS = 1_000_000_000


@pytest.fixture(scope="session")
def built(native_settings: Settings) -> Instrument:
    cupti = find_cupti(native_settings)
    if isinstance(cupti, Unavailable):
        pytest.skip(f"the instrument cannot be compiled: {cupti.reason} {cupti.remedy}")
    headers = (cupti.include, *find_toolkit(native_settings).includes)
    flags = tuple(word for folder in headers for word in ("-isystem", str(folder)))
    fake = native_binary(
        "libcupti.so.13",
        [HERE / "fake_cupti.c"],
        native_settings,
        kind="shared",
        link=Link(flags=(*flags, "-Wl,-soname,libcupti.so.13")),
    )
    sources = [SOURCES / "spans.c", SOURCES / "sha256.c"]
    link = Link(flags=flags, libraries=("dl", "pthread"))
    return Instrument(native_binary("libptxspans.so", sources, native_settings, kind="shared", link=link), fake)


@pytest.fixture
def instrument(built: Instrument, tmp_path: Path) -> Instrument:
    """Copies of both libraries, so that each test has their global state to itself."""
    return Instrument(
        Path(shutil.copy(built.library, tmp_path / "spans.so")), Path(shutil.copy(built.cupti, tmp_path / "cupti.so"))
    )


class Recorder:
    """The fake CUPTI as this test's process sees it, with the instrument over it."""

    def __init__(self, instrument: Instrument) -> None:
        self.fake = ctypes.CDLL(str(instrument.cupti))
        spans = Spans.open(instrument.library, instrument.cupti)
        assert isinstance(spans, Spans)
        self.spans = spans
        self._kept: list[bytes] = []

    def kernel(self, name: str, start: int, end: int, *, absolute: bool = False) -> None:
        self._kept.append(name.encode())
        self.fake.fake_kernel(self._kept[-1], ctypes.c_int64(start), ctypes.c_int64(end), int(absolute))

    def set(self, name: str, value: int) -> None:
        ctypes.c_size_t.in_dll(self.fake, name).value = value


@pytest.fixture
def recorder(instrument: Instrument) -> Recorder:
    return Recorder(instrument)


def test_a_window_spans_from_the_first_start_to_the_last_end_over_all_kernels(recorder: Recorder) -> None:
    for _ in range(2):
        with recorder.spans.window() as window:
            recorder.kernel("_Z1aPf", 100, 5_000)
            recorder.kernel("_Z1bPf", 50, 300)
        result = window.result
        assert check_spans(result) is None
        assert 4_900 <= result.duration_ns < NS
        assert [(each.name, each.kind, each.stream) for each in result.kernels] == [
            ("_Z1aPf", Activity.KERNEL, 7),
            ("_Z1bPf", Activity.KERNEL, 7),
        ]
        assert result.kernels[0].end_ns - result.kernels[0].start_ns == 4_900
    assert recorder.spans.version == 130001


def test_a_window_in_which_nothing_ran_says_so(recorder: Recorder) -> None:
    with recorder.spans.window() as window:
        pass
    assert check_spans(window.result) == "no_records"


def test_lost_records_are_recognised(recorder: Recorder) -> None:
    with recorder.spans.window() as window:
        recorder.kernel("_Z1aPf", 100, 200)
        recorder.set("fake_dropped", 3)
    assert window.result.dropped == 3
    assert check_spans(window.result) == "lost_records"


@pytest.mark.parametrize(
    ("start", "end", "absolute"),
    [(0, 0, True), (0, 5, True), (300, 200, False), (-3 * NS, -2 * NS, False), (2 * NS, 3 * NS, False)],
    ids=["no times", "no start", "inverted", "long before", "long after"],
)
def test_absurd_records_are_recognised(recorder: Recorder, start: int, end: int, absolute: bool) -> None:
    with recorder.spans.window() as window:
        recorder.kernel("_Z1aPf", 100, 200)
        recorder.kernel("_Z1bPf", start, end, absolute=absolute)
    assert window.result.absurd == 1
    assert check_spans(window.result) == "absurd_records"


def test_work_between_two_windows_is_a_stray_of_the_second(recorder: Recorder) -> None:
    with recorder.spans.window() as first:
        recorder.kernel("_Z1aPf", 100, 200)
    recorder.kernel("_Z4latePf", 100, 200)
    with recorder.spans.window() as second:
        recorder.kernel("_Z1aPf", 100, 200)
    assert check_spans(first.result) is None
    assert (second.result.strays, second.result.records) == (1, 1)
    assert check_spans(second.result) == "stray_work"


def test_more_kernels_than_the_list_holds_are_still_counted_and_spanned(recorder: Recorder) -> None:
    with recorder.spans.window() as window:
        for number in range(MAX_ENTRIES + 40):
            recorder.kernel("_Z1aPf", 1_000 * number, 1_000 * number + 500)
    assert window.result.records == MAX_ENTRIES + 40
    assert len(window.result.kernels) == MAX_ENTRIES
    assert window.result.duration_ns >= 1_000 * (MAX_ENTRIES + 39)


def test_a_failure_in_a_window_is_no_result(recorder: Recorder) -> None:
    recorder.set("fake_flush_answer", UNKNOWN)
    with pytest.raises(InstrumentError, match="CUPTI_ERROR_UNKNOWN"), recorder.spans.window():
        pass


def test_a_cupti_that_is_missing_is_unavailable_with_a_remedy(built: Instrument, tmp_path: Path) -> None:
    own = Path(shutil.copy(built.library, tmp_path / "spans.so"))
    found = Spans.open(own, tmp_path / "libcupti.so.13")
    assert isinstance(found, Unavailable)
    assert "libcupti.so.13" in found.reason
    assert "nvidia-cuda-cupti" in found.remedy
    assert isinstance(Spans.open(tmp_path / "none.so", own), Unavailable)


def test_a_second_user_of_cupti_is_reported_by_name(instrument: Instrument) -> None:
    fake = ctypes.CDLL(str(instrument.cupti))
    ctypes.c_int.in_dll(fake, "fake_subscribe_answer").value = MULTIPLE_SUBSCRIBERS
    found = Spans.open(instrument.library, instrument.cupti)
    assert isinstance(found, Unavailable)
    assert "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED" in found.reason


def test_kernel_names_and_cubins_of_the_candidates_process_reach_the_judge(
    start_session: Callable[..., Session],
    parts: NativeParts,
    candidates: Path,
    built: Instrument,
    buffers: tuple[Buffer, Buffer],
) -> None:
    session = start_session(candidates, "launch", parts=replace(parts, instrument=built), measured=True)
    ctypes.memset(buffers[1].data_ptr, 0, 4)
    ran = []
    for _ in range(3):
        spans = session.call(ARGUMENTS, 10.0).spans
        assert spans is not None
        assert check_spans(spans) is None
        ran.append([kernel.name for kernel in spans.kernels])
    assert ran == [["_Z4gemmPf"], ["_Z4gemmPf", "_Z8epiloguePf"], ["_Z4gemmPf", "_Z8epiloguePf"]]
    assert [(each.nbytes, each.sha256) for each in session.modules] == [(5, hashlib.sha256(b"cubin").hexdigest())]


def test_a_session_without_the_instrument_it_asks_for_does_not_start(
    start_session: Callable[..., Session], candidates: Path
) -> None:
    with pytest.raises(ToolError, match="no device here"):
        start_session(candidates, "twice", measured=True)


@pytest.mark.parametrize("size", [0, 1, 55, 56, 63, 64, 119, 120, 1000])
def test_our_sha256_is_sha256(built: Instrument, size: int) -> None:
    data, digest = bytes(range(256)) * 4, ctypes.create_string_buffer(32)
    ctypes.CDLL(str(built.library)).sha256(data[:size], ctypes.c_size_t(size), digest)
    assert digest.raw == hashlib.sha256(data[:size]).digest()


@pytest.mark.parametrize(
    ("change", "doubt"),
    [
        ({}, None),
        ({"records": 0, "start_ns": 0, "end_ns": 0}, "no_records"),
        ({"dropped": 1}, "lost_records"),
        ({"absurd": 1}, "absurd_records"),
        ({"end_ns": 500}, "absurd_records"),
        ({"strays": 1}, "stray_work"),
        ({"nameless": 1}, "nameless_kernels"),
    ],
)
def test_each_reason_to_doubt_a_result_has_its_name(change: dict[str, int], doubt: str | None) -> None:
    assert check_spans(replace(GOOD, **change)) == doubt  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("head", "entry"),
    [
        ({"listed": 2}, {}),
        ({"records": 2}, {}),
        ({"names": 3}, {}),
        ({}, {"name": 5}),
        ({}, {"kind": 9}),
        ({}, {"start": 10}),
        ({}, {"end": 3000}),
    ],
)
def test_a_result_that_contradicts_itself_is_a_forgery(head: dict[str, int], entry: dict[str, int]) -> None:
    raw = {"begin": 900, "until": 2100, "first": 1000, "last": 2000, "records": 1, "dropped": 0, "absurd": 0}
    raw |= {"strays": 0, "listed": 1, "nameless": 0, "names": 1, "modules": 0}
    span = {"start": 1000, "end": 2000, "kind": 0, "name": 0, "stream": 7, "graph": 0}

    def packed(head: dict[str, int], entry: dict[str, int]) -> bytes:
        rest = b"\0" * ((MAX_ENTRIES - 1) * SPAN_ENTRY.size)
        return SPAN_HEAD.pack(*(raw | head).values()) + SPAN_ENTRY.pack(*(span | entry).values()) + rest

    assert read_spans(packed({}, {}), ["_Z1aPf"]).kernels[0].name == "_Z1aPf"
    with pytest.raises(ForgedMessageError):
        read_spans(packed(head, entry), ["_Z1aPf"])


def test_the_reader_takes_no_result_of_another_size() -> None:
    with pytest.raises(struct.error):
        read_spans(b"\0" * 8, [])
