"""A model without knowledge: it mends what a feedback text names, where the text names it, and nothing else.

Each rule fires on words of the text alone and changes its own last answer; with an empty text no rule fires.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator

Rule = Callable[[str, str], str]
"""(its last source, the text) to the next source."""

SWIZZLES = {"128": 1, "64": 2, "32": 3}
"""Code of a swizzle by its bytes, in a matrix descriptor of wgmma (PTX ISA, wgmma matrix descriptor)."""


def mend(source: str, text: str) -> str:
    """The next answer: its last one with everything changed that the text names."""
    for rule in RULES:
        source = rule(source, text)
    return source


def forbidden_include(source: str, text: str) -> str:
    """Takes out the line of a forbidden header."""
    for header in re.findall(r"forbidden_include.*#include (\S+?)`", text):
        source = re.sub(rf"#include <{re.escape(header)}>\n", "", source)
    return source


def undefined_name(source: str, text: str) -> str:
    """Writes the nearest known name in the place of an undefined one, on the line that the error names."""
    for line, name in re.findall(r"`kernel\.cu:(\d+)`: `identifier \"(\w+)\" is undefined`", text):
        lines = source.split("\n")
        others = sorted(set(re.findall(r"[A-Za-z_]\w+", source)) - {name})
        lines[int(line) - 1] = lines[int(line) - 1].replace(name, difflib.get_close_matches(name, others, 1)[0])
        source = "\n".join(lines)
    return source


def target_missing(source: str, text: str) -> str:
    """Launches the other kernel when the one that ran does not use its target."""
    missing = "executes none of its target's instructions" in text
    return source.replace("kTensorCores = false", "kTensorCores = true") if missing else source


def too_many_bytes(source: str, text: str) -> str:
    """Takes back what was announced beyond what comes."""
    for number in re.findall(r"every arrival came, but (\d+) of the bytes that expect_tx announced never do", text):
        source = re.sub(rf"(barrier_expect\(.*, expected) \+ .*{number}\);", r"\1);", source)
    return source


def unordered_barriers(source: str, text: str) -> str:
    """Puts a barrier of all threads behind the initialisation that a finding speaks of."""
    if not re.search(r"uninitialised-barrier.*nothing orders its initialisation", text):
        return source
    fence = '    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");\n  }\n'
    return source if f"{fence}  __syncthreads();" in source else source.replace(fence, f"{fence}  __syncthreads();\n")


def early_use(source: str, text: str) -> str:
    """Takes the other parity where a wait does not wait; of a wait that is not called the text says so."""
    early = "use-before-completion" in text and "never referenced" not in text
    return source.replace("(k / kStages & 1) ^ 1);", "k / kStages & 1);") if early else source


def early_release(source: str, text: str) -> str:
    """Hands a stage back behind the wait for its last read."""
    named = "overwrite-before-release" in text and re.search(r"> +\d+ \|.*wgmma\(", text)
    swapped = re.compile(r"(    if \(threadIdx.*barrier_arrive\(ring\.empty\(stage\)\);\n)(    asm.*wait_group.*\n)")
    return swapped.sub(r"\2\1", source) if named else source


def swizzle(source: str, text: str) -> str:
    """Reads a tile with the swizzle that it was written with."""
    for read, wrote in re.findall(r"with a (\d+)-byte swizzle, but the tensor copy of .* wrote it with (\d+)", text):
        source = source.replace(f"(uint64_t){SWIZZLES[read]} << 62", f"(uint64_t){SWIZZLES[wrote]} << 62")
    return source


def out_of_bounds(source: str, text: str) -> str:
    """Guards the store that a finding names."""
    for line in _lines(r"out-of-bounds.*inlined: store at kernel\.cu:(\d+)", text):
        lines = source.split("\n")
        if "beyond the end" in text and "if (" not in lines[line - 1]:
            lines[line - 1] = f"    if (y < rows && x < columns) {lines[line - 1].strip()}"
        source = "\n".join(lines)
    return source


def skipped_step(source: str, text: str) -> str:
    """Lets the second warpgroup go to the end of K when its rows alone are wrong."""
    its_rows = "are wrong" in text and "where: rows 64-127" in text
    return source.replace("k < slices - group;", "k < slices;") if its_rows else source


def missing_fence(source: str, text: str) -> str:
    """Fences the first product of the sequence that a finding names."""
    for line in _lines(r"lint: wgmma-fence.*? at `kernel\.cu:(\d+)", text):
        lines = source.split("\n")
        at = line - 1 if "#pragma" not in lines[line - 2] else line - 2
        lines.insert(at, '    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");')
        return "\n".join(lines)
    return source


def _lines(pattern: str, text: str) -> Iterator[int]:
    return (int(line) for line in re.findall(pattern, text))


RULES: tuple[Rule, ...] = (
    *(forbidden_include, undefined_name, target_missing, too_many_bytes, unordered_barriers),
    *(swizzle, early_release, skipped_step, out_of_bounds, early_use),
    missing_fence,  # inserts a line, so it comes last: the text's numbers hold until then
)
