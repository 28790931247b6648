"""Hostile PTX in its own process: whatever it does, the caller gets a result or a typed stop, in time and memory."""

from __future__ import annotations

import json
import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.emulator.evidence.test_hostile import HEAD, START

from ptxbench.emulator.apart import running
from ptxbench.emulator.apart.messages import HEADER, Reply
from ptxbench.emulator.apart.process import EmulatingProcess, Refused
from ptxbench.emulator.apart.running import Limits, Stopped
from ptxbench.emulator.apart.usage import usage
from ptxbench.emulator.device import argument_places
from ptxbench.emulator.host.record import Allocate, Blob, Fill, Launch
from ptxbench.emulator.launch import Policy
from ptxbench.errors import PtxbenchError
from ptxbench.settings import Settings

MEMORY = 1 << 30
SECONDS = 1.0
(OUT,) = argument_places([4096])
KERNEL = Launch(
    kernel="k",
    grid=(1, 1, 1),
    block=(128, 1, 1),
    cluster=(1, 1, 1),
    dynamic_shared=0,
    parameters=(Blob(data=OUT.to_bytes(8, "little")),),
    stream=0,
)


def text(body: str, before: str = "") -> str:
    return f"{HEAD}{before}{START}{body}\nret;\n}}\n"


def process(body: str, before: str = "", seconds: float = 20.0) -> EmulatingProcess:
    return EmulatingProcess(text(body, before), {}, Limits(MEMORY, seconds), Settings.load())


def launch(device: EmulatingProcess, seconds: float = SECONDS, policy: Policy | None = None) -> int:
    device.begin([4096], policy or Policy(), seconds)
    return device.perform(KERNEL)


@pytest.fixture
def bounded() -> Iterator[None]:
    """The test must not take the caller's memory."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB


def test_a_kernel_runs_and_its_bytes_counts_and_timeline_come_back() -> None:
    with process("st.global.b32 [d0], 7;") as device:
        device.begin([4096], Policy(), SECONDS, "trace")
        device.write(OUT, bytes(4096))
        assert device.perform(KERNEL) == 0
        told, timeline = device.finish()
        assert device.read(OUT, 8) == (7).to_bytes(8, "little")
    (ran,) = told.ran
    assert ran.result.ok
    assert {"st.global.b32": 4}.items() <= {each.name: each.warps for each in ran.result.counts}.items()
    assert json.loads(timeline)["traceEvents"]


def test_a_process_serves_call_after_call_on_empty_memory() -> None:
    with process("ld.global.b32 r3, [d0]; add.s32 r3, r3, 1; st.global.b32 [d0], r3;") as device:
        for _ in range(3):
            assert launch(device) == 0
            assert device.read(OUT, 4) == (1).to_bytes(4, "little")


def test_an_endless_kernel_is_ended_by_its_processor_time(bounded: None) -> None:
    with process("L: add.s32 r3, r3, 1; bra L;") as device, pytest.raises(Stopped, match="processor time") as stop:
        launch(device)
    assert stop.value.kind == "time"


def test_after_a_stop_the_next_call_has_a_fresh_process() -> None:
    with process("ld.global.b32 r3, [d0]; setp.eq.u32 p0, r3, 0; L: @p0 bra L;") as device:
        with pytest.raises(Stopped):
            launch(device)
        with pytest.raises(Stopped):
            device.read(OUT, 4)
        device.begin([4096], Policy(), SECONDS)
        device.write(OUT, b"\1" * 4096)
        assert device.perform(KERNEL) == 0


def test_memory_without_end_is_ended_by_its_limit(bounded: None) -> None:
    size, step = 3 << 30, 1 << 28
    start = OUT - (1 << 32)  # among the candidate's own addresses
    fills = [
        Fill(address=start + at, value=1, element_bytes=1, width=step, height=1, pitch=0, stream=0)
        for at in range(0, size, step)
    ]
    with process("") as device:
        device.begin([4096], Policy(), 20.0)
        with pytest.raises(Stopped, match="more than 1 GiB of memory") as stop:
            device.replay((Allocate(index=0, address=start, size=size), *fills))
    assert stop.value.kind == "memory"


def ended(device: EmulatingProcess) -> str:
    """How a launch ended, in words; empty if nothing was wrong."""
    try:
        launch(device, 5.0)
        result = device.finish()[0].ran[0].result
    except (Refused, Stopped) as stop:
        return f"{type(stop).__name__} {stop.kind}"
    return result.unsupported or result.error


@pytest.mark.parametrize(
    ("hostile", "end"),
    [
        ("{" * 100_000, "Refused text"),
        ("add.s32 r3, r0, r1;\n" * 3_000_000, "Refused text"),
        ("mov.u32 r3, " + "(" * 200_000 + "1" + ")" * 200_000 + ";", "Refused text"),
        (".reg .b32 q<1000000000>;", ""),
        ("\0" * 1000, "Refused text"),
        (".local .b8 x[268435456]; mov.u32 r3, x; L: st.local.b32 [r3], r0; add.s32 r3, r3, 4096; bra L;", "cuda"),
    ],
    ids=["scopes", "too long", "nesting", "registers", "zeros", "stack"],
)
def test_a_hostile_text_ends_as_a_result_or_is_refused(hostile: str, end: str, bounded: None) -> None:
    started = time.monotonic()
    with process(hostile, seconds=20.0) as device:
        how = ended(device)
    assert how.startswith(end) if end else not how, how
    assert time.monotonic() - started < 300


def test_a_killed_process_is_a_stop_with_its_signal() -> None:
    with process("") as device:
        device.load()
        assert device._running is not None
        os.kill(device._running.process.pid, signal.SIGSEGV)
        with pytest.raises(Stopped, match="signal 11") as stop:
            device.begin([4096], Policy(), SECONDS)
    assert stop.value.kind == "failed"


class Ran:
    """What a pickle would run."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, ("echo ran > pickled",)


LIES = {
    "an endless answer": b"\xff" * 64,
    "more bytes than asked for": HEADER.pack(2, 1 << 40) + b"{}",
    "a pickle": HEADER.pack(len(pickle.dumps(Ran())), 0) + pickle.dumps(Ran()),
    "another shape": HEADER.pack(12, 0) + b'{"ran": "no"}'[:12],
    "unknown fields": HEADER.pack(11, 0) + b'{"more": 1}',
    "deep nesting": HEADER.pack(200_000, 0) + b"[" * 200_000,
}


@pytest.mark.parametrize("lie", LIES)
def test_a_process_that_breaks_the_protocol_is_believed_in_nothing(
    lie: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounded: None
) -> None:
    (tmp_path / "lie").write_bytes(LIES[lie])
    program = "import os, sys, time; os.write(int(sys.argv[1]), open(sys.argv[2], 'rb').read()); time.sleep(60)"
    monkeypatch.setattr(
        running, "_command", lambda number, *_: [sys.executable, "-c", program, str(number), str(tmp_path / "lie")]
    )
    monkeypatch.chdir(tmp_path)
    with process("", seconds=5.0) as device, pytest.raises(Stopped, match="protocol"):
        device.load()
    assert [each.name for each in tmp_path.iterdir()] == ["lie"]


def test_ctrl_c_ends_the_emulating_process_too() -> None:
    device = process("L: add.s32 r3, r3, 1; bra L;")
    device.load()
    assert device._running is not None
    pid = device._running.process.pid
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    with pytest.raises(KeyboardInterrupt), device:
        launch(device, 60.0)
    assert not Path(f"/proc/{pid}").exists()


def test_a_process_without_rights_reads_python_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("expected outputs")
    program = f"""
import sys
from pathlib import Path
from ptxbench.emulator.apart.rights import read_only
if not read_only([Path(sys.prefix), Path(sys.base_prefix), *(Path(each) for each in sys.path if each)]):
    raise SystemExit(7)
import tomllib
for mode in "rw":
    try:
        open({str(tmp_path / "secret")!r}, mode)
        raise SystemExit(1)
    except PermissionError:
        pass
"""
    done = subprocess.run([sys.executable, "-c", program], cwd="/", check=False)
    if done.returncode == 7:
        pytest.skip("this kernel has no Landlock")
    assert done.returncode == 0
    assert (tmp_path / "secret").read_text() == "expected outputs"


def test_shared_memory_counts_once_in_the_usage() -> None:
    held = np.ones(64 << 20, np.uint8)
    seen = usage(os.getpid())
    assert held.nbytes < seen.memory < 64 * held.nbytes
    assert seen.seconds > 0
    assert usage(1 << 30).memory == 0


def test_an_answer_survives_the_way() -> None:
    with process("trap;") as device:
        assert launch(device) == 719
        told, _ = device.finish()
    assert told == Reply.model_validate_json(told.model_dump_json())
    assert told.ran[0].result.findings[0].severity == "error"
    assert not isinstance(told, PtxbenchError)
