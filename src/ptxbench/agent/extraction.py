"""Finds the one kernel in an answer, or says what is missing; it compiles nothing and judges no kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ptxbench.schema.candidate import MAX_SOURCE_BYTES, Candidate
from ptxbench.schema.turn import Answer, Extracted

EXPORT = "TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);"
"""The line without which a kernel cannot be called."""

_OPENING = re.compile(r"(?P<indent>[ \t]*)(?P<fence>`{3,}(?=[^`]*$)|~{3,})[ \t]*(?P<label>.*?)[ \t]*")
_EXPORT = re.compile(r"\bTVM_FFI_DLL_EXPORT_TYPED_FUNC\s*\(\s*run\s*,")
_RUN = re.compile(r"\brun\s*\(")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.DOTALL)
_CODE_START = re.compile(r"^(?:#\s*(?:include|define|pragma)\b|//|/\*)", re.MULTILINE)
_CODE_END = ("}", ";", ")", "*/", "#endif")


@dataclass(frozen=True)
class Extraction:
    """What was found.

    Attributes:
        found: Whether there is a kernel.
        note: What was missing, in words for the model.
        candidate: The kernel.
    """

    found: Extracted
    note: str = ""
    candidate: Candidate | None = None


@dataclass(frozen=True)
class Block:
    """A fenced block of code.

    Attributes:
        label: What stands behind the opening fence.
        code: Its lines without the indentation of the fence, each with a line end.
        closed: Whether its closing fence is there.
    """

    label: str
    code: str
    closed: bool

    @property
    def exports_run(self) -> bool:
        """Whether it exports a function as `run`, in code and not in a comment."""
        return _EXPORT.search(_COMMENT.sub(" ", self.code)) is not None

    @property
    def has_run(self) -> bool:
        """Whether it defines or calls something named `run`."""
        return _RUN.search(_COMMENT.sub(" ", self.code)) is not None


def extract(answer: Answer, name: str = "") -> Extraction:
    """The kernel in an answer: the last complete block that exports `run`, whatever its fence is labelled.

    Without one, the last complete block with a `run`, so that its missing export is found by the evaluation; without
    any fence, an answer that is the kernel's source itself. An answer that its provider ended for its length, or that
    ends inside a block, is cut.

    Args:
        answer: The whole answer, continuations joined.
        name: The candidate's name, for people.
    """
    text = plain(answer.text)
    blocks = tuple(blocks_of(text))
    if answer.stop == "length":
        return Extraction(Extracted.CUT, _cut_note(answer, text))
    if blocks and not blocks[-1].closed:
        note = f"The answer ends inside its last code block, which was never closed. {_whole_file()}"
        return Extraction(Extracted.CUT, note)
    code = _kernel(blocks) if blocks else _bare_source(text)
    if code is None:
        return Extraction(Extracted.MISSING, _missing_note(answer, text, blocks))
    if len(code.encode()) > MAX_SOURCE_BYTES:
        note = f"The kernel is larger than {MAX_SOURCE_BYTES // 2**20} MiB, which no kernel needs."
        return Extraction(Extracted.MISSING, note)
    return Extraction(Extracted.KERNEL, candidate=Candidate.from_source(code, name=name))


def plain(text: str) -> str:
    """An answer as it is read: line ends as LF, no lone surrogates, and without thoughts that stand in the text."""
    text = text.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    text = _THOUGHT.sub("", text)
    return text.rpartition("</think>")[2]  # some models' templates open the thought, so that only its end is there


def blocks_of(text: str) -> Iterator[Block]:
    """The fenced blocks of a text with LF line ends, in order; only the last can be unclosed, and is not if empty.

    A labelled fence within a block begins a new one: the one before was forgotten or held it, as `markdown` does.
    """
    opening: re.Match[str] | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        fence = _OPENING.fullmatch(line)
        if opening is None:
            opening, lines = fence, []
        elif fence is None or not _ends(opening, fence):
            lines.append(line)
        elif fence["label"]:
            opening, lines = fence, []
        else:
            yield Block(opening["label"], _unindented(lines, opening["indent"]), closed=True)
            opening = None
    if opening is not None and "".join(lines).strip():
        yield Block(opening["label"], _unindented(lines, opening["indent"]), closed=False)


def ends_inside(text: str) -> bool:
    """Whether a text ends within a fenced block; where it does, its continuation may begin with a fence of its own."""
    return any(not block.closed for block in blocks_of(plain(text)))


def _ends(opening: re.Match[str], fence: re.Match[str]) -> bool:
    """Whether a fence can close what `opening` began, or begin anew after it: of its kind, and as long."""
    return fence["fence"][0] == opening["fence"][0] and len(fence["fence"]) >= len(opening["fence"])


def _unindented(lines: list[str], indent: str) -> str:
    """A block's lines without their fence's indentation, where all of them have it."""
    if all(line.startswith(indent) for line in lines if line.strip()):
        lines = [line.removeprefix(indent) for line in lines]
    return "".join(f"{line}\n" for line in lines)


def _kernel(blocks: tuple[Block, ...]) -> str | None:
    usable = [block for block in blocks if block.label.lower() not in ("diff", "patch")]
    exporting = [block for block in usable if block.exports_run]
    having = [block for block in usable if block.has_run]
    chosen = (exporting or having)[-1:]
    return chosen[0].code if chosen else None


def _bare_source(text: str) -> str | None:
    """The source in an answer without fences: from its first line of C++ to its last."""
    start = _CODE_START.search(text)
    if start is None or not Block("", text, closed=True).exports_run:
        return None
    lines = text[start.start() :].split("\n")
    while lines and not lines[-1].rstrip().endswith(_CODE_END):
        lines.pop()
    code = "".join(f"{line}\n" for line in lines)
    return code if Block("", code, closed=True).exports_run else None


def _cut_note(answer: Answer, text: str) -> str:
    if not text.strip():
        spent = f"All {answer.usage.output_tokens:,} tokens" if answer.usage.output_tokens else "All tokens"
        return f"{spent} of the answer were spent before its text began. Think less, and write the kernel."
    times = f", {answer.parts - 1} continuations included" if answer.parts > 1 else ""
    return f"The answer was cut at its token limit{times}. Write less around the kernel. {_whole_file()}"


def _missing_note(answer: Answer, text: str, blocks: tuple[Block, ...]) -> str:
    if answer.stop == "filtered":
        return f"The answer was ended by a content filter. {_whole_file()}"
    if not text.strip():
        return f"The answer is empty. {_whole_file()}"
    if not blocks:
        return f"The answer has no fenced code block. {_whole_file()}"
    if blocks[-1].label.lower() in ("diff", "patch"):
        return f"The answer holds a diff. {_whole_file()}"
    which = "The code block" if len(blocks) == 1 else f"None of the {len(blocks)} code blocks"
    lacks = "has no `run`" if len(blocks) == 1 else "has a `run`"
    return f"{which} {lacks}: the kernel's file must end with `{EXPORT}`. {_whole_file()}"


def _whole_file() -> str:
    return "Give the complete file in one block that begins with ```cuda and ends with ```."
