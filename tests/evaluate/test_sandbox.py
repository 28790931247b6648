"""What a hostile candidate finds out and changes outside of its process, tried with real system calls."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import secrets
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxbench.evaluate.child.memory import GUARD, Buffer, DeviceMemory
from ptxbench.evaluate.child.parts import NativeParts
from ptxbench.evaluate.child.session import Session
from ptxbench.evaluate.child.wire import Argument
from ptxbench.schema.problem import DType

StartSession = Callable[..., Session]
Buffers = tuple[Buffer, Buffer]

ARGUMENTS = tuple(Argument(number, GUARD, DType.FLOAT32, (64, 32)) for number in range(2))
NOBODY = 65534

ATTEMPTS = (
    "read_judge",
    "ptrace",
    "signal_judge",
    "pidfd",
    "socket_inet",
    "socket_unix",
    "socket_netlink",
    "write_outside",
    "read_secret_file",
    "execute",
    "fork",
    "unshare",
    "mount",
    "perf_event",
    "bpf",
    "become_root",
    "read_disk",
    "kernel_setting",
    "write_scratch",
    "visible_processes",
    "user",
)

ALWAYS = {
    "closed_descriptors",
    "own_session",
    "resource_limits",
    "no_new_privileges",
    "undumpable",
    "death_with_judge",
    "system_call_filter",
    "no_new_programs",
    "no_new_processes",
    "no_sockets",
    "judge_undumpable",
}
"""Protections that every Linux kernel of the last years gives to everybody."""

WHERE_PERMITTED = {
    "mount_namespace",
    "network_namespace",
    "ipc_namespace",
    "uts_namespace",
    "pid_namespace",
    "read_only_files",
    "private_tmp",
    "private_shm",
    "hidden_folders",
    "private_proc",
    "kernel_settings",
    "no_raw_devices",
    "unprivileged_user",
    "no_capabilities",
}


def put(buffer: Buffer, data: bytes) -> None:
    ctypes.memmove(buffer.data_ptr, data, len(data))


def get(buffer: Buffer) -> bytes:
    return ctypes.string_at(buffer.data_ptr, buffer.nbytes)


def scratch_file() -> Path:
    """What the spy writes in its own /tmp."""
    return Path(f"/tmp/ptxbench-spy-{os.getpid()}")


def spy(session: Session, buffers: Buffers, secret: Path, outside: Path) -> dict[str, int]:
    """The spy's findings: an errno per attempt, 0 where it succeeded."""
    put(buffers[0], struct.pack("=i252s256s", os.getpid(), str(secret).encode(), str(outside).encode()))
    session.call(ARGUMENTS, 20.0)
    return dict(zip(ATTEMPTS, struct.unpack_from(f"={len(ATTEMPTS)}i", get(buffers[1])), strict=True))


@pytest.fixture
def secret_file(public_folder: Path) -> Path:
    """A file of the judge that every user may read, so that only hiding it protects it."""
    file = public_folder / "expected.bin"
    file.write_text("expected output")
    file.chmod(0o644)
    return file


def test_a_spy_reaches_nothing_outside_of_its_process(
    start_session: StartSession, spies: Path, buffers: Buffers, secret_file: Path
) -> None:
    session = start_session(spies, "spy", hidden=(secret_file.parent,))
    active = {each.name for each in session.protections if each.active}
    found = spy(session, buffers, secret_file, Path("/var/written-by-a-candidate"))
    refused = set(ATTEMPTS) - {"write_scratch", "visible_processes", "user", "read_secret_file"}
    assert {name: found[name] for name in refused if found[name] == 0} == {}
    assert found["execute"] == found["fork"] == found["ptrace"] == found["socket_unix"] == errno.EPERM
    assert found["write_scratch"] == 0
    assert found["user"] != 0
    if "hidden_folders" in active:
        assert found["read_secret_file"] == errno.ENOENT
    if "private_proc" in active:
        assert found["visible_processes"] == 2
    if "read_only_files" in active:
        assert found["write_outside"] in {errno.EROFS, errno.EACCES}
    assert not scratch_file().exists() or "private_tmp" not in active
    scratch_file().unlink(missing_ok=True)


def test_under_a_tool_the_judge_stays_out_of_reach(
    start_session: StartSession, spies: Path, buffers: Buffers, secret_file: Path
) -> None:
    tool = ("/usr/bin/env",)
    session = start_session(spies, "spy", wrapper=tool, keep_root=True, hidden=(secret_file.parent,))
    missing = {each.name: each.reason for each in session.protections if not each.active}
    found = spy(session, buffers, secret_file, Path("/var/written-by-a-candidate"))
    scratch_file().unlink()  # the tool's /tmp is the machine's own
    never = {"read_judge", "ptrace", "signal_judge", "pidfd", "write_outside", "unshare", "mount", "bpf", "read_disk"}
    assert {name: found[name] for name in never | {"kernel_setting"} if found[name] == 0} == {}
    assert found["read_secret_file"] == errno.ENOENT or "hidden_folders" in missing
    for name in ("network_namespace", "pid_namespace", "no_new_programs", "no_sockets", "closed_descriptors"):
        assert missing[name]
    assert os.getuid() != 0 or missing["unprivileged_user"] == "counters need root's rights"


def test_every_protection_is_active_or_reported_missing_with_its_reason(
    start_session: StartSession, spies: Path
) -> None:
    told = {each.name: each for each in start_session(spies, "spy").protections}
    assert set(told) - {"user_namespace"} == ALWAYS | WHERE_PERMITTED
    assert {name for name in ALWAYS if not told[name].active} == set()
    assert all(each.active or each.reason for each in told.values())
    if os.getuid() == 0 and has_capability(21):  # CAP_SYS_ADMIN
        assert {name for name in WHERE_PERMITTED if not told[name].active} == set()


def has_capability(number: int) -> bool:
    """Whether this process has an effective capability (capabilities(7))."""
    status = Path("/proc/self/status").read_text()
    mask = int(status.partition("CapEff:")[2].split()[0], 16)
    return bool(mask >> number & 1)


def probe(program: Path, *wrapper: str, user: int | None = None) -> dict[str, dict[str, object]]:
    """What `candidate --probe-sandbox` reports."""
    command = [*wrapper, str(program), "--probe-sandbox"]
    printed = subprocess.run(command, capture_output=True, check=True, user=user, cwd="/").stdout
    return {each["name"]: each for each in json.loads(printed)}


def test_the_probe_tells_an_ordinary_user_what_there_is(parts: NativeParts, public_folder: Path) -> None:
    program = public_folder / "candidate"
    shutil.copy(parts.candidate, program)
    told = probe(program, user=NOBODY if os.getuid() == 0 else None)
    assert set(told) >= WHERE_PERMITTED | {"user_namespace"}
    assert told["unprivileged_user"]["active"]
    assert told["system_call_filter"]["active"]
    assert all(each["active"] or each["reason"] for each in told.values())


def test_where_no_namespace_can_be_had_each_is_reported_missing(parts: NativeParts) -> None:
    # A user namespace of ours in which no further one may be made, entered with no capability.
    no_namespaces = (
        "import ctypes, os, sys; libc = ctypes.CDLL(None, use_errno=True); uid = os.getuid()\n"
        "assert libc.unshare(0x10000000) == 0, 'no user namespace'\n"
        "open('/proc/self/uid_map', 'w').write(f'1000 {uid} 1')\n"
        "open('/proc/sys/user/max_user_namespaces', 'w').write('0')\n"
        "os.execv(sys.argv[1], sys.argv[1:])\n"
    )
    try:
        told = probe(parts.candidate, sys.executable, "-c", no_namespaces)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine allows no user namespace to make the test in: {error.stderr.decode()[-200:]}")
    for name in ("user_namespace", "mount_namespace", "network_namespace", "pid_namespace"):
        assert not told[name]["active"]
        assert told[name]["errno"] in {errno.EPERM, errno.ENOSPC}
    assert told["read_only_files"]["reason"] == told["private_tmp"]["reason"] == "needs a mount namespace"
    assert told["system_call_filter"]["active"]
    assert told["no_new_privileges"]["active"]


def test_a_scan_of_everything_mapped_finds_no_byte_of_the_expected_output(
    start_session: StartSession, spies: Path, buffers: Buffers, memory: DeviceMemory
) -> None:
    expected = secrets.token_bytes(32)
    elsewhere = memory.allocate(4096)  # the judge's own device memory, not part of the session
    put(elsewhere, expected)
    session = start_session(spies, "scan")
    put(buffers[0], bytes(byte ^ 0x5A for byte in expected))
    session.call(ARGUMENTS, 60.0)
    places, files, regions = struct.unpack_from("=3i", get(buffers[1]))
    assert (places, files) == (0, 0)
    assert regions > 10
    # The same scan does find what is there.
    put(buffers[1], b"\0" * 4096 + expected)
    session.call(ARGUMENTS, 60.0)
    assert struct.unpack_from("=i", get(buffers[1]))[0] == 1


def test_no_descriptor_and_no_variable_of_the_judge_comes_along(
    parts: NativeParts, spies: Path, start_session: StartSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXBENCH_TEST_SECRET", "in the judge's environment")
    read_end, write_end = os.pipe()
    os.set_inheritable(write_end, True)
    try:
        session = start_session(spies, "spy")
        watcher = Path(f"/proc/{session._process.pid}")
        assert b"PTXBENCH_TEST_SECRET" not in (watcher / "environ").read_bytes()
        assert parts.candidate.samefile((watcher / "exe").readlink())
        os.close(write_end)
        assert os.read(read_end, 1) == b""  # end of file: nobody else holds the pipe
    finally:
        os.close(read_end)
