"""The seeded bugs: one GEMM, correct and with one mistake at a time; each is named, with its line, and in time.

What an H200 did with such bugs: the first three hang, the fourth gives wrong numbers, the others pass by luck.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pytest
from tests.emulator.evidence.bench import (
    BF16,
    KERNELS,
    Array,
    Bench,
    bf16,
    compiled,
    f32,
    pointer,
    ptx_of,
    tile_map,
    word,
)

from ptxbench.emulator.launch import KernelLaunch, LaunchResult, Policy

SOURCE = KERNELS / "bugs" / "gemm.cu"
SCHEDULES = ("late", "eager", "seed 1", "seed 2")
M, N, K = 256, 256, 512
HANG_SECONDS = 60.0
"""Far below the time that a launch may take, and far above what a busy machine needs."""


class Bug(NamedTuple):
    """What must be found: the rule, its severity, the instruction at whose line it shows, words of the report."""

    rule: str
    severity: str
    instruction: str
    words: tuple[str, ...] = ()


BUGS = {
    "EXPECT_TOO_MUCH": Bug("deadlock", "error", "mbarrier.try_wait", ("128 tx-bytes outstanding", "shared+0x400")),
    "PRODUCER_PARITY": Bug("deadlock", "error", "mbarrier.try_wait", ("2 of 2 arrivals still missing", "shared+0x418")),
    "CONSUMER_PARITY": Bug("use-before-completion", "error", "wgmma.mma_async", ("is in flight",)),
    "EARLY_RELEASE": Bug("overwrite-before-release", "error", "cp.async.bulk.tensor", ("while the read of line",)),
    "WAIT_FIRST_PASS_ONLY": Bug("use-before-completion", "error", "wgmma.mma_async", ("is in flight",)),
    "NO_SYNC_AFTER_INIT": Bug("uninitialised-barrier", "error", "mbarrier", ("shared+0x4",)),
    "TILE_ALIGNMENT": Bug("swizzle-alignment", "warning", "cp.async.bulk.tensor"),
    "NO_WGMMA_FENCE": Bug("wgmma-fence", "lint", "wgmma.mma_async"),
}
HANGS = ("EXPECT_TOO_MUCH", "PRODUCER_PARITY")


def run(
    flags: tuple[str, ...], schedules: tuple[str, ...], shape: tuple[int, int, int] = (M, N, K)
) -> tuple[Bench, LaunchResult, Array]:
    """The GEMM of a build: bench, what the launch did, and C's greatest error."""
    m, n, k = shape
    module = compiled(SOURCE, "-DDEVICE_ONLY", *flags)
    bench = Bench(Policy(schedules=schedules, others=0, limit=1_000_000))
    generator = np.random.default_rng(7)
    a, b = bf16(generator, m, k), bf16(generator, n, k)
    c = bench.memory.allocate(m * n * 2)
    maps = (tile_map(bench.upload(a), (k, m), (64, 128)), tile_map(bench.upload(b), (k, n), (64, 128)))
    launch = KernelLaunch(
        "gemm",
        grid=(-(-m // 128), -(-n // 128), 1),
        block=(288, 1, 1),
        dynamic_shared=6 * 128 * 64 * 2 + 1024,
        parameters=(*maps, pointer(c), word(m), word(n), word(-(-k // 64))),
    )
    result = bench.launch(module, launch)
    return bench, result, f32(bench.download(c, (m, n), BF16)) - f32(a) @ f32(b).T


@pytest.mark.parametrize("shape", [(M, N, K), (200, 264, 328)])
def test_the_correct_kernel_is_right_in_every_schedule_and_nothing_is_found(shape: tuple[int, int, int]) -> None:
    for first in SCHEDULES:
        _, result, error = run((), (first,), shape)
        assert (result.error, result.unsupported, result.findings) == ("", "", ())
        assert np.abs(error).max() < 0.5  # half a unit in the last place of bf16 up to 128


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_found_and_its_line_is_named(name: str) -> None:
    bug, flag = BUGS[name], f"-DBUG_{name}"
    _, result, _ = run((flag,), SCHEDULES)
    found = [each for each in result.findings if each.rule == bug.rule]
    assert found, (result.error, {each.rule for each in result.findings})
    lines = ptx_of(SOURCE, "-DDEVICE_ONLY", flag).splitlines()
    for each in found:
        assert each.severity == bug.severity
        assert bug.instruction in lines[each.line - 1]
        assert each.location is not None
        assert each.location.file.endswith("gemm.cu")
        text = " ".join((each.message, *each.state))
        assert all(part in text for part in bug.words), text
        assert [named.line for named in each.named] == list(dict.fromkeys(map(int, re.findall(r"line (\d+)", text))))
        assert all(named.place.file.endswith("gemm.cu") for named in each.named)
    assert result.ok == (bug.severity != "error")


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_is_reported_because_nothing_can_run_and_not_by_waiting(name: str) -> None:
    bench, result, _ = run((f"-DBUG_{name}",), ("late",))
    assert not result.ok
    assert "deadlock" in {each.rule for each in result.findings}
    assert bench.seconds < HANG_SECONDS


def test_a_wait_that_is_left_out_shows_in_the_numbers_too() -> None:
    _, result, error = run(("-DBUG_CONSUMER_PARITY",), ("late",))
    assert not result.ok
    assert np.abs(error).max() > 1.0


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_an_early_release_is_an_error_in_every_schedule_whatever_the_numbers_say(schedule: str) -> None:
    _, result, error = run(("-DBUG_EARLY_RELEASE",), (schedule,))
    assert {(each.rule, each.severity) for each in result.findings} == {("overwrite-before-release", "error")}
    # Late, the products are done before the producer runs again: as on hardware, most orders give right numbers.
    assert (np.abs(error).max() > 1.0) == (schedule == "seed 1")
