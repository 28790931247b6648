"""Clusters that several processes share give what one process gives: bytes, counts, findings, and the first failure."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.emulator.core.small import run, store, text

from ptxbench.emulator.codegen.program import flatten
from ptxbench.emulator.machine import crew
from ptxbench.emulator.ptx.parse import parse

GRID = 40
SUMS = "@!%p9 add.u32 %r1, %r53, 7; { mul.lo.s32 %r1, %r53, %r51; }\n" + store()
UNFENCED = """
.shared .align 128 .b8 data[512];
st.shared.b32 [data], %r50; ld.shared.b32 %r2, [data + 64];
"""
FAILS = "setp.eq.u32 %p1, %r51, 23; setp.eq.u32 %p2, %r51, 31; or.pred %p1, %p1, %p2; @%p1 trap;\n" + store("%r53")


def _seen(body: str, count: int, kept: Any) -> None:
    """In a process with one thread: run with so many processes, however little there is to do."""
    crew._WORTH = 0.0 if count > 1 else 1e9
    crew.os.sched_getaffinity = lambda _: set(range(count))  # type: ignore[attr-defined]
    started = []
    start = crew._start
    crew._start = lambda work: started.append(1) or start(work)  # type: ignore[func-returns-value]
    ran = run(body, threads=64, grid=GRID)
    kept.send((ran.words.tolist(), ran.result, len(started)))


def _done(body: str, count: int) -> tuple[list[int], Any, int]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_seen, args=(body, count, theirs))
    process.start()
    theirs.close()
    answer: tuple[list[int], Any, int] = ours.recv()
    process.join()
    return answer


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.syspath_prepend(Path(__file__).parents[3])  # the new process imports this module


@pytest.mark.parametrize("body", [SUMS, UNFENCED + store("%r2")], ids=["sums", "findings"])
def test_three_processes_do_what_one_does(body: str) -> None:
    words, result, alone = _done(body, 1)
    shared, same, started = _done(body, 3)
    assert (alone, started) == (0, 2)
    assert shared == words
    assert same == result
    assert result.coverage[0].clusters == GRID


def test_the_first_failing_cluster_ends_the_launch() -> None:
    _, result, _ = _done(FAILS, 1)
    _, same, started = _done(FAILS, 3)
    assert started == 2
    assert "CTA 23,0,0" in result.error
    assert (same.error, same.findings) == (result.error, result.findings)


def test_a_process_that_fails_is_a_failure_and_leaves_nothing() -> None:
    def fail(_: object) -> None:
        raise ValueError("no room")

    with pytest.raises(RuntimeError, match="no room"):
        crew.share(range(4), 2, list, fail)


@pytest.mark.parametrize(
    ("line", "coupled"),
    [
        ("atom.global.add.u32 %r1, [%d51], 1;", True),
        ("atom.shared.add.u32 %r1, [%r2], 1;", False),
        ("red.global.add.u32 [%d51], 1;", True),
        ("ld.acquire.gpu.global.u32 %r1, [%d51];", True),
        ("ld.volatile.u32 %r1, [%d51];", True),
        ("ld.volatile.shared.u32 %r1, [%r2];", False),
        ("ld.global.u32 %r1, [%d51];", False),
    ],
)
def test_what_couples_clusters(line: str, coupled: bool) -> None:
    module = parse(text(line))
    program = flatten(module, module.functions["k"])
    couples: Callable[..., bool] = crew.couples
    assert any(couples(ins) for block in program.blocks for ins in block.instructions) is coupled
