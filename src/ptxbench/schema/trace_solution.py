"""FlashInfer-Trace solutions in all dialects; whether one can be evaluated is decided by `trace_convert`."""

from __future__ import annotations

import hashlib
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import Field, StrictBool, StrictStr, model_validator

from ptxbench.schema.trace_base import FileName, SourcePath, Text, TraceModel


class Source(TraceModel):
    """One file of a solution."""

    path: SourcePath
    content: StrictStr | None = None
    """SOL-ExecBench may leave it out: the file then lies beside the solution's JSON."""


class BuildSpec(TraceModel):
    """How a solution is built and called."""

    language: Text | None = None
    """`cuda`, `cpp`, `triton`, ...; SOL-ExecBench has `languages` instead."""
    languages: tuple[StrictStr, ...] | None = None
    target_hardware: Annotated[tuple[Text, ...], Field(min_length=1)]
    entry_point: Text
    """`file::symbol`."""
    dependencies: tuple[StrictStr, ...] = ()
    destination_passing_style: StrictBool
    """Outputs are arguments after the inputs. Projects differ in what its absence means, so it is always written."""
    binding: StrictStr | None = None
    """`tvm-ffi` (also meant by null for C++ and CUDA) or `torch`."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.language is None and self.languages is None:
            raise ValueError("a 'language', or a list of 'languages', is needed")
        file, separator, symbol = self.entry_point.partition("::")
        if not (file and separator and symbol) or "::" in symbol:
            raise ValueError(f"entry_point {self.entry_point!r} is not of the form file::symbol")
        return self

    @property
    def entry_file(self) -> str:
        """The file part of the entry point."""
        return self.entry_point.partition("::")[0]

    @property
    def entry_symbol(self) -> str:
        """The symbol part of the entry point."""
        return self.entry_point.partition("::")[2]


class Solution(TraceModel):
    """Sources that claim to implement a definition."""

    name: FileName
    definition: FileName
    author: FileName
    spec: BuildSpec
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    description: StrictStr | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        paths = [normalised(source.path) for source in self.sources]
        twice = {path for path in paths if paths.count(path) > 1}
        if twice:
            raise ValueError(f"two sources have the path {', '.join(sorted(twice))}")
        if normalised(self.spec.entry_file) not in paths:
            raise ValueError(f"the entry file {self.spec.entry_file!r} is not among the sources")
        return self


def normalised(path: str) -> str:
    """The one spelling of a relative path: `./a//b` is `a/b`."""
    return str(PurePosixPath(path))


def flashinfer_bench_hash(solution: Solution, include_name: bool = False) -> str:
    """The SHA-1 (hex) that FlashInfer-Bench knows a solution by; for names, not for identity.

    Their definition, without separators or lengths: definition, language, entry point, binding, dependencies, then
    path and content of each source; release 0.1.2 puts the name first. Different solutions can share it (it says
    nothing of the calling convention, and fields run together), so ptxbench's own identity is `Candidate.id`.
    """
    spec = solution.spec
    fields = [solution.name] if include_name else []
    fields += [solution.definition, spec.language or "", spec.entry_point, spec.binding or "", *spec.dependencies]
    for source in solution.sources:
        fields += [source.path, source.content or ""]
    return hashlib.sha1("".join(fields).encode(), usedforsecurity=False).hexdigest()


def unique_name(solution: Solution) -> str:
    """The name under which FlashInfer-Bench's server stores a solution: the name and eight digits of its hash."""
    return f"{solution.name}_{flashinfer_bench_hash(solution)[:8]}"
