"""Head to head with SentryWard on Blackwell: its verdict and seconds beside the emulator's, for kernels and mutants.

Run `python benchmarks/sentryward.py PROGRAM [--each N] [--only WORD ...]`, where PROGRAM is `sentryward` of an
environment of its own (`python -m venv V && V/bin/pip install sentryward==0.1.1`). It asks about the mutants of the
kernel `tmem`, N of each operator, and adds its column to `data/mutation/sm_100a.json`.

What it is given differs from what the emulator gets in two points, without which it says the same of all mutants:
registers of inline assembly are renamed (it takes a predicate without a percent sign for true in every lane), and a
`bar.warp.sync` follows each `tcgen05.wait::ld` (it demands one before one lane speaks for its warp).
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.mutants import page  # noqa: E402
from benchmarks.mutants.kernels import KERNELS, MapOf, Problem, parsed  # noqa: E402
from benchmarks.mutants.labels import DATA  # noqa: E402
from benchmarks.mutants.operators import applied  # noqa: E402
from benchmarks.mutants.results import Answer, Results  # noqa: E402
from benchmarks.mutants.sample import Site  # noqa: E402
from benchmarks.mutation import line, sites_of  # noqa: E402

from ptxbench.schema.values import Target  # noqa: E402

KERNEL = KERNELS["tmem"]
CLEAN = ("race_free", "verified")
TOLD = ("not_wellsynced", "potential_race", "invalid_lifecycle", "equivalence_not_proven")
_SCOPED = re.compile(r"\.reg \.\w+ ([A-Za-z_]\w*);")


def renamed(text: str) -> str:
    """The text with a percent sign before the registers of inline assembly, and labels that are unique."""
    made: list[str] = []
    names: dict[str, str] = {}
    for number, each in enumerate(text.splitlines()):
        for name in _SCOPED.findall(each):
            names[name] = f"%{name}_{number}"
        if found := re.match(r"^(\w+):", each):
            names[found[1]] = f"$L_{found[1]}_{number}"
        for old, new in names.items():
            each = re.sub(rf"(?<![\w%$.:]){old}(?![\w:.]*::)\b", new, each)  # noqa: PLW2901
        if each.count("}") > each.count("{"):
            names = {}
        made.append(each)
    return "\n".join(made) + "\n"


def synchronised(text: str) -> str:
    """The text with a `bar.warp.sync` in the comment's line behind each `tcgen05.wait::ld`; no line moves."""
    return re.sub(r"(tcgen05\.wait::ld\.sync\.aligned;\n)[^\n]*end inline asm", r"\1\tbar.warp.sync -1;", text)


def configuration(text: str, problem: Problem) -> dict[str, Any]:
    """SentryWard's input file: launch, scalar arguments, tensor maps."""
    (kernel,) = [each for each in parsed(text).functions.values() if each.entry]
    maps, scalars = [], []
    for variable, pieces in zip(kernel.parameters, problem.parameters, strict=True):
        for piece in pieces:
            if isinstance(piece, MapOf):
                maps.append(_descriptor(variable.name, piece))
            elif isinstance(piece, bytes):
                values = [int.from_bytes(piece[at : at + 4], "little") for at in range(0, len(piece), 4)]
                scalars += [
                    {"parameter": variable.name, "offset": 4 * at, "value": value, "type": "u32"}
                    for at, value in enumerate(values)
                ]
    launch = {"grid_dim": problem.grid, "block_dim": problem.block, "dynamic_shared_bytes": problem.shared}
    return {"schema": "spverify.kernel-input/v1", "launch": launch, "arguments": scalars, "tma_descriptors": maps}


def _descriptor(parameter: str, piece: MapOf) -> dict[str, Any]:
    shape = piece.shape
    return {
        "parameter": parameter,
        "object": f"array{piece.array}",
        "element_type": "bf16",
        "rank": shape.rank,
        "global_shape": shape.dims,
        "global_strides_bytes": shape.strides,
        "box_shape": shape.box,
        "element_strides": shape.element_strides,
        "swizzle": {0: "none", 1: "32B", 2: "64B", 3: "128B"}[shape.swizzle],
        "interleave": "none",
        "oob_fill": "zero",
    }


def ask(program: Path, text: str, problem: Problem, budget: float) -> Answer:
    """Its verdict; seconds are processor time, as the emulator's."""
    with tempfile.TemporaryDirectory() as name:
        ptx, config = Path(name) / "kernel.ptx", Path(name) / "input.json"
        ptx.write_text(renamed(text))
        config.write_text(json.dumps(configuration(text, problem)))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = [str(program), str(ptx), "--input", str(config), "--timeout", str(budget)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1)
    try:
        said = json.loads(done.stdout)
    except ValueError:
        return Answer("unknown", (f"no answer: {(done.stderr or done.stdout)[:120]}",), spent)
    codes = dict.fromkeys(each.get("code", "") for each in said.get("diagnostics", []))
    told = (said["result"], *list(codes)[:2])
    level = "no" if said["result"] in CLEAN else "error" if said["result"] in TOLD else "unknown"
    return Answer(level, () if level == "no" else told, spent)


def chosen(sites: list[Site], each: int, words: list[str]) -> list[Site]:
    """The first of each operator, of the one kernel, with one of the words in their name."""
    counts: dict[str, int] = {}
    taken = []
    for site in sites:
        asked = site.kernel == KERNEL.name and any(word in site.name for word in words)
        if asked and counts.get(site.mutant.operator, 0) < each:
            counts[site.mutant.operator] = counts.get(site.mutant.operator, 0) + 1
            taken.append(site)
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("program", type=Path, help="`sentryward`")
    parser.add_argument("--only", nargs="*", default=[""], help="only mutants whose name has one of these words")
    parser.add_argument("--each", type=int, default=1, help="mutants of each operator")
    parser.add_argument("--no-kernels", dest="kernels", action="store_false", help="not about the unmutated kernel")
    parser.add_argument("--budget", type=float, default=600.0, help="seconds for one")
    parser.add_argument("-o", "--output", type=Path, default=DATA, help="folder of the results")
    parser.add_argument("--docs", type=Path, help="write the page of tables there")
    options = parser.parse_args()
    results = Results(options.output / "sm_100a.json")
    sites = sites_of(Target.SM_100A)
    results.begin(sites)
    text, problem = KERNEL.ptx(), KERNEL.problem()
    for name, given in (("as it is", text), ("synchronised", synchronised(text))) if options.kernels else ():
        said = ask(options.program, given, problem, options.budget)
        results.add(KERNEL.name, "sentryward" if given != text else "sentryward, as it is", said)
        print(line(f"{KERNEL.name}, {name}", "unmutated", "sentryward", said), flush=True)
    results.save()
    for site in chosen(sites, options.each, options.only):
        shape = site.mutant.shape
        changed = problem if shape is None else problem.with_map(site.mutant.map, shape)
        said = ask(options.program, applied(synchronised(text), site.mutant), changed, options.budget)
        results.add(site.name, "sentryward", said)
        results.save()
        real = "bug" if results.data["mutants"][site.name]["real"] else "equivalent"
        print(line(site.name, real, "sentryward", said), flush=True)
    if options.docs:
        options.docs.write_text(page.render(options.output))


if __name__ == "__main__":
    main()
