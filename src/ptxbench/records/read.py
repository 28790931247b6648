"""Reads runs back: folders of `ptxbench run`, and `.eval` logs of `inspect eval`; it changes and computes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ptxbench.errors import RecordError
from ptxbench.records.layout import METADATA_KEY, RUN, STORE_KEY, RunFolder
from ptxbench.records.rows import TurnRow, rows_of
from ptxbench.schema.journal import Fault, JournalEntry
from ptxbench.schema.turn import Run, Trajectory
from ptxbench.schema.values import SCHEMA_VERSION

Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True)
class StoredRun:
    """A run as it lies on the disk.

    Attributes:
        source: Its folder, or its `.eval` log.
        run: Its first document.
    """

    source: Path
    run: Run

    def trajectories(self) -> Iterator[Trajectory]:
        """The conversations that were begun, in the plan's order, read one at a time; running ones too.

        Raises:
            RecordError: One is damaged; the message names the file.
        """
        yield from _from_log(self.source) if self.source.suffix == ".eval" else self._from_folder()

    def rows(self) -> Iterator[TurnRow]:
        """One flat row for each turn, in the order of `trajectories`.

        Raises:
            RecordError: A conversation is damaged.
        """
        for trajectory in self.trajectories():
            yield from rows_of(self.run, trajectory)

    def faults(self) -> tuple[Fault, ...]:
        """Faults of the infrastructure; a log holds none.

        Raises:
            RecordError: The file is damaged.
        """
        path = RunFolder(self.source).faults
        return read_lines(path, Fault) if path.is_file() else ()

    def _from_folder(self) -> Iterator[Trajectory]:
        folder = RunFolder(self.source)
        for key in self.run.plan.keys:
            path = folder.trajectory(key)
            if path.is_file():
                trajectory = read_document(path, Trajectory)
                if trajectory.key != key:
                    raise RecordError(
                        f"{path} holds the trajectory {trajectory.key.name}.", "Put the right file there."
                    )
                yield trajectory


def read_run(source: Path) -> StoredRun:
    """A run by its folder or its `.eval` log; the conversations are read when they are asked for.

    Raises:
        RecordError: There is no run, or its first document is damaged or of another schema version.
    """
    if source.suffix == ".eval" and source.is_file():
        return StoredRun(source, _run_of_log(source))
    if not source.exists():
        raise RecordError(f"There is no run at {source}.", "Name a folder that `ptxbench run -o` wrote.")
    path = RunFolder(source).run
    if not path.is_file():
        raise RecordError(f"{source} is no run: it has no {RUN}.", "Name a folder that `ptxbench run -o` wrote.")
    return StoredRun(source, read_document(path, Run))


def read_document(path: Path, model: type[Document]) -> Document:
    """One JSON document.

    Raises:
        RecordError: It cannot be read, or is not what `model` describes.
    """
    try:
        return model.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RecordError(f"{path} cannot be read: {error.strerror}.", "Check the file's rights.") from None
    except ValidationError as fault:
        raise damaged(str(path), model, fault) from None


def read_journal(path: Path) -> tuple[JournalEntry, ...]:
    """The paid answers of one conversation; none where there is no file.

    Raises:
        RecordError: A line that was written whole is damaged.
    """
    return read_lines(path, JournalEntry) if path.is_file() else ()


def read_lines(path: Path, model: type[Document]) -> tuple[Document, ...]:
    """One JSON document a line. What follows the last line end was cut off while it was written, and is left out.

    Raises:
        RecordError: A complete line is damaged.
    """
    lines = path.read_bytes().split(b"\n")[:-1]
    documents = []
    for number, line in enumerate(lines, 1):
        try:
            documents.append(model.model_validate_json(line))
        except ValidationError as fault:
            raise damaged(f"{path}, line {number},", model, fault) from None
    return tuple(documents)


def damaged(where: str, model: type[BaseModel], fault: ValidationError) -> RecordError:
    """The error for a document that is not what it should be."""
    first = fault.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    detail = f"{place}: {first['msg']}" if place else first["msg"]
    remedy = f"It must be a {model.__name__} of schema {SCHEMA_VERSION}. "
    if model is Trajectory:
        remedy += "Move it away: a resumed run makes it again from the journal, and pays nothing twice."
    else:
        remedy += "Restore it from a copy, or read it with the version of ptxbench that wrote it."
    return RecordError(f"{where} is damaged ({detail}).", remedy)


def _run_of_log(path: Path) -> Run:
    header = _inspect_log(path).read_eval_log(str(path), header_only=True)
    found = (header.eval.metadata or {}).get(METADATA_KEY)
    if found is None:
        raise RecordError(f"{path} is the log of another task.", "Name a log of the task ptxbench/suite.")
    return _validated(found, Run, path)


def _from_log(path: Path) -> Iterator[Trajectory]:
    for sample in _inspect_log(path).read_eval_log_samples(str(path), all_samples_required=False):
        found = sample.store.get(STORE_KEY)
        if found is not None:
            yield _validated(found, Trajectory, path)


def _validated(found: object, model: type[Document], path: Path) -> Document:
    try:
        return model.model_validate(found)
    except ValidationError as fault:
        raise damaged(str(path), model, fault) from None


def _inspect_log(path: Path) -> ModuleType:
    try:
        from inspect_ai import log  # noqa: PLC0415  (an extra: only logs need it)
    except ImportError:
        what = f"Reading {path} needs Inspect AI, which is not installed."
        raise RecordError(what, "Install it with `pip install 'ptxbench[agent]'`.") from None
    return log
