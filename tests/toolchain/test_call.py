"""Calls of tools end, stay bounded, and see nothing of this process."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ptxbench.errors import ToolError
from ptxbench.toolchain.call import Limits, run_tool, shorten


def test_a_call_tells_what_the_tool_wrote_and_how_it_ended() -> None:
    call = run_tool(["sh", "-c", "echo out; echo err >&2; exit 3"], timeout=10)
    assert (call.stdout, call.stderr, call.returncode, call.timed_out) == ("out\n", "err\n", 3, False)
    assert not call.succeeded


def test_a_signal_is_told_apart_from_an_exit_status() -> None:
    assert run_tool(["sh", "-c", "kill -SEGV $$"], timeout=10).returncode == -11


def test_a_timeout_kills_the_tool_and_all_it_started(tmp_path: Path) -> None:
    script = f"sh -c 'sleep 60 & echo $! > {tmp_path}/pid; wait' & wait"
    began = time.monotonic()
    call = run_tool(["sh", "-c", script], timeout=0.5)
    assert call.timed_out
    assert call.returncode is None
    assert time.monotonic() - began < 50
    assert _is_gone(int((tmp_path / "pid").read_text()))


def test_what_a_tool_leaves_behind_is_not_waited_for_and_is_killed() -> None:
    began = time.monotonic()
    call = run_tool(["sh", "-c", "sleep 60 & echo $!"], timeout=30)
    assert call.succeeded
    assert time.monotonic() - began < 50
    assert _is_gone(int(call.stdout))


def _is_gone(pid: int) -> bool:
    """Dead within a second; a zombie that nobody reaps counts as dead."""
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


def test_endless_output_is_kept_by_head_and_tail_only() -> None:
    call = run_tool(
        ["sh", "-c", "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo last"], timeout=30, limit=4096
    )
    assert call.succeeded
    assert len(call.stdout) < 4300
    assert call.stdout.startswith("first\n")
    assert call.stdout.endswith("last\n")
    assert "bytes left out" in call.stdout


def test_a_tool_sees_nothing_of_this_processs_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "abc")
    names = {line.partition("=")[0] for line in run_tool(["env"], timeout=10, env={"EXTRA": "1"}).stdout.splitlines()}
    assert names - {"PWD", "SHLVL", "_"} == {"PATH", "HOME", "TMPDIR", "LANG", "EXTRA"}


def test_the_home_of_a_tool_is_its_own_and_gone_afterwards() -> None:
    home = Path(run_tool(["sh", "-c", "touch $HOME/x; echo $HOME"], timeout=10).stdout.strip())
    assert home != Path.home()
    assert not home.exists()


def test_a_missing_tool_is_named_with_its_package() -> None:
    with pytest.raises(ToolError, match=r"nvdisasm is missing.*nvidia-cuda-nvdisasm"):
        run_tool(["nvdisasm"], timeout=10, env={"PATH": "/nowhere"})


def test_a_file_that_is_no_program_is_a_tool_error(tmp_path: Path) -> None:
    program = tmp_path / "ncu"
    program.write_bytes(b"\x7fELF nonsense")
    program.chmod(0o755)
    with pytest.raises(ToolError, match="cannot be started"):
        run_tool([program], timeout=10)


def test_limits_hold_for_memory_and_files(tmp_path: Path) -> None:
    limits = Limits(address_space=256 * 2**20, file_size=4096, cpu_seconds=10)
    written = run_tool(["dd", "if=/dev/zero", f"of={tmp_path}/x", "bs=1024", "count=64"], timeout=10, limits=limits)
    assert written.returncode != 0
    assert (tmp_path / "x").stat().st_size == 4096
    hungry = run_tool(["dd", "if=/dev/zero", "of=/dev/null", "bs=1G", "count=1"], timeout=10, limits=limits)
    assert hungry.returncode == 1
    assert "memory" in hungry.stderr


def test_a_limit_of_processor_time_ends_a_tool_by_its_own_signal() -> None:
    limits = Limits(address_space=2**32, file_size=4096, cpu_seconds=1)
    call = run_tool(["sh", "-c", "while :; do :; done"], timeout=20, limits=limits)
    assert call.returncode == -24  # SIGXCPU


def test_shortening_keeps_short_text_and_both_ends_of_long_text() -> None:
    assert shorten("short", 100) == "short"
    assert shorten("a" * 100 + "b" * 100, 10) == "aaaaa\n[... 190 bytes left out ...]\nbbbbb"


def test_no_descriptor_leaks_into_a_tool() -> None:
    descriptor = os.open("/dev/null", os.O_RDONLY)
    try:
        open_in_tool = run_tool(["ls", "/proc/self/fd"], timeout=10).stdout.split()
    finally:
        os.close(descriptor)
    assert set(open_in_tool) == {"0", "1", "2", "3"}  # 3 is ls reading the folder
