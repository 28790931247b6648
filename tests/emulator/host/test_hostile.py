"""Host code that means harm, or is just wrong, ends as a result within its time and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from ptxbench.emulator.host.process import record
from ptxbench.emulator.host.record import TensorArgument
from ptxbench.schema.problem import DType
from ptxbench.schema.values import Unavailable
from ptxbench.settings import Settings
from ptxbench.toolchain.confine import confinement

from .conftest import Call, X


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("touches_device_memory", "crashed", "Device memory cannot be touched by the host"),
        ("touches_allocation", "crashed", "SIGSEGV"),
        ("throws", "raised", "ValueError: no such shape"),
        ("aborts", "crashed", "SIGABRT"),
        ("exits", "crashed", "status 0"),
        ("leaves", "crashed", "status 7"),
        ("recurses", "crashed", "SIGSEGV"),
        ("allocates", "raised", "bad_alloc"),
        ("floods", "excess", "20000 calls"),
        ("copies_without_end", "excess", "256 MiB"),
        ("talks_nonsense", "crashed", "connection"),
        ("closes_everything", "crashed", "connection"),
        ("chatters", "returned", ""),
        ("forges_words", "returned", ""),
        ("escapes", "returned", ""),
        ("no_such_function", "no_symbol", "__tvm_ffi_no_such_function"),
    ],
)
def test_harmful_host_code_ends_as_a_result(call: Call, name: str, kind: str, message: str) -> None:
    made = call(name, seconds=60)
    assert (made.ending.kind, message in made.ending.message) == (kind, True), made.ending
    assert made.replayable == (kind == "returned")


@pytest.mark.parametrize("name", ["loops", "sleeps"])
def test_host_code_without_an_end_is_ended(call: Call, name: str) -> None:
    before = time.monotonic()
    assert call(name, seconds=1).ending.kind == "timeout"
    assert time.monotonic() - before < 20


def test_host_code_writes_no_file(call: Call) -> None:
    victim = Path("/tmp/ptxbench-victim")
    victim.touch()
    try:
        call("escapes")
        assert victim.exists()
    finally:
        victim.unlink()
    assert not Path("/tmp/ptxbench-was-here").exists()
    assert not Path("/dev/shm/ptxbench-was-here").exists()


def test_host_code_reads_no_file_of_others(call: Call, settings: Settings) -> None:
    if isinstance(confinement(settings), Unavailable):
        pytest.skip("this kernel confines no files (no Landlock)")
    assert call("reads_files").ending.kind == "returned"


def _children() -> set[str]:
    """Processes whose parent is this one, as /proc tells (proc(5): the fourth field of stat, behind the name)."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(path.parent.name)
    return found


def test_no_process_is_left_behind(call: Call) -> None:
    before = _children()
    call("loops", seconds=1)
    assert _children() <= before


def test_arguments_may_share_pages(library: Path, settings: Settings) -> None:
    second = TensorArgument(address=X.address + X.size, shape=(64,), dtype=DType.FLOAT32)
    made = record(library, "launches", [X], settings)
    assert made.ending.kind == "returned"
    assert record(library, "launches", [X, second], settings).ending.kind == "raised"  # it takes one argument


def test_a_library_that_does_not_load_is_a_result(tmp_path: Path, settings: Settings, library: Path) -> None:
    damaged = tmp_path / "kernel.so"
    damaged.write_bytes(library.read_bytes().replace(b"cudaDeviceSynchronize", b"cudaDeviceSynchronixe"))
    made = record(damaged, "launches", [X], settings)
    assert made.ending.kind == "not_loaded"
    assert "cudaDeviceSynchronixe" in made.ending.message
