"""Entries are whole or absent, whoever builds, dies or tampers meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptxbench.errors import RecordError
from ptxbench.schema.values import content_hash
from ptxbench.toolchain.cache import Cache

KEY = content_hash(["a key"])

MAKE = """
import sys, time
from pathlib import Path
from ptxbench.toolchain.cache import Cache
cache, key, seconds = Cache(Path(sys.argv[1])), sys.argv[2], float(sys.argv[3])
with cache.locked(key):
    entry = cache.find(key)
    made = entry is None
    if made:
        with cache.workspace() as folder:
            (folder / "half").write_text("half")
            print("working", flush=True)
            time.sleep(seconds)
            (folder / "rest").write_text("rest")
            entry = cache.publish(key, folder)
print("made" if made else "found", *sorted(path.name for path in entry.iterdir()), flush=True)
"""


def _maker(root: Path, seconds: float) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", MAKE, str(root), KEY, str(seconds)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)


def _publish(cache: Cache, key: str, size: int = 4) -> Path:
    with cache.workspace() as folder:
        (folder / "file").write_bytes(b"x" * size)
        return cache.publish(key, folder)


def test_an_entry_is_found_as_it_was_published(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    assert cache.find(KEY) is None
    assert _publish(cache, KEY) == cache.find(KEY)
    assert (tmp_path / "entries" / KEY[:2] / KEY / "file").read_bytes() == b"xxxx"


def test_eight_concurrent_makers_make_an_entry_once(tmp_path: Path) -> None:
    makers = [_maker(tmp_path, 0.2) for _ in range(8)]
    outputs = [maker.communicate(timeout=60)[0].splitlines()[-1] for maker in makers]
    assert sorted(outputs) == ["found half manifest.json rest"] * 7 + ["made half manifest.json rest"]


def test_a_maker_killed_in_the_middle_leaves_no_entry_and_blocks_no_one(tmp_path: Path) -> None:
    victim = _maker(tmp_path, 60)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "working\n"
    waiting = _maker(tmp_path, 0)
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    assert waiting.communicate(timeout=30)[0].splitlines()[-1] == "made half manifest.json rest"


def test_what_dead_makers_left_is_swept_and_the_work_of_living_ones_is_not(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    left = tmp_path / "work" / "left"
    left.mkdir()
    (left / "half").touch()
    with cache.workspace() as living:
        for folder in (left, living):
            os.utime(folder, (time.time() - 3600, time.time() - 3600))
        _publish(cache, KEY)
        assert not left.exists()
        assert living.exists()


@pytest.mark.parametrize("harm", ["changed", "missing", "added", "no manifest"])
def test_a_corrupted_entry_is_not_found_and_can_be_made_again(tmp_path: Path, harm: str) -> None:
    cache = Cache(tmp_path)
    entry = _publish(cache, KEY)
    if harm == "changed":
        (entry / "file").write_bytes(b"xxxy")
    elif harm == "missing":
        (entry / "file").unlink()
    elif harm == "added":
        (entry / "more").touch()
    else:
        (entry / "manifest.json").unlink()
    assert cache.find(KEY) is None
    assert not entry.exists()
    assert cache.find(KEY) is None
    assert _publish(cache, KEY) == cache.find(KEY)


@given(st.binary(max_size=200))
def test_no_manifest_makes_the_cache_fail(tmp_path_factory: pytest.TempPathFactory, manifest: bytes) -> None:
    cache = Cache(tmp_path_factory.mktemp("cache"))
    (_publish(cache, KEY) / "manifest.json").write_bytes(manifest)
    assert cache.find(KEY) is None


def test_the_second_of_two_makers_keeps_the_firsts_entry(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first = _publish(cache, KEY, size=1)
    assert _publish(cache, KEY, size=2) == first
    assert (first / "file").read_bytes() == b"x"


def test_the_least_recently_used_entries_go_first_and_recent_ones_stay(tmp_path: Path) -> None:
    cache = Cache(tmp_path, size_limit=2500)
    keys = [content_hash([str(i)]) for i in range(4)]
    entries = [_publish(cache, key, size=1000) for key in keys[:2]]
    old = time.time() - 7200
    os.utime(entries[0], (old, old))
    os.utime(entries[1], (old - 60, old - 60))
    assert cache.find(keys[1]) is not None  # used now
    entries += [_publish(cache, key, size=1000) for key in keys[2:]]
    assert [entry.exists() for entry in entries] == [False, True, True, True]


def test_a_cache_that_cannot_be_written_is_named_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="PTXBENCH_CACHE"):
        Cache(tmp_path / "file" / "cache")


def test_a_full_disk_is_an_error_of_the_machine() -> None:
    script = (
        "import sys; from pathlib import Path; from ptxbench.toolchain.cache import Cache\n"
        "from ptxbench.errors import RecordError\n"
        "cache = Cache(Path(sys.argv[1]))\n"
        "try:\n"
        "    with cache.workspace() as folder:\n"
        "        (folder / 'file').write_text('text')\n"
        "        with Path(sys.argv[1], 'filler').open('wb', buffering=0) as filler:\n"
        "            try:\n"
        "                while filler.write(b'x' * 4096): pass\n"
        "            except OSError: pass\n"
        "        cache.publish('ab' * 32, folder)\n"
        "except RecordError as error: print(error)\n"
    )
    # A small file system, which only this process sees.
    mounted = 'mount -t tmpfs -o size=96k tmpfs /mnt && exec "$@"'
    command = ["unshare", "-Urm", "sh", "-c", mounted, "sh", sys.executable, "-c", script, "/mnt"]
    called = subprocess.run(command, capture_output=True, text=True, check=False)
    if called.returncode != 0 and "unshare" in called.stderr:
        pytest.skip("this machine gives no user namespaces, so no small file system can be mounted")
    assert "No space left on device" in called.stdout, called.stderr
