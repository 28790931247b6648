"""The timeline of a GEMM is what viewers read (Trace Event Format): every event whole, slices apart, spans closed."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Any, Literal

import numpy as np
import pytest
from pydantic import BaseModel, ConfigDict, Field
from tests.emulator.evidence.bench import BF16, KERNELS, Bench, bf16, compiled, pointer, tile_map, word

from ptxbench.emulator import trace as trace_room
from ptxbench.emulator.launch import KernelLaunch, Policy
from ptxbench.emulator.trace import Trace

SIZE = 256
MOST_BYTES = 1 << 20


class Event(BaseModel):
    """What all events have."""

    model_config = ConfigDict(extra="forbid", strict=True)
    name: str = Field(min_length=1)
    pid: int = Field(ge=1)
    tid: int = Field(ge=0)


class Named(BaseModel):
    """The name of a process or thread."""

    name: str = Field(min_length=1)


class Metadata(Event):
    """M."""

    ph: Literal["M"]
    name: Literal["process_name", "thread_name"]
    args: Named


class Timed(Event):
    """What has a time, in microseconds."""

    ts: int = Field(ge=0)


class Slice(Timed):
    """X: complete, with its duration."""

    ph: Literal["X"]
    dur: int = Field(ge=0)


class Instant(Timed):
    """i, of a thread."""

    ph: Literal["i"]
    s: Literal["t"]


class Span(Timed):
    """b and e: the ends of an asynchronous span, told apart by category and id."""

    ph: Literal["b", "e"]
    cat: Literal["copy", "mma"]
    id: int


class Document(BaseModel):
    """The object form."""

    model_config = ConfigDict(extra="forbid", strict=True)
    displayTimeUnit: Literal["ms", "ns"]  # noqa: N815  (the format's name)
    otherData: dict[str, int]  # noqa: N815
    traceEvents: list[Annotated[Metadata | Slice | Instant | Span, Field(discriminator="ph")]]  # noqa: N815


def traced() -> str:
    """The timeline of one launch."""
    trace, generator = Trace(), np.random.default_rng(3)
    bench = Bench(Policy(watch=trace.watch))
    a, b = (tile_map(bench.upload(bf16(generator, SIZE, SIZE)), (SIZE, SIZE), (64, 128)) for _ in "ab")
    c = bench.memory.allocate(SIZE * SIZE * BF16.itemsize)
    launch = KernelLaunch(
        "gemm",
        grid=(2, 2, 1),
        block=(288, 1, 1),
        dynamic_shared=6 * 128 * 64 * 2 + 1024,
        parameters=(a, b, pointer(c), word(SIZE), word(SIZE), word(SIZE // 64)),
    )
    assert bench.launch(compiled(KERNELS / "bugs" / "gemm.cu", "-DDEVICE_ONLY"), launch).ok
    return trace.text()


def test_every_event_of_a_timeline_is_whole_and_the_file_is_small() -> None:
    text = traced()
    document = Document.model_validate_json(text)
    assert document.otherData == {"left_out": 0}
    assert {type(event) for event in document.traceEvents} == {Metadata, Slice, Instant, Span}
    assert len(text) < MOST_BYTES


def test_slices_of_one_thread_do_not_overlap() -> None:
    ends: Counter[tuple[int, int]] = Counter()
    for event in Document.model_validate_json(traced()).traceEvents:
        if isinstance(event, Slice):
            key = (event.pid, event.tid)
            assert event.ts >= ends[key], event
            ends[key] = event.ts + event.dur


def test_every_copy_and_product_begins_and_ends_once() -> None:
    open_: dict[tuple[str, int], Span] = {}
    done: Counter[str] = Counter()
    for event in Document.model_validate_json(traced()).traceEvents:
        if not isinstance(event, Span):
            continue
        key = (event.cat, event.id)
        if event.ph == "b":
            assert key not in open_
            open_[key] = event
        else:
            assert event.ts >= open_.pop(key).ts
            done[event.cat] += 1
    assert not open_
    # 4 CTAs, 4 slices of K: two copies, and four products of each of two warpgroups.
    assert done == {"copy": 4 * 4 * 2, "mma": 4 * 4 * 4 * 2}


def test_threads_and_processes_have_names() -> None:
    events: list[dict[str, Any]] = json.loads(traced())["traceEvents"]
    named = {(event["pid"], event["tid"]) for event in events if event["ph"] == "M"}
    assert {(event["pid"], event["tid"]) for event in events if event["ph"] != "M"} <= named


def test_a_timeline_beyond_its_limit_says_what_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Document.model_validate_json(traced())
    monkeypatch.setattr(trace_room, "MOST", 50)
    part = Document.model_validate_json(traced())
    events = sum(1 for event in whole.traceEvents if event.ph != "M")
    kept = sum(1 for event in part.traceEvents if event.ph != "M")
    assert part.otherData == {"left_out": events - kept}
    assert 0 < kept <= 50
