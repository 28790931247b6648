"""Writes a run's folder so that it is readable whenever the process dies; it decides nothing about the run."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import IO

from pydantic import BaseModel

from ptxbench.errors import RecordError
from ptxbench.records.layout import RunFolder
from ptxbench.records.read import read_document, read_journal
from ptxbench.schema.journal import Fault, JournalEntry
from ptxbench.schema.turn import Run, SampleKey, Trajectory

_PARTIAL = ".*.json.*"
"""Files whose writing was cut short by a crash."""


class RunStore:
    """The folder of one run, held by this process alone until `close`."""

    def __init__(self, folder: RunFolder) -> None:
        """Make the folder where it is missing, and lock it.

        Raises:
            RecordError: It cannot be written to, or another process writes into it.
        """
        self.folder = folder
        try:
            folder.trajectories.mkdir(parents=True, exist_ok=True)
            self._lock: IO[bytes] = folder.lock.open("ab")
        except OSError as error:
            raise _refused(folder.root, error) from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._lock.close()
            what = f"Another process is writing into {folder.root}."
            raise RecordError(what, "Wait for it, or name another folder with -o.") from None
        for left in (*folder.root.glob(_PARTIAL), *folder.trajectories.glob(_PARTIAL)):
            left.unlink()

    def close(self) -> None:
        """Let go of the folder."""
        self._lock.close()

    def run(self) -> Run | None:
        """The run's first document; None in a new folder.

        Raises:
            RecordError: It is damaged.
        """
        return read_document(self.folder.run, Run) if self.folder.run.is_file() else None

    def save_run(self, run: Run) -> None:
        """Write the run's first document."""
        write_whole(self.folder.run, run.model_dump_json(indent=2))

    def trajectory(self, key: SampleKey) -> Trajectory | None:
        """A conversation as far as it went.

        Raises:
            RecordError: It is damaged.
        """
        path = self.folder.trajectory(key)
        return read_document(path, Trajectory) if path.is_file() else None

    def save(self, trajectory: Trajectory) -> None:
        """Replace a conversation's document."""
        write_whole(self.folder.trajectory(trajectory.key), trajectory.model_dump_json(indent=1))

    def answers(self, key: SampleKey) -> tuple[JournalEntry, ...]:
        """The paid answers of a conversation.

        Raises:
            RecordError: The journal is damaged.
        """
        return read_journal(self.folder.journal(key))

    def record_answer(self, key: SampleKey, entry: JournalEntry) -> None:
        """Write a paid answer down; it is on the disk when this returns."""
        append_line(self.folder.journal(key), entry)

    def record_fault(self, fault: Fault) -> None:
        """Write a fault of the infrastructure down."""
        append_line(self.folder.faults, fault)


def write_whole(path: Path, text: str) -> None:
    """Write a file that appears, or is replaced, whole.

    Raises:
        RecordError: It cannot be written; what was there before still is.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise _refused(path, error) from None


def append_line(path: Path, document: BaseModel) -> None:
    """Append one document as a line, and wait until the disk has it; a line cut off by a crash before is removed.

    Raises:
        RecordError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+") as file:
            _drop_cut_line(file)
            file.write(document.model_dump_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise _refused(path, error) from None


def _drop_cut_line(file: IO[bytes]) -> None:
    end = file.seek(0, os.SEEK_END)
    if end == 0:
        return
    file.seek(end - 1)
    if file.read(1) != b"\n":
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)


def _refused(path: Path, error: OSError) -> RecordError:
    what = f"{path} cannot be written: {error.strerror}."
    return RecordError(what, "Free space, or name another folder with -o; what was written before is untouched.")
