"""Whether a mutant is a real bug: looked up in `labels.toml`, which was written before any was run; decides nothing."""

from __future__ import annotations

import functools
import re
import tomllib
from dataclasses import dataclass

from benchmarks.mutants.kernels import KERNELS, ROOT
from benchmarks.mutants.sample import Site, source_text

DATA = ROOT / "benchmarks" / "data" / "mutation"


@dataclass(frozen=True)
class Label:
    """One decision.

    Attributes:
        operators: The operators that it is for.
        where: What the mutant's description must have.
        real: Whether such a mutant is a bug.
        rule: The section of the PTX ISA 9.0 that says so.
        why: What happens, or why nothing does.
    """

    operators: tuple[str, ...]
    where: re.Pattern[str]
    real: bool
    rule: str
    why: str


@functools.cache
def labels() -> tuple[Label, ...]:
    """All of them, in order."""
    read = tomllib.loads((DATA / "labels.toml").read_text())["label"]
    return tuple(
        Label(tuple(each["operators"]), re.compile(each["where"]), each["real"], each["rule"], each["why"])
        for each in read
    )


def description(site: Site) -> str:
    """What patterns are searched in."""
    texts = [f"{line}: {source_text(KERNELS[site.kernel], line)}" for line in site.at]
    return " | ".join((f"{site.kernel}, copy {site.copy}: {site.mutant.what}", *texts))


def label(site: Site) -> Label:
    """The first that fits.

    Raises:
        LookupError: None does.
    """
    text = description(site)
    for each in labels():
        if site.mutant.operator in each.operators and each.where.search(text):
            return each
    raise LookupError(f"no label for {site.name}: {text}")
