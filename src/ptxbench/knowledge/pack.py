"""Composes a pack: the text that a model gets about a target, from the parts that a level or a tag names."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath
from typing import Literal

from ptxbench.errors import PackError
from ptxbench.knowledge.hub import PACKS, Op, Shelf, load_hub
from ptxbench.knowledge.tokens import count_tokens
from ptxbench.schema.problem import Problem
from ptxbench.schema.values import Target, content_hash

BASE = "base"
"""The tag without patterns; every problem has it."""
DEFAULT = "patterns"
"""The level that holds everything for a problem."""


@dataclass(frozen=True)
class Part:
    """One file of a pack.

    Attributes:
        name: Its path below `packs/`.
        text: As it stands in the pack; a header is a fenced block of code.
        tokens: Tokens of `text` by `ptxbench.knowledge.TOKENIZER`.
    """

    name: str
    text: str
    tokens: int


@dataclass(frozen=True)
class Pack:
    """What a model is told.

    Attributes:
        name: Level or tag, with its patches, as it was asked for.
        language: What the pack teaches: CUDA C++ with PTX, or Triton.
        parts: In the order of `text`.
        text: The whole, in Markdown.
        tokens: Tokens of `text` by `ptxbench.knowledge.TOKENIZER`.
        hash: Content hash (hex SHA-256) of `text`; records name a pack by it.
    """

    target: Target
    name: str
    language: Literal["cuda", "triton"]
    parts: tuple[Part, ...]
    text: str
    tokens: int
    hash: str


def load_pack(target: Target, name: str = DEFAULT, problem: Problem | None = None) -> Pack:
    """The pack of a target.

    Args:
        target: The architecture.
        name: A level (`nano`, `parameters`, `templates`, `contract`, `patterns`) or a tag (`base`, `gemm-pipeline`,
            `triton`, ...), and after it `+PATCH` for each list of rules to add: `base+attention-rules`.
        problem: Decides which patterns the level `patterns` holds; without one it holds all.

    Raises:
        PackError: There is no such level, tag or patch, or it is for another operator than the problem's.
    """
    hub = load_hub()
    tag, *patches = name.split("+")
    op = problem.op if problem is not None else None
    _known(tag, hub.names(target), f"pack for {target.value}")
    shelf = hub.shelf(target, tag)
    files = list(_level(tag, shelf, op) if tag in hub.levels else _tag(tag, shelf, op))
    for patch in patches:
        _known(patch, tuple(hub.patches), "patch")
        _fits(patch, hub.patches[patch].ops, op)
        files.append(hub.patches[patch].file)
    parts = tuple(_part(file) for file in files)
    text = "\n".join(part.text for part in parts)
    return Pack(
        target=target,
        name=name,
        language="triton" if shelf is hub.triton[target] else "cuda",
        parts=parts,
        text=text,
        tokens=sum(part.tokens for part in parts),  # the empty lines between them join the ends of lines
        hash=content_hash(["ptxbench.pack.v1", text]),
    )


def packs_for(target: Target, problem: Problem) -> tuple[str, ...]:
    """The tags that are tried on a problem: the base, then each with patterns of its operator."""
    tags = load_hub().cuda[target].tags
    return (BASE, *(name for name, tag in tags.items() if name != BASE and problem.op in tag.ops))


def _level(level: str, shelf: Shelf, op: Op | None) -> tuple[str, ...]:
    groups = load_hub().levels[level]
    files = [file for group in groups if group != DEFAULT for file in shelf.groups[group]]
    if DEFAULT in groups:
        wanted = (tag for tag in shelf.tags.values() if op is None or op in tag.ops)
        files += [file for tag in wanted for file in tag.files]
    return tuple(dict.fromkeys(files))


def _tag(name: str, shelf: Shelf, op: Op | None) -> tuple[str, ...]:
    tag = shelf.tags[name]
    _fits(name, tag.ops, op)
    base = load_hub().levels["contract"] if "headers" in shelf.groups else tuple(shelf.groups)
    files = [file for group in base for file in shelf.groups[group]]
    return tuple(dict.fromkeys([*files, *tag.files]))


def _known(name: str, there: tuple[str, ...], what: str) -> None:
    if name in there:
        return
    begun = [each for each in there if name and each.startswith(name)]
    close = begun or difflib.get_close_matches(name, there, n=3, cutoff=0.5)
    remedy = f"Did you mean {' or '.join(close)}?" if close else f"There are: {', '.join(there)}."
    raise PackError(f"There is no {what} {name!r}.", remedy)


def _fits(name: str, ops: tuple[Op, ...], op: Op | None) -> None:
    if op is not None and ops and op not in ops:
        raise PackError(f"{name!r} is for {', '.join(ops)}, not for {op}.", "See `ptxbench packs`.")


@cache
def _part(file: str) -> Part:
    text = (PACKS / file).read_text()
    path = PurePosixPath(file)
    if path.suffix == ".cuh":
        code = text.removeprefix("#pragma once\n")
        text = f"### Header `{path.name}`\n\n```cuda\n{code}```\n"
    return Part(file, text, count_tokens(text))
