"""The policy stage (E4): may this candidate be run? It reads the source for an early word and decides by the binary.

What a binary imports and contains is evidence that no spelling of the source can hide. Beyond it lie names that are put
together at run time and handed to cudaGetDriverEntryPoint, code that is decoded in memory, and raw system calls: the
sandbox takes their effects away, and every kernel that runs is compared with the candidate's own machine code (E23).
"""

from __future__ import annotations

import functools
import re
import time
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from importlib import resources
from pathlib import Path, PurePosixPath
from typing import Literal

from ptxbench.evaluate.source_scan import pieces
from ptxbench.schema.candidate import Candidate
from ptxbench.schema.problem import Policy, Problem
from ptxbench.schema.stages import Outcome, PolicyFinding, PolicyStage, Reason
from ptxbench.schema.values import Target
from ptxbench.toolchain.elf import (
    Cubin,
    DeviceCode,
    Section,
    SharedObject,
    cubins,
    hidden_device_code,
    read_shared_object,
)
from ptxbench.toolchain.toolkit import Toolkit

EXPORT_PREFIX = "__tvm_ffi_"
"""What TVM-FFI puts before the name of an exported function."""

_NO_RUN = "no_run"
_SHT_PROGBITS, _SHT_STRTAB = 1, 3
_FATBIN_MAGIC = bytes.fromhex("50ed55ba")
_FATBIN_WRAPPER_BYTES = 24
"""Size of the one record by which a program registers its GPU code (section .nvFatBinSegment)."""

_STRING = re.compile(rb"(?<![A-Za-z0-9_])[A-Za-z_][A-Za-z0-9_]{3,127}(?=\0)")
_PTX_TEXT = re.compile(rb"\.version[ \t]+\d+\.\d+\s[^\0]{0,2000}?\.target[ \t]+sm_\d+")


@dataclass(frozen=True)
class Rule:
    """One thing no candidate may do: its name, what a breach does, and the symbols and strings that show it."""

    name: str
    says: str
    symbols: tuple[str, ...]
    strings: tuple[str, ...]


@dataclass(frozen=True)
class Rules:
    """The general rules, and the names that only a library's own code has."""

    rules: tuple[Rule, ...]
    static_symbols: tuple[str, ...]
    static_kernels: tuple[str, ...]


@functools.cache
def general_rules() -> Rules:
    """The rules of `policy_rules.toml`."""
    text = resources.files("ptxbench.evaluate").joinpath("policy_rules.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    rules = tuple(Rule(row["name"], row["says"], tuple(row["symbols"]), tuple(row["strings"])) for row in data["rule"])
    return Rules(rules, tuple(data["static"]["symbols"]), tuple(data["static"]["kernels"]))


def source_policy(candidate: Candidate, problem: Problem) -> PolicyStage:
    """An early, friendly word on the source: a forbidden include, or no trace of the entry point, is a failure.

    Comments and strings count for nothing. What passes here is decided by `binary_policy`.
    """
    started = time.time()
    own = {PurePosixPath(source.path).name for source in candidate.sources}
    findings: list[PolicyFinding] = []
    words = set[str]()
    for source in candidate.sources:
        for piece in pieces(source.content):
            if piece.kind == "word":
                words.add(piece.text)
            elif PurePosixPath(piece.text).name not in own and _forbidden_header(piece.text, problem.policy):
                evidence = f"{source.path}: #include {piece.text}"
                findings.append(
                    PolicyFinding(rule="forbidden_include", place="source", evidence=evidence, line=piece.line)
                )
    if not words & {candidate.entry_symbol, EXPORT_PREFIX + candidate.entry_symbol}:
        findings.append(_no_run(candidate, "source", "no such name in the sources"))
    return _stage(findings, started)


def binary_policy(
    library: Path, candidate: Candidate, problem: Problem, target: Target, toolkit: Toolkit
) -> PolicyStage:
    """Whether what the built `library` imports and contains is allowed; this decides.

    Raises:
        ToolError: The library is malformed, or cuobjdump cannot unpack it.
    """
    started = time.time()
    binary = _Binary.read(library, toolkit)
    shared = binary.shared
    findings = [
        *_foreign_code(binary, target),
        *_library_remains(binary),
        *(_finding("forbidden_needed", name) for name in shared.needed if not _allowed(name, problem.policy)),
        *_names(binary, problem.policy),
    ]
    if EXPORT_PREFIX + candidate.entry_symbol not in shared.exported:
        exports = [name for name in shared.exported if name.startswith(EXPORT_PREFIX)]
        findings.append(_no_run(candidate, "binary", f"exported: {', '.join(exports) or 'nothing'}"))
    return _stage(findings, started)


@dataclass(frozen=True)
class _Binary:
    """Everything the rules look at."""

    shared: SharedObject
    data: bytes
    cubins: tuple[Cubin, ...]
    hidden: tuple[DeviceCode, ...]

    @classmethod
    def read(cls, library: Path, toolkit: Toolkit) -> _Binary:
        shared = read_shared_object(library)
        return cls(shared, library.read_bytes(), cubins(library, toolkit), hidden_device_code(library))

    def content(self, section: Section) -> bytes:
        return self.data[section.offset : section.offset + section.size]

    def host_sections(self) -> Iterator[Section]:
        """Sections with the host program's code and data; not the GPU's code, and not the tables of the file itself."""
        for section in self.shared.sections:
            if section.kind == _SHT_PROGBITS and section.name != ".nv_fatbin" and not section.name.startswith(".debug"):
                yield section

    def strings(self) -> set[str]:
        """Identifiers that end a zero-terminated string of the host program (linkers share the tails of strings)."""
        found = (match[0] for section in self.host_sections() for match in _STRING.finditer(self.content(section)))
        return {text.decode("ascii") for text in found}


def _names(binary: _Binary, policy: Policy) -> Iterator[PolicyFinding]:
    """Forbidden symbols that the binary imports, and names of forbidden entry points that it holds as text."""
    rules = general_rules().rules
    imported, strings = sorted(set(binary.shared.imported)), sorted(binary.strings())
    for name in imported:
        if name.startswith(policy.forbidden_symbols) and not any(_matches(name, rule.symbols) for rule in rules):
            yield _finding("forbidden_symbol", name)
    for rule in rules:
        yield from (_finding(rule.name, name) for name in imported if _matches(name, rule.symbols))
        yield from (_finding(rule.name, f"the name {name}") for name in strings if _matches(name, rule.strings))


def _finding(rule: str, evidence: str) -> PolicyFinding:
    return PolicyFinding(rule=rule, place="binary", evidence=evidence)


def _no_run(candidate: Candidate, place: Literal["source", "binary"], evidence: str) -> PolicyFinding:
    return PolicyFinding(rule=_NO_RUN, place=place, evidence=f"{candidate.entry_symbol} ({evidence})")


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _forbidden_header(header: str, policy: Policy) -> bool:
    """Whether a header belongs to a forbidden library: `cublas_v2.h`, `cutlass/gemm/gemm.h`, `cudnn.h`."""
    parts = [part.partition(".")[0] for part in PurePosixPath(header).parts]
    patterns = [shape for name in policy.forbidden_libraries for shape in (name, f"{name}_*", f"{name}Xt*")]
    return any(_matches(part, patterns) for part in parts)


def _allowed(needed: str, policy: Policy) -> bool:
    return needed.partition(".so")[0] in policy.allowed_needed and "/" not in needed


def _foreign_code(binary: _Binary, target: Target) -> Iterator[PolicyFinding]:
    """GPU code that nvcc did not make from the candidate's source: it makes one cubin, in one container."""
    rule = "foreign_cubin"
    for code in binary.hidden:
        yield _finding(rule, f"a {code.kind} in {code.section} at byte {code.offset}")
    for section in binary.host_sections():
        if _PTX_TEXT.search(binary.content(section)):
            yield _finding(rule, f"PTX text in {section.name}")
    for section in binary.shared.sections:
        if section.name == ".nv_fatbin" and binary.content(section).count(_FATBIN_MAGIC) > 1:
            yield _finding(rule, f"several containers in {section.name}")
        if section.name == ".nvFatBinSegment" and section.size > _FATBIN_WRAPPER_BYTES:
            yield _finding(rule, f"{section.size // _FATBIN_WRAPPER_BYTES} containers are registered")
    if len(binary.cubins) > 1:
        yield _finding(rule, f"{len(binary.cubins)} cubins where one source makes one")
    yield from (_finding(rule, f"a cubin for {cubin.arch}") for cubin in binary.cubins if cubin.arch != target.value)


def _library_remains(binary: _Binary) -> Iterator[PolicyFinding]:
    """Names of a library that was linked into the binary: among its symbols, and among its kernels."""
    rules = general_rules()
    tables = (binary.content(section) for section in binary.shared.sections if section.kind == _SHT_STRTAB)
    names = {name.decode("utf-8", "replace") for table in tables for name in table.split(b"\0")}
    for name in sorted(names - set(binary.shared.imported) - set(binary.shared.needed)):
        if _matches(name, rules.static_symbols):
            yield _finding("static_library", name)
    for cubin in binary.cubins:
        yield from (
            _finding("static_library", f"kernel {name}")
            for name in cubin.kernels
            if _matches(name, rules.static_kernels)
        )


_HINTS = {
    "forbidden_include": "Write the operation yourself; this library may not be used.",
    _NO_RUN: "Export it: TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);",
    "forbidden_needed": "Use nothing but the CUDA runtime, the driver and TVM-FFI.",
    "forbidden_symbol": "Write the operation yourself; this library may not be used.",
}
_SAYS = {
    "forbidden_include": "includes a header of a forbidden library",
    "foreign_cubin": "carries GPU code that was not compiled from its source",
    "static_library": "contains code of a forbidden library",
    "forbidden_needed": "is linked to a library that is not allowed",
    "forbidden_symbol": "calls a forbidden library",
    _NO_RUN: "exports no such function",
}


def _stage(findings: list[PolicyFinding], started: float) -> PolicyStage:
    """The first finding that the binary shows against the rules gives the reason; a missing `run` is no cheating."""
    cheated = [finding for finding in findings if finding.place == "binary" and finding.rule != _NO_RUN]
    outcome = Outcome.CHEATED if cheated else Outcome.FAILED if findings else Outcome.PASSED
    reason = None
    if findings:
        first = (cheated or findings)[0]
        says = _SAYS | {rule.name: rule.says for rule in general_rules().rules}
        message = f"The candidate {says[first.rule]}: {first.evidence}."
        hint = _HINTS.get(first.rule, "The kernel must be compiled from the candidate's own source, ahead of time.")
        reason = Reason(code=first.rule, message=message, hint=hint)
    seconds = time.time() - started
    return PolicyStage(
        outcome=outcome, reason=reason, findings=tuple(findings), started=started, seconds=max(0.0, seconds)
    )
