"""Real candidate processes, honest and failing: what reaches the judge and how each failure is named."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.errors import DeviceError, SandboxError
from ptxbench.evaluate.child import wire
from ptxbench.evaluate.child.memory import ALIGNMENT, GUARD, Buffer, DeviceMemory
from ptxbench.evaluate.child.parts import NativeParts
from ptxbench.evaluate.child.process import OUTPUT_LIMIT
from ptxbench.evaluate.child.session import CandidateFault, Session, SessionSpec
from ptxbench.evaluate.child.wire import Argument, Phase
from ptxbench.schema.problem import DType

StartSession = Callable[..., Session]
Buffers = tuple[Buffer, Buffer]

SHAPE = (64, 32)
ARGUMENTS = tuple(Argument(number, GUARD, DType.FLOAT32, SHAPE) for number in range(2))
VALUES = tuple(float(number % 97) - 48 for number in range(64 * 32))
INPUT = struct.pack("=2048f", *VALUES)
POISON = b"\xff" * 8192
FAKE_TOOL = "import subprocess, sys; status = subprocess.call(sys.argv[1:]); print('report'); sys.exit(status)"


def put(buffer: Buffer, data: bytes) -> None:
    ctypes.memmove(buffer.data_ptr, data, len(data))


def get(buffer: Buffer) -> bytes:
    return ctypes.string_at(buffer.data_ptr, buffer.nbytes)


def fault_of(session: Session, deadline: float = 10.0) -> CandidateFault:
    with pytest.raises(CandidateFault) as caught:
        session.call(ARGUMENTS, deadline)
    return caught.value


def test_an_honest_candidates_output_reaches_the_judge(
    start_session: StartSession, candidates: Path, buffers: Buffers
) -> None:
    session = start_session(candidates, "twice")
    put(buffers[0], INPUT)
    for _ in range(3):
        put(buffers[1], POISON)
        result = session.call(ARGUMENTS, 10.0)
        assert struct.unpack("=2048f", get(buffers[1])) == tuple(2 * value for value in VALUES)
        assert 0 < result.host_ns < 5e9
        assert 0 < result.wall_ns < 5e9
        assert result.spans is None
    assert get(buffers[0]) == INPUT
    assert session.finish().returncode == 0


def test_staged_calls_under_a_tool_bring_outputs_back_and_leave_room_for_its_report(
    start_session: StartSession, candidates: Path, buffers: Buffers
) -> None:
    session = start_session(candidates, "twice", staged=True, wrapper=(sys.executable, "-c", FAKE_TOOL))
    put(buffers[0], INPUT)
    put(buffers[1], POISON)
    session.call(ARGUMENTS, 10.0)
    ended = session.finish()
    assert struct.unpack("=2048f", get(buffers[1])) == tuple(2 * value for value in VALUES)
    assert (ended.returncode, ended.stdout) == (0, "report\n")


def test_a_device_error_under_a_tool_leaves_it_time_to_report_what_it_saw(
    start_session: StartSession, candidates: Path
) -> None:
    session = start_session(candidates, "device_error", staged=True, wrapper=(sys.executable, "-c", FAKE_TOOL))
    fault = fault_of(session)
    assert (fault.code, fault.ended) == ("cuda_error", None)
    assert session.finish().stdout == "report\n"


def test_calibration_and_the_reset_of_l2_touch_no_candidate(start_session: StartSession, candidates: Path) -> None:
    session = start_session(candidates, "hang", load=False)
    assert 0 < session.calibrate().host_ns < 1e9
    session.reset_l2()
    assert session.finish().returncode == 0


def test_a_candidate_that_exits_with_zero_has_failed(start_session: StartSession, candidates: Path) -> None:
    fault = fault_of(start_session(candidates, "exit_zero"))
    assert (fault.code, fault.detail, fault.phase) == ("exited", "0", Phase.CALLING)


@pytest.mark.parametrize(("symbol", "name"), [("crash", "SIGSEGV"), ("abort", "SIGABRT")])
def test_a_crash_is_named_by_its_signal(start_session: StartSession, candidates: Path, symbol: str, name: str) -> None:
    fault = fault_of(start_session(candidates, symbol))
    assert (fault.code, fault.detail) == ("crashed", name)


def test_a_hanging_call_ends_at_its_deadline(start_session: StartSession, candidates: Path) -> None:
    session = start_session(candidates, "hang")
    started = time.monotonic()
    fault = fault_of(session, deadline=0.3)
    assert (fault.code, fault.phase) == ("hang", Phase.CALLING)
    assert time.monotonic() - started < 60
    assert fault.ended is not None
    assert fault.ended.returncode is not None


def test_a_hang_at_load_is_told_from_a_hang_in_a_call(
    start_session: StartSession, build_candidate: Callable[..., Path]
) -> None:
    session = start_session(build_candidate("candidates.c", "HANG_AT_LOAD"), "twice", load=False)
    with pytest.raises(CandidateFault) as caught:
        session.load(0.3)
    assert (caught.value.code, caught.value.phase) == ("hang_at_load", Phase.LOADING)


def test_a_crash_at_load_is_the_candidates_fault(
    start_session: StartSession, build_candidate: Callable[..., Path]
) -> None:
    session = start_session(build_candidate("candidates.c", "CRASH_AT_LOAD"), "twice", load=False)
    with pytest.raises(CandidateFault) as caught:
        session.load(10.0)
    assert (caught.value.code, caught.value.detail, caught.value.phase) == ("crashed", "SIGABRT", Phase.LOADING)


def test_a_missing_function_is_named(start_session: StartSession, candidates: Path) -> None:
    session = start_session(candidates, "run", load=False)
    with pytest.raises(CandidateFault) as caught:
        session.load(10.0)
    assert (caught.value.code, caught.value.detail) == ("no_symbol", "__tvm_ffi_run")


def test_a_library_that_is_none_fails_to_load(start_session: StartSession, tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_text("no ELF file")
    session = start_session(library, "run", load=False)
    with pytest.raises(CandidateFault) as caught:
        session.load(10.0)
    assert caught.value.code == "load_failed"


def test_an_error_that_the_candidate_raises_is_told_and_the_session_goes_on(
    start_session: StartSession, candidates: Path
) -> None:
    session = start_session(candidates, "raise")
    for _ in range(2):
        fault = fault_of(session)
        assert fault.code == "raised"
        assert fault.detail == "ValueError: M must be a multiple of 128?[2J"
        assert fault.ended is None
    session.calibrate()


def test_an_error_of_the_device_is_named(start_session: StartSession, candidates: Path) -> None:
    fault = fault_of(start_session(candidates, "device_error"))
    assert (fault.code, fault.detail) == ("cuda_error", "CUDA_ERROR_ILLEGAL_ADDRESS")


def test_what_a_candidate_prints_decides_nothing(
    start_session: StartSession, candidates: Path, buffers: Buffers
) -> None:
    session = start_session(candidates, "print_passed")
    put(buffers[1], POISON)
    session.call(ARGUMENTS, 10.0)
    assert get(buffers[1]) == POISON
    ended = session.finish()
    assert (ended.stdout, ended.stderr) == ('{"status": "passed"}\n', "PASSED\n")


def test_a_flood_of_output_is_cut(start_session: StartSession, candidates: Path) -> None:
    session = start_session(candidates, "flood")
    session.call(ARGUMENTS, 20.0)
    assert len(session.finish().stdout) == OUTPUT_LIMIT


@pytest.mark.parametrize("symbol", ["forge_any", "garbage"])
def test_a_forged_message_is_recognised_at_once(start_session: StartSession, candidates: Path, symbol: str) -> None:
    assert fault_of(start_session(candidates, symbol)).code == "forged_reply"


def test_a_perfect_forgery_is_given_away_by_the_real_answer(start_session: StartSession, candidates: Path) -> None:
    session = start_session(candidates, "forge_answer")
    session.call(ARGUMENTS, 10.0)
    time.sleep(0.1)
    with pytest.raises(CandidateFault) as caught:
        session.finish()
    assert caught.value.code == "forged_reply"


def test_a_message_that_is_too_long_is_refused(start_session: StartSession, candidates: Path) -> None:
    assert fault_of(start_session(candidates, "oversize")).code == "oversized_reply"


def test_a_candidate_that_closes_its_channel_is_ended(start_session: StartSession, candidates: Path) -> None:
    fault = fault_of(start_session(candidates, "close_channel"))
    assert fault.code == "forged_reply"
    assert fault.ended is not None


def test_nothing_runs_on_after_the_session(start_session: StartSession, candidates: Path, buffers: Buffers) -> None:
    session = start_session(candidates, "leave_thread")
    session.call(ARGUMENTS, 10.0)
    session.close()
    put(buffers[1], POISON)
    time.sleep(0.1)
    assert get(buffers[1]) == POISON


def test_a_fork_bomb_makes_no_process(start_session: StartSession, candidates: Path, buffers: Buffers) -> None:
    session = start_session(candidates, "fork_bomb")
    session.call(ARGUMENTS, 20.0)
    assert struct.unpack_from("=f", get(buffers[1]))[0] == 0


def test_a_device_that_is_not_there_is_no_fault_of_the_candidate(start_session: StartSession, candidates: Path) -> None:
    with pytest.raises(DeviceError, match="CUDA_ERROR_INVALID_DEVICE"):
        start_session(candidates, "twice", device=5)


def test_a_program_that_never_connects_is_no_fault_of_the_candidate(
    parts: NativeParts, candidates: Path, tmp_path: Path
) -> None:
    spec = SessionSpec(parts, candidates, "twice", 0, (), tmp_path, wrapper=("/bin/sh", "-c", "echo lost >&2; exit 3"))
    with pytest.raises(SandboxError, match="lost"):
        Session.start(spec, 5.0)


def test_somebody_else_cannot_connect_in_the_candidates_place(
    parts: NativeParts, candidates: Path, tmp_path: Path
) -> None:
    elsewhere = (sys.executable, "-c", "import subprocess, sys; subprocess.call(sys.argv[1:], start_new_session=True)")
    spec = SessionSpec(parts, candidates, "twice", 0, (), tmp_path, wrapper=elsewhere)
    with pytest.raises(SandboxError, match="in place of"):
        Session.start(spec, 5.0)


def test_a_candidate_dies_with_its_judge(parts: NativeParts, candidates: Path, tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from ptxbench.evaluate.child.parts import NativeParts\n"
        "from ptxbench.evaluate.child.session import Session, SessionSpec\n"
        "from ptxbench.schema.values import Unavailable\n"
        "candidate, cuda, ffi, library, folder = sys.argv[1:]\n"
        "parts = NativeParts(Path(candidate), cuda, None, Path(ffi), Unavailable(name='cupti', reason='none'))\n"
        "session = Session.start(SessionSpec(parts, Path(library), 'twice', 0, (), Path(folder), measured=False), 20)\n"
        "print(session._process.pid, flush=True); time.sleep(60)\n"
    )
    words = (parts.candidate, parts.cuda, parts.tvm_ffi, candidates, tmp_path)
    with subprocess.Popen([sys.executable, "-c", script, *map(str, words)], stdout=subprocess.PIPE) as judge:
        assert judge.stdout is not None
        watcher = int(judge.stdout.readline())
        members = group_members(watcher)
        assert watcher in members
        judge.send_signal(signal.SIGKILL)
    until = time.monotonic() + 5
    while (left := group_members(watcher)) and time.monotonic() < until:
        time.sleep(0.02)
    assert left == []


def group_members(group: int) -> list[int]:
    """Processes of the group that still run."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, member_of = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(member_of) == group and state != "Z":
            found.append(int(folder.name))
    return found


def test_both_sides_agree_on_the_layout_of_the_wire(parts: NativeParts) -> None:
    printed = subprocess.run([parts.candidate, "--print-layout"], capture_output=True, check=True).stdout
    native = json.loads(printed)
    ours = wire.layout()
    assert {name: native[name] for name in ours} == ours
    assert max(size for name, size in native.items() if "." not in name) <= wire.LARGEST


def test_data_lies_aligned_between_guards(memory: DeviceMemory) -> None:
    for nbytes in (1, 4096, 3 << 20):
        buffer = memory.allocate(nbytes)
        before, behind = buffer.guards()
        assert buffer.data_ptr % ALIGNMENT == 0
        assert before.nbytes >= GUARD
        assert behind.nbytes >= GUARD
        assert before.pointer == buffer.base
        assert before.nbytes + nbytes + behind.nbytes == buffer.size
        assert behind.pointer == buffer.data_ptr + nbytes
        assert buffer.data().__cuda_array_interface__["data"] == (buffer.data_ptr, False)
        assert not os.get_inheritable(buffer.fd)


def test_a_driver_that_is_missing_is_named() -> None:
    with pytest.raises(DeviceError, match="cannot be loaded"):
        DeviceMemory(0, "/nowhere/libcuda.so.1")


@pytest.mark.parametrize("part", ["magic", "version", "sequence", "size", "kind", "status"])
def test_a_message_with_one_wrong_part_is_refused(part: str) -> None:
    header = {"magic": wire.MAGIC, "version": wire.VERSION, "kind": int(wire.Kind.DONE), "sequence": 7, "size": 1120}
    status = 99 if part == "status" else 0
    if part in header:
        header[part] += 1
    body = struct.pack("=iiQ64s1024s", status, 0, 0, b"", b"")
    with pytest.raises(wire.ForgedMessageError):
        wire.decode(struct.pack("=IHHII", *header.values()) + body, 7)
