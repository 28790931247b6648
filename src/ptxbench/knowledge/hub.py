"""Reads `packs/hub.toml`, which says what packs there are and of which files each is made; it composes none."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal

from ptxbench.schema.values import Frozen, Target

PACKS = Path(__file__).parent / "packs"
"""The folder of documents and headers."""

Op = Literal["gemm", "attention_forward", "attention_backward"]


class Patterns(Frozen):
    """What a tag adds to the base pack of its target: how to build one kind of kernel."""

    ops: tuple[Op, ...]
    """The operators for which it is meant; empty: all."""
    files: tuple[str, ...]
    about: str
    """One line for a list of packs."""


class Shelf(Frozen):
    """All parts for one target in one language."""

    groups: dict[str, tuple[str, ...]]
    """Name of a group of parts (`knowledge`, `headers`, ...) -> files below `packs/`, in reading order."""
    tags: dict[str, Patterns]


class Patch(Frozen):
    """A short list of rules that can be added to any tag."""

    file: str
    ops: tuple[Op, ...]
    about: str


class Hub(Frozen):
    """The content of `hub.toml`."""

    levels: dict[str, tuple[str, ...]]
    """Level of the context ablation -> groups; each level but `nano` holds the one before it."""
    cuda: dict[Target, Shelf]
    triton: dict[Target, Shelf]
    patches: dict[str, Patch]

    def shelf(self, target: Target, tag: str) -> Shelf:
        """The parts among which a tag of this target chooses."""
        return self.triton[target] if tag in self.triton[target].tags else self.cuda[target]

    def names(self, target: Target) -> tuple[str, ...]:
        """Every level and tag of a target."""
        return (*self.levels, *self.cuda[target].tags, *self.triton[target].tags)


@cache
def load_hub() -> Hub:
    """The hub of this installation."""
    return Hub.model_validate(tomllib.loads((PACKS / "hub.toml").read_text()))
