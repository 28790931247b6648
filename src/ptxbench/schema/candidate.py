"""A candidate: the kernel sources under test and how to call them; not whether they are right."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Self

from pydantic import field_validator, model_validator

from ptxbench.schema.values import Frozen, content_hash

MAX_SOURCE_BYTES = 4 * 2**20
"""A candidate larger than this is refused: model answers are hostile text, and no kernel needs it."""


class SourceFile(Frozen):
    """One file of a candidate; `path` is relative, normalised, and below the build folder."""

    path: str
    content: str

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        pure = PurePosixPath(path)
        if not path or pure.is_absolute() or ".." in pure.parts or str(pure) != path or "\0" in path:
            raise ValueError(f"source path {path!r} must be relative, normalised and without '..'")
        return path


class Candidate(Frozen):
    """Kernel source(s) under test; its id is the hash of its content."""

    sources: tuple[SourceFile, ...]
    entry_file: str
    """The source that is compiled; the others are found beside it."""
    entry_symbol: str = "run"
    destination_passing_style: bool = True
    """Outputs are arguments after the inputs. The only convention that is evaluated."""
    name: str = ""
    """For people; not part of the identity."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        paths = [source.path for source in self.sources]
        if len(set(paths)) != len(paths):
            raise ValueError("two sources have the same path")
        if self.entry_file not in paths:
            raise ValueError(f"entry file {self.entry_file!r} is not among the sources")
        if not self.entry_symbol.isidentifier():
            raise ValueError(f"entry symbol {self.entry_symbol!r} is not an identifier")
        if sum(len(source.content.encode()) for source in self.sources) > MAX_SOURCE_BYTES:
            raise ValueError(f"the sources are larger than {MAX_SOURCE_BYTES} bytes")
        return self

    @classmethod
    def from_source(cls, content: str, name: str = "", path: str = "kernel.cu") -> Candidate:
        """A candidate of a single CUDA source."""
        return cls(sources=(SourceFile(path=path, content=content),), entry_file=path, name=name)

    @property
    def id(self) -> str:
        """Content hash (hex SHA-256) over sources, entry point and calling convention; see `content_hash`."""
        fields = ["ptxbench.candidate.v1", self.entry_file, self.entry_symbol, str(self.destination_passing_style)]
        for source in sorted(self.sources, key=lambda item: item.path):
            fields += [source.path, source.content]
        return content_hash(fields)

    @property
    def entry_source(self) -> str:
        """Text of the compiled source."""
        return next(source.content for source in self.sources if source.path == self.entry_file)
