"""Reads what the user names as KERNEL into a candidate; whether it compiles or is right is not asked here."""

from __future__ import annotations

import stat
from pathlib import Path

from pydantic import ValidationError

from ptxbench.errors import CandidateError
from ptxbench.schema.candidate import MAX_SOURCE_BYTES, Candidate, SourceFile
from ptxbench.schema.trace import candidate_of, read_solution
from ptxbench.schema.values import Target

SOURCE_SUFFIXES = (".cu", ".cuh", ".h", ".hpp", ".hh", ".c", ".cc", ".cpp", ".inc", ".inl", ".ptx")
MAX_FILES = 256


def read_candidate(path: Path) -> Candidate:
    """The candidate in a `.cu` file, a folder of sources, or a FlashInfer-Trace solution (`.json`).

    Raises:
        CandidateError: It cannot be read as one; the message says why.
    """
    try:
        if path.is_dir():
            return _from_folder(path)
        _require_file(path)
        if path.suffix == ".json":
            return candidate_of(read_solution(path), path.parent)
        if path.suffix != ".cu":
            raise CandidateError(
                f"{path} is not a kernel: its name ends in {path.suffix or 'nothing'}.",
                "Give a .cu file, a folder with one, or a FlashInfer-Trace solution (.json).",
            )
        return Candidate.from_source(_read(path), name=_name(path))
    except ValidationError as error:
        reasons = "; ".join(item["msg"].removeprefix("Value error, ") for item in error.errors())
        raise CandidateError(f"{path}: {reasons}.", "Change the sources accordingly.") from None


def _name(path: Path) -> str:
    """The file's name; a file called after a target is told apart by its folder."""
    is_target = path.stem in {target.value for target in Target}
    return f"{path.absolute().parent.name}/{path.stem}" if is_target else path.stem


def _from_folder(folder: Path) -> Candidate:
    found = sorted(path for path in folder.rglob("*") if path.suffix in SOURCE_SUFFIXES and path.is_file())
    if len(found) > MAX_FILES:
        raise CandidateError(f"{folder} holds {len(found)} source files.", f"Name a folder of at most {MAX_FILES}.")
    kernels = [path for path in found if path.suffix == ".cu"]
    entry = kernels[0] if len(kernels) == 1 else folder / "kernel.cu"
    if entry not in kernels:
        names = ", ".join(str(path.relative_to(folder)) for path in kernels[:5]) or "none"
        raise CandidateError(
            f"{folder} does not say which .cu file is the kernel; it has {names}.",
            "Name the file itself, or call the one to be compiled kernel.cu.",
        )
    sources = tuple(SourceFile(path=path.relative_to(folder).as_posix(), content=_read(path)) for path in found)
    return Candidate(sources=sources, entry_file=entry.relative_to(folder).as_posix(), name=folder.name)


def _require_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise CandidateError(f"{path}: {error.strerror}.", "Name a .cu file that exists and can be read.") from None
    if not stat.S_ISREG(mode):
        raise CandidateError(f"{path} is no regular file.", "Name a .cu file.")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_SOURCE_BYTES + 1)
    except OSError as error:
        raise CandidateError(f"{path}: {error.strerror}.", "Name a file that can be read.") from None
    if not data.strip():
        raise CandidateError(f"{path} is empty.", "Write a kernel with an exported `run` into it.")
    if len(data) > MAX_SOURCE_BYTES:
        raise CandidateError(f"{path} is larger than {MAX_SOURCE_BYTES} bytes.", "No kernel needs it; name a source.")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise CandidateError(f"{path} is not text.", "Name a source file in UTF-8, not a compiled one.")
    return text
