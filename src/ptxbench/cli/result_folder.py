"""Writes the result of one evaluation into the folder of `-o`; nothing that is there already is lost on a fault."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ptxbench.errors import RecordError

VERDICT = "verdict.json"
"""Written last: where it is, the other files belong to it."""


def prepare_folder(folder: Path) -> None:
    """Make the folder and show that it can be written to, before an evaluation is spent on it.

    Raises:
        RecordError: It cannot.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".ptxbench-") as probe:
            probe.write(b"\0" * 4096)
            probe.flush()
    except OSError as error:
        raise _refused(folder, error) from None


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write `files` (name to text); each appears whole, by rename, and in the order given, all after all were written.

    Raises:
        RecordError: The disk is full or the folder cannot be written to; what was there before is still there.
    """
    partial = {name: folder / f".{name}.{os.getpid()}" for name in files}
    try:
        for name, text in files.items():
            with partial[name].open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        for name, path in partial.items():
            path.replace(folder / name)
    except OSError as error:
        raise _refused(folder, error) from None
    finally:
        for path in partial.values():
            path.unlink(missing_ok=True)


def _refused(folder: Path, error: OSError) -> RecordError:
    return RecordError(
        f"The result cannot be written to {folder}: {error.strerror}.",
        "Free space or name another folder with -o; what was there before is untouched.",
    )
