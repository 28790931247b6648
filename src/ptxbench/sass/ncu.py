"""Reads what Nsight Compute prints: the SASS source page, the raw page and its own messages; it starts nothing.

A value that the profiler did not give (NaN, `n/a`, an absent column) is absent here too, never zero.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ptxbench.errors import ToolError
from ptxbench.schema.values import Unavailable

WARP_INSTRUCTIONS = "inst_executed"
THREAD_INSTRUCTIONS_TRUE = "thread_inst_executed_true"
GPU_TIME = "gpu__time_duration.sum"
DRAM_READ = "dram__bytes_read.sum"
DRAM_WRITTEN = "dram__bytes_write.sum"
TMA_BYTES = "l1tex__m_xbar2l1tex_read_bytes_pipe_tma.sum"

METRICS = (WARP_INSTRUCTIONS, THREAD_INSTRUCTIONS_TRUE, GPU_TIME, DRAM_READ, DRAM_WRITTEN, TMA_BYTES)
"""What every profile asks for, whatever the target."""

_COLUMNS = {
    WARP_INSTRUCTIONS: (WARP_INSTRUCTIONS, "Instructions Executed"),
    THREAD_INSTRUCTIONS_TRUE: (THREAD_INSTRUCTIONS_TRUE, "Predicated-On Thread Instructions Executed"),
}
"""Headings of the source page: the metric's name when it was asked for by name, a label when a section held it."""

_UNITS = {
    **{"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0},
    **{"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12},
    **{"": 1.0, "inst": 1.0, "cycle": 1.0},
}
"""Factors to seconds, bytes and plain counts."""

_NUMBER = re.compile(r"-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][-+]?\d+)?")
_INSTRUCTION = re.compile(r"(?P<predicate>@!?U?PT?\d*)?\s*(?P<opcode>[A-Z][\w.]*)")


@dataclass(frozen=True)
class ExecutedLine:
    """One machine instruction of one launch.

    Attributes:
        address: Where it lay.
        opcode: With modifiers, e.g. `HGMMA.64x256x16.F32.BF16`.
        predicate: `@P0`, `@!UP1`, or empty.
        warp_instructions: How often a warp executed it; None when the profiler did not say.
        thread_instructions_true: How often a thread executed it with its predicate true; None likewise.
    """

    address: int
    opcode: str
    predicate: str
    warp_instructions: int | None
    thread_instructions_true: int | None


@dataclass(frozen=True)
class Launch:
    """One profiled kernel launch.

    Attributes:
        name: The kernel's, as printed (mangled when asked for).
        lines: Its machine code with executed counts.
        counters: Counters by name in seconds, bytes or plain counts; one that was not read is absent.
    """

    name: str
    lines: tuple[ExecutedLine, ...]
    counters: Mapping[str, float]


def read_launches(source_page: str, raw_page: str) -> tuple[Launch, ...]:
    """Join both pages of one report, in the order of the launches.

    Some versions print a kernel's source more than once per launch; every launch must then have the same number of
    copies, each with the same content.

    Raises:
        ToolError: A page is not what the profiler prints, or the two do not belong together.
    """
    blocks = list(_source_blocks(source_page))
    rows = _raw_rows(raw_page)
    copies, rest = divmod(len(blocks), len(rows)) if rows else (0, 0)
    if copies == 0 or rest:
        raise ToolError(f"ncu printed the source of {len(blocks)} kernels for {len(rows)} launches.", _REPORT_REMEDY)
    launches = []
    for index, (name, counters) in enumerate(rows):
        group = blocks[index * copies : (index + 1) * copies]
        same = all(lines == group[0][1] for _, lines in group)
        if not same or any(base_name(printed) != base_name(name) for printed, _ in group):
            raise ToolError(f"ncu's pages disagree about launch {index} ({name}).", _REPORT_REMEDY)
        launches.append(Launch(name, group[0][1], counters))
    return tuple(launches)


_REPORT_REMEDY = "Report this with the version of ncu; `ptxbench doctor` shows it."


def _source_blocks(text: str) -> Iterator[tuple[str, tuple[ExecutedLine, ...]]]:
    """(kernel, lines) for each kernel of a source page in CSV form."""
    name: str | None = None
    columns: dict[str, int] = {}
    lines: list[ExecutedLine] = []
    for row in csv.reader(io.StringIO(text)):
        if row[:1] == ["Kernel Name"]:
            if name is not None:
                yield name, tuple(lines)
            name, columns, lines = row[1] if len(row) > 1 else "", {}, []
        elif name is not None and "Source" in row and "Address" in row:
            columns = {heading: row.index(heading) for heading in reversed(row)}
        elif name is not None and columns and row:
            lines.append(_executed_line(row, columns))
    if name is not None:
        yield name, tuple(lines)


def _executed_line(row: Sequence[str], columns: Mapping[str, int]) -> ExecutedLine:
    try:
        address, source = int(row[columns["Address"]], 16), row[columns["Source"]]
    except (ValueError, IndexError):
        raise ToolError(f"ncu printed a source line that is none: {', '.join(row)[:200]!r}.", _REPORT_REMEDY) from None
    match = _INSTRUCTION.match(source.strip())
    return ExecutedLine(
        address=address,
        opcode=match["opcode"] if match else source.strip(),
        predicate=(match["predicate"] or "") if match else "",
        warp_instructions=_count(row, columns, WARP_INSTRUCTIONS),
        thread_instructions_true=_count(row, columns, THREAD_INSTRUCTIONS_TRUE),
    )


def _count(row: Sequence[str], columns: Mapping[str, int], metric: str) -> int | None:
    column = next((columns[heading] for heading in _COLUMNS[metric] if heading in columns), None)
    value = number(row[column]) if column is not None and column < len(row) else None
    return None if value is None else round(value)


def _raw_rows(text: str) -> list[tuple[str, dict[str, float]]]:
    """(kernel, counters) for each launch of a raw page in CSV form."""
    table = [row for row in csv.reader(io.StringIO(text)) if row]
    start = next((index for index, row in enumerate(table) if "Kernel Name" in row and row[0] == "ID"), None)
    if start is None or start + 1 >= len(table):
        raise ToolError("ncu printed no table of counters.", _REPORT_REMEDY)
    header, units = table[start], table[start + 1]
    name = header.index("Kernel Name")
    rows = []
    for row in table[start + 2 :]:
        if len(row) != len(header) or len(units) != len(header):
            raise ToolError("ncu printed a table of counters whose rows differ in length.", _REPORT_REMEDY)
        counters = {}
        for heading, unit, cell in zip(header, units, row, strict=True):
            value, factor = number(cell), _UNITS.get(unit)
            if value is not None and factor is not None and (heading in METRICS or "__" in heading):
                counters[heading] = value * factor
        rows.append((row[name], counters))
    return rows


def number(text: str) -> float | None:
    """A number as the profiler prints it (`13,107,200`, `0.005952`); None for NaN, infinities, `n/a` and all else."""
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped):
        return None
    value = float(stripped.replace(",", ""))
    return value if math.isfinite(value) else None


def base_name(kernel: str) -> str:
    """The kernel's own identifier, without scopes, template arguments and parameters, from either form of its name.

    `_ZN1a4gemmIfEEvPKfi` and `void a::gemm<float>(const float *, int)` are both `gemm`.
    """
    if kernel.startswith("_Z"):
        return _mangled_identifier(kernel)
    plain = re.sub(r"\(anonymous namespace\)|<unnamed>|\(anonymous\)", "", kernel)
    head = re.split(r"[<(]", plain, maxsplit=1)[0].strip()
    return re.split(r"\s|::", head)[-1]


def _mangled_identifier(name: str) -> str:
    """The last identifier of the (nested) name at the start of a mangled one (Itanium C++ ABI, section 5.1)."""
    rest = re.sub(r"^_ZN?[rVKRO]*(St)?L?", "", name)
    last = ""
    while match := re.match(r"L?(\d+)", rest):
        start, length = match.end(), int(match[1])
        last, rest = rest[start : start + length], rest[start + length :]
        if not name.startswith("_ZN"):
            break
    return last or name


def failure(messages: str) -> Unavailable | None:
    """Why a run of the profiler left nothing to read, from its own messages (its log file, never a candidate's output).

    This is the one tool whose messages have to be read: it ends with the candidate's exit code whatever happened.
    """
    errors = [line.removeprefix("==ERROR== ") for line in messages.splitlines() if line.startswith("==ERROR==")]
    if any("ERR_NVGPUCTRPERM" in line for line in errors):
        return Unavailable(
            name="ncu",
            reason="this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM)",
            remedy="Run as root or with CAP_SYS_ADMIN, or load the nvidia module with "
            "NVreg_RestrictProfilingToAdminUsers=0; in a container, add --cap-add=SYS_ADMIN.",
        )
    if errors:
        return Unavailable(name="ncu", reason=f"ncu failed: {errors[0]}", remedy=_REPORT_REMEDY)
    if any(line.startswith("==WARNING== No kernels were profiled") for line in messages.splitlines()):
        return Unavailable(name="ncu", reason="no kernel was launched under ncu, or it could not attach")
    return None
