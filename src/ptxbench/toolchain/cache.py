"""A content-addressed store of complete folders, safe under concurrent makers and kill -9; it knows no content.

Layout below its root: `entries/<2 hex>/<key>/` (complete, never changed), `work/` (being made), `locks/`. A folder
becomes an entry by one rename, with `manifest.json` inside that holds the SHA-256 of each of its files.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ptxbench.errors import RecordError

MANIFEST = "manifest.json"
SIZE_LIMIT = 4 * 2**30
"""Bytes that entries may take before the least recently used ones are removed."""

_IN_USE = 3600.0
"""Seconds after its last use during which an entry is never removed: someone may hold its path."""

_SETTLED = 60.0
"""Seconds after which a work folder without a lock has lost its owner; a younger one may be about to be locked."""


class Cache:
    """The store below one folder."""

    def __init__(self, root: Path, size_limit: int = SIZE_LIMIT) -> None:
        self._entries = root / "entries"
        self._work = root / "work"
        self._locks = root / "locks"
        self._size_limit = size_limit
        with _writing(root):
            for folder in (self._entries, self._work, self._locks):
                folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self, key: str) -> Iterator[None]:
        """Be the only maker of `key`; the system releases the lock of a process that dies.

        Raises:
            RecordError: The lock cannot be written.
        """
        with _writing(self._locks):
            # Shared by all keys of one prefix: 256 files in all, never removed, so that no one locks a removed file.
            descriptor = os.open(self._locks / key[:2], os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def find(self, key: str) -> Path | None:
        """The entry of `key`, or None; one whose files are not those that were stored is removed."""
        entry = self._entries / key[:2] / key
        if not entry.is_dir():
            return None
        if not _intact(entry):
            self._remove(entry)
            return None
        with contextlib.suppress(OSError):  # a cache that may only be read keeps no order of use
            os.utime(entry)
        return entry

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh folder on the cache's file system; it is gone afterwards unless it was published.

        Raises:
            RecordError: It cannot be made.
        """
        with _writing(self._work):
            folder = Path(tempfile.mkdtemp(dir=self._work))
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)

    def publish(self, key: str, folder: Path) -> Path:
        """Make `folder` (inside a workspace, holding plain files and folders) the entry of `key`.

        If another process was first, its entry is kept and returned.

        Raises:
            RecordError: The disk is full or the cache cannot be written.
        """
        entry = self._entries / key[:2] / key
        with _writing(self._entries):
            manifest = {str(path.relative_to(folder)): _sha256(path) for path in _files(folder)}
            (folder / MANIFEST).write_text(json.dumps(manifest, sort_keys=True))
            entry.parent.mkdir(exist_ok=True)
            try:
                folder.rename(entry)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
        self._sweep()
        return entry

    def _sweep(self) -> None:
        """Remove what dead makers left, then the least recently used entries beyond the size limit."""
        now = time.time()
        for folder in _listing(self._work):
            if _age(folder, now) > _SETTLED and _ownerless(folder):
                shutil.rmtree(folder, ignore_errors=True)
        entries = sorted(_use(entry) for prefix in _listing(self._entries) for entry in _listing(prefix))
        excess = sum(size for _, size, _ in entries) - self._size_limit
        for used, size, entry in entries:
            if excess <= 0 or now - used < _IN_USE:
                break
            self._remove(entry)
            excess -= size

    def _remove(self, entry: Path) -> None:
        """Take an entry out of sight by one rename, then delete it: no one ever sees half of it."""
        try:
            grave = Path(tempfile.mkdtemp(dir=self._work))
            entry.rename(grave / entry.name)
        except FileNotFoundError:
            return  # another process was first
        except OSError as error:
            raise RecordError(f"{entry} cannot be removed: {error.strerror}.", "Remove the folder by hand.") from error
        shutil.rmtree(grave, ignore_errors=True)


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(
            f"The cache {folder} cannot be written: {error.strerror}.",
            "Free some space, or set PTXBENCH_CACHE to a folder that can be written.",
        ) from error


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _listing(folder: Path) -> list[Path]:
    with contextlib.suppress(FileNotFoundError):
        return sorted(folder.iterdir())
    return []


def _use(entry: Path) -> tuple[float, int, Path]:
    """When an entry was last used (Unix time), and its bytes; zeros once another process removed it."""
    used, size = 0.0, 0
    with contextlib.suppress(FileNotFoundError):
        used = entry.stat().st_mtime
        size = sum(path.stat().st_size for path in _files(entry))
    return used, size, entry


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _intact(entry: Path) -> bool:
    """Whether the entry holds exactly the files of its manifest with their content."""
    try:
        manifest = json.loads((entry / MANIFEST).read_bytes())
        found = {str(path.relative_to(entry)): _sha256(path) for path in _files(entry) if path.name != MANIFEST}
    except (OSError, ValueError):
        return False
    return bool(manifest == found)


def _age(folder: Path, now: float) -> float:
    with contextlib.suppress(FileNotFoundError):
        return now - folder.stat().st_mtime
    return 0.0


def _ownerless(folder: Path) -> bool:
    """Whether no living process holds the lock of a work folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
