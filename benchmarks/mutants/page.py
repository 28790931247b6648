"""The page of tables, `docs/mutation.md`, from the kept results; measures nothing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.mutants.kernels import KERNELS
from benchmarks.mutants.results import NOT_MEASURED, share

Row = Mapping[str, Any]

HEAD = """# Mutation score

How many of the bugs that one can make in a kernel does the emulator flag? Mechanical operators change one instruction
of the PTX of our kernels, or one field of their tensor maps, on problems so small that a run takes a second. The
mutants below are a seeded sample of all sites that a kernel executes: of each operator six, or one of each kind of
change if there are more kinds. Whether a mutant is a bug was decided by rules of the PTX ISA 9.0 in
`benchmarks/data/mutation/labels.toml`, which was committed before any was run.

    python benchmarks/mutation.py --docs docs/mutation.md
    python benchmarks/mutation.py --device cuda:0 --sanitizer --docs docs/mutation.md
    python benchmarks/sentryward.py PATH/TO/sentryward --docs docs/mutation.md

The first runs all mutants on the emulator (late, eager and one seeded schedule until one fails; races looked for in the
first) and writes this page; the second adds the columns of a Hopper GPU, each mutant in a process of its own, 20 times,
and once under each tool of compute-sanitizer; the third that of SentryWard 0.1.1 (Apache-2.0, from PyPI, in an
environment of its own). Answers lie in `benchmarks/data/mutation`. Flagged is what fails or is told of: an error (a
finding, wrong numbers, a hang, a refused launch) or a warning. Seconds are processor time, on the emulator of all
schedules and of making functions of the PTX.
"""

SENTRYWARD = """SentryWard and the text as the compiler makes it: `invalid_lifecycle`, 372 times
`barrier_initialized_multiple_times` ("barrier lifetime 0 is initialized more than once; initialization recovery
refused: initializers belong to different actors"), for it takes a predicate of inline assembly that is named without a
percent sign for true in every lane. With those renamed it says `potential_race`: the `tcgen05.ld` of lane 1 against the
next `tcgen05.mma`, because lane 0 alone arrives behind the warp's `tcgen05.wait::ld.sync.aligned`. With a
`bar.warp.sync` between the two, `race_free`: so it is given both for all mutants. It models no fences, proxies or
descriptors, and no numbers without a PyTorch reference; it proves for all schedules what the emulator tries in three.
It was asked about the kernel `tmem` alone.
"""

TITLES = {"sm_90a": "Hopper", "sm_100a": "Blackwell"}
COLUMNS = {
    "sm_90a": {"emulator": "emulator", "gpu": "H200", "sanitizer": "compute-sanitizer"},
    "sm_100a": {"emulator": "emulator", "sentryward": "SentryWard"},
}


def render(folder: Path) -> str:
    """The page; results lie in the folder, one file per target.

    Raises:
        OSError: A file of results is missing.
    """
    parts = [HEAD]
    for target, title in TITLES.items():
        data = json.loads((folder / f"{target}.json").read_text())
        parts += [f"## {title}\n", _summary(target, data), _misses(data), _equivalent(data)]
        parts += [SENTRYWARD] if target == "sm_100a" else []
        parts.append(_table(target, data))
    return "\n".join(parts)


def _summary(target: str, data: Mapping[str, Any]) -> str:
    rows = list(data["mutants"].values())
    real, equivalent = [each for each in rows if each["real"]], [each for each in rows if not each["real"]]
    kernels = ";\n".join(f"`{name}` is `{KERNELS[name].source}`" for name in data["kernels"])
    operators = len({each["operator"] for each in rows})
    lines = [f"{len(rows)} mutants of {operators} operators: {len(real)} bugs and {len(equivalent)} equivalent ones."]
    lines += [f"{kernels}.\n"]
    lines += [
        "| instrument | bugs flagged (95 % interval) | by an error | equivalent with an error | unmutated kernels |"
    ]
    lines += ["|---|---|---|---|---|"]
    for column, title in COLUMNS[target].items():
        asked = [each for each in real if column in each["answers"]]
        others = [each for each in equivalent if column in each["answers"]]
        whole = len(asked) + len(others) == len(rows)
        asked_of = "" if whole or not asked else f" ({len(asked) + len(others)} mutants asked)"
        shares = [share(asked, column), share(asked, column, ("error",)), share(others, column, ("error",))]
        lines.append(f"| {title}{asked_of} | {' | '.join(shares)} | {_unmutated(column, data['kernels'])} |")
    return "\n".join(lines) + "\n"


def _unmutated(column: str, kernels: Mapping[str, Mapping[str, Row]]) -> str:
    said = {name: _answer(each.get(column)) for name, each in kernels.items()}
    if len(set(said.values())) == 1:
        return next(iter(said.values()))
    return "; ".join(f"{name}: {what}" for name, what in said.items())


def _misses(data: Mapping[str, Any]) -> str:
    missed = [
        each
        for each in data["mutants"].values()
        if each["real"] and each["answers"].get("emulator", {}).get("flagged") in ("no", "unknown")
    ]
    if not missed:
        return "The emulator misses none.\n"
    lines = [f"- `{each['kernel']}`, {each['operator']}: {_text(each['what'])}. {each['why']}" for each in missed]
    return "What the emulator misses:\n\n" + "\n".join(lines) + "\n"


def _equivalent(data: Mapping[str, Any]) -> str:
    reasons: dict[str, list[str]] = {}
    for each in data["mutants"].values():
        if not each["real"]:
            reasons.setdefault(f"{each['rule']}. {each['why']}", []).append(each["operator"])
    lines = ["Why the equivalent ones are none:\n"]
    for reason, operators in reasons.items():
        counted = ", ".join(f"{operators.count(each)} of {each}" for each in dict.fromkeys(operators))
        lines.append(f"- {counted}: {reason}")
    return "\n".join(lines) + "\n"


def _table(target: str, data: Mapping[str, Any]) -> str:
    columns = COLUMNS[target]
    titles = ["operator", "kernel", "CUDA line", "change", "bug", *columns.values(), "seconds"]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for each in data["mutants"].values():
        answers = each["answers"]
        said = [_answer(answers.get(column)) for column in columns]
        spent = [answers[column]["seconds"] for column in ("emulator", "sentryward") if column in answers]
        cells = [each["operator"], each["kernel"], _place(each["cuda_lines"]), _text(each["what"])]
        cells += ["yes" if each["real"] else "no", *said, " / ".join(f"{value:.1f}" for value in spent)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _place(lines: Iterable[int]) -> str:
    """The innermost line that is not a helper's: the second, where there is one."""
    chain = list(lines)
    return str(chain[min(1, len(chain) - 1)]) if chain else "host"


def _text(what: str) -> str:
    short = what.split(" of line ", maxsplit=1)[0].replace("|", "\\|")
    return f"`{short}`" if len(short) < 70 else f"`{short[:67]}...`"


def _answer(said: Row | None) -> str:
    if said is None:
        return NOT_MEASURED
    told = "; ".join(dict.fromkeys(str(each).split(" @ ")[0].split(": ")[0] for each in said["told"]))
    level = str(said["flagged"])
    return {"no": "nothing", "unknown": "no answer"}.get(level, level) + (f": {told}" if told else "")
