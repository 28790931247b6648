"""What instruments said of mutants, as data: one JSON file per target, to which each run adds its own column."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.mutants.kernels import KERNELS
from benchmarks.mutants.labels import label
from benchmarks.mutants.sample import SEED, Site

NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Answer:
    """What one instrument said of one mutant.

    Attributes:
        flagged: `error`: it fails, hangs, or its numbers are wrong; `warning`: something is told, and no more; `no`:
            nothing is; `unknown`: the instrument could not tell.
        told: What it said, most telling first.
        seconds: That it took; processor time for the emulator.
    """

    flagged: str
    told: tuple[str, ...] = ()
    seconds: float = 0.0


class Results:
    """The results of one target, kept in a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.data: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"kernels": {}, "mutants": {}}

    def begin(self, sites: Iterable[Site]) -> None:
        """Take the sample; rows of mutants of another text, or that are no longer in it, are forgotten."""
        kept = {}
        for site in sites:
            found = label(site)
            digest = hashlib.sha256(KERNELS[site.kernel].text().encode()).hexdigest()[:16]
            old = self.data["mutants"].get(site.name, {})
            kept[site.name] = {
                "kernel": site.kernel,
                "source": digest,
                "operator": site.mutant.operator,
                "ptx_line": site.mutant.line,
                "cuda_lines": list(site.at),
                "what": site.mutant.what,
                "real": found.real,
                "rule": found.rule,
                "why": found.why,
                "answers": old.get("answers", {}) if old.get("source") == digest else {},
            }
        self.data = {"seed": SEED, "kernels": self.data["kernels"], "mutants": kept}

    def add(self, name: str, instrument: str, answer: Answer) -> None:
        """One answer about a mutant, or about the unmutated kernel of that name."""
        if name in KERNELS:
            self.data["kernels"].setdefault(name, {})[instrument] = asdict(answer)
        else:
            self.data["mutants"][name]["answers"][instrument] = asdict(answer)

    def save(self) -> None:
        """Write the file whole."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        written = self.path.with_suffix(".new")
        written.write_text(json.dumps(self.data, indent=1) + "\n")
        written.replace(self.path)


def wilson(hits: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson, J. Am. Stat. Assoc. 22, 1927)."""
    if not of:
        return 0.0, 1.0
    z = 1.959964
    share, span = hits / of, z * z / of
    middle = (share + span / 2) / (1 + span)
    half = z * math.sqrt(share * (1 - share) / of + span / (4 * of)) / (1 + span)
    return max(0.0, middle - half), min(1.0, middle + half)


def share(rows: Iterable[dict[str, Any]], instrument: str, levels: tuple[str, ...] = ("error", "warning")) -> str:
    """`n of m (p %, a to b %)` of these mutants that an instrument flags; empty if it was not asked about all."""
    answers = [each["answers"].get(instrument) for each in rows]
    if not answers or None in answers:
        return NOT_MEASURED
    hits = sum(each["flagged"] in levels for each in answers)
    low, high = wilson(hits, len(answers))
    return f"{hits} of {len(answers)} ({100 * hits / len(answers):.1f} %, {100 * low:.1f} to {100 * high:.1f} %)"
