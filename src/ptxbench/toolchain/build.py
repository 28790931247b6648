"""A candidate's source to a shared object for one target, once per content; whether it may be run is not asked here.

The source is first compiled with slim headers of our own for the TVM-FFI binding (`include/`), which take a fraction of
the time of the real ones. Whatever fails with them is compiled again with the real headers, and that result counts.
"""

from __future__ import annotations

import functools
import importlib.metadata
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from ptxbench.errors import CandidateError, RecordError
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.stages import BuildStage, Diagnostic, Outcome, Reason
from ptxbench.schema.values import Target, content_hash
from ptxbench.settings import Settings
from ptxbench.toolchain.cache import Cache
from ptxbench.toolchain.compile import Compilation, compile_once, compile_words
from ptxbench.toolchain.includes import refused_includes, safe_name
from ptxbench.toolchain.toolkit import CUDART, find_toolkit, find_tvm_ffi, host_compiler

LIBRARY = "kernel.so"
PTX = "kernel.ptx"
STAGE = "stage.json"

SLIM_HEADERS = Path(__file__).parent / "include"


@dataclass(frozen=True)
class Built:
    """What became of a build.

    Attributes:
        stage: The typed result.
        library: The shared object in the cache; None unless the stage passed. It is never changed, and not removed
            within an hour of its last use.
        ptx: The PTX text that became its machine code, with line information, beside it.
    """

    stage: BuildStage
    library: Path | None
    ptx: Path | None = None


def build(candidate: Candidate, target: Target, settings: Settings) -> Built:
    """Compile `candidate` for `target`, or take the result of an earlier build of the same content.

    The result's `key` covers the candidate, target, flags, headers and versions of everything that decides the output.
    Passing builds and compile errors are kept; timeouts and crashes of the compiler are not.

    Raises:
        CandidateError: The entry file's name has characters that cannot be given to a compiler.
        ToolError: A tool is missing or was killed from outside (often: out of memory).
        RecordError: The disk is full or the cache cannot be written.
    """
    started = time.time()
    began = time.monotonic()

    def stamped(built: Built, from_cache: bool) -> Built:
        seconds = time.monotonic() - began
        stage = built.stage.model_copy(update={"started": started, "seconds": seconds, "from_cache": from_cache})
        return replace(built, stage=stage)

    if not safe_name(candidate.entry_file):
        raise CandidateError(
            f"The entry file's name {candidate.entry_file!r} cannot be given to a compiler.",
            "Use letters, digits, '_', '.', '+', '-' and '/' only.",
        )
    key = build_key(candidate, target, settings)
    refused = refused_includes(candidate)
    if refused:
        return stamped(Built(_refused(key, refused), None), from_cache=False)
    cache = Cache(settings.cache / "builds")
    if found := _cached(cache, key):
        return stamped(found, from_cache=True)
    with cache.locked(key):
        if found := _cached(cache, key):  # another builder made it while this one waited
            return stamped(found, from_cache=True)
        with cache.workspace() as folder:
            return stamped(_build_in(folder, cache, key, (candidate, target, settings)), from_cache=False)


def build_key(candidate: Candidate, target: Target, settings: Settings) -> str:
    """Content hash of everything that decides the build's output.

    Raises:
        ToolError: A tool is missing.
    """
    toolkit, ffi = find_toolkit(settings), find_tvm_ffi()
    return content_hash(
        [
            "ptxbench.build.v2",
            candidate.id,
            target.value,
            *compile_words(target),
            _slim_headers_hash(),
            *("nvcc", toolkit.version, toolkit.source),
            *("g++", host_compiler(settings).version),
            *("tvm-ffi", ffi.version),
            *("cudart", CUDART, _cudart_version(toolkit.source)),
        ]
    )


def _build_in(folder: Path, cache: Cache, key: str, what: tuple[Candidate, Target, Settings]) -> Built:
    """Compile in `folder`, with each set of headers in turn until one succeeds, and keep what can be kept."""
    candidate, target, settings = what
    toolkit = find_toolkit(settings)
    compilation: Compilation | None = None
    headers: Literal["slim", "full"] = "full"
    for headers, include in _header_sets(candidate):
        work = folder / headers
        try:
            _write_sources(candidate, work / "sources")
        except OSError as error:
            raise RecordError(
                f"The sources cannot be written to {work}: {error.strerror}.", "Free some space, or set PTXBENCH_CACHE."
            ) from error
        compilation = compile_once(work, candidate.entry_file, target, include, settings)
        if compilation.code != "compile_error" or compilation.final:
            break
    assert compilation is not None
    stage = BuildStage(
        outcome=compilation.outcome,
        reason=compilation.reason,
        instrument=toolkit.tool,
        key=key,
        headers=headers,
        command=compilation.command,
        kernels=compilation.kernels,
        diagnostics=compilation.diagnostics,
        log=compilation.log,
    )
    if compilation.code not in ("", "compile_error"):
        return Built(stage, None)
    entry = folder / "entry"
    entry.mkdir()
    shutil.move(folder / headers / "sources", entry / "sources")
    if compilation.library is not None:
        shutil.move(compilation.library, entry / LIBRARY)
        (entry / PTX).write_text(compilation.ptx)
    (entry / STAGE).write_text(stage.model_dump_json())
    return _built(stage, cache.publish(key, entry))


def _header_sets(candidate: Candidate) -> Iterator[tuple[Literal["slim", "full"], Path]]:
    yield "slim", SLIM_HEADERS
    # Names of headers stand literally in a source (others are refused), so without these words nothing else is found.
    if any(word in source.content for source in candidate.sources for word in ("tvm", "dlpack")):
        yield "full", find_tvm_ffi().include


def _cached(cache: Cache, key: str) -> Built | None:
    entry = cache.find(key)
    if entry is None:
        return None
    try:
        stage = BuildStage.model_validate_json((entry / STAGE).read_bytes())
    except (OSError, ValidationError):
        return None  # removed meanwhile, or written by a version with other fields: built again
    return _built(stage, entry)


def _built(stage: BuildStage, entry: Path) -> Built:
    passed = stage.outcome is Outcome.PASSED
    return Built(stage, entry / LIBRARY if passed else None, entry / PTX if passed else None)


def _refused(key: str, refused: tuple[Diagnostic, ...]) -> BuildStage:
    first = refused[0]
    return BuildStage(
        outcome=Outcome.FAILED,
        reason=Reason(
            code="forbidden_include",
            message=f"{first.file}:{first.line}: {first.message}.",
            hint="Include headers of CUDA, TVM-FFI and the C++ library by name, own files by a path beside the source.",
        ),
        key=key,
        diagnostics=refused,
    )


def _write_sources(candidate: Candidate, folder: Path) -> None:
    for source in candidate.sources:
        path = folder / source.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.content)


@functools.cache
def _slim_headers_hash() -> str:
    files = sorted(path for path in SLIM_HEADERS.rglob("*") if path.is_file())
    return content_hash(part for path in files for part in (str(path.relative_to(SLIM_HEADERS)), path.read_bytes()))


@functools.cache
def _cudart_version(source: str) -> str:
    # A system toolkit's runtime has the toolkit's own version, which is part of the key already.
    return importlib.metadata.version("nvidia-cuda-runtime") if source == "wheels" else ""
