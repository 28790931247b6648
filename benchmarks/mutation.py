"""The mutation score: which of the mutants of our kernels that are bugs by the PTX ISA an instrument flags.

Run `python benchmarks/mutation.py [--device emulator] [--target sm_90a] [-o FOLDER]`: every mutant of the seeded sample
on the emulator (late, eager and one seeded schedule, races looked for in the first), and every unmutated kernel.
`--device cuda:0` runs the Hopper ones on a GPU instead, each in a process of its own with a time limit, and with
`--sanitizer` under compute-sanitizer's four tools too; each run adds its column to the results in FOLDER. `--docs FILE`
writes the page with the tables. Which mutants are bugs stands in `data/mutation/labels.toml`, which was committed
before any was run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks.mutants import page  # noqa: E402
from benchmarks.mutants.emulated import Seen, emulate  # noqa: E402
from benchmarks.mutants.gpu import Gpu  # noqa: E402
from benchmarks.mutants.kernels import KERNELS, Problem  # noqa: E402
from benchmarks.mutants.labels import DATA  # noqa: E402
from benchmarks.mutants.operators import Mutant, applied, mutants  # noqa: E402
from benchmarks.mutants.results import Answer, Results, share  # noqa: E402
from benchmarks.mutants.sample import Site, draw  # noqa: E402

from ptxbench.schema.values import Target  # noqa: E402

Ask = Callable[[str, Problem], dict[str, Answer]]
"""What an instrument says of a PTX text and its launch: its columns."""


def sites_of(target: Target) -> list[Site]:
    """The sample; the sites are those that an unmutated kernel executes.

    Raises:
        SystemExit: A kernel is not right and clean as it is.
    """
    found: dict[str, list[Mutant]] = {}
    for kernel in KERNELS.values():
        if kernel.target is target:
            problem = kernel.problem()
            seen = emulate(kernel.ptx(), problem, ("late",))
            if seen.errors or seen.warnings or seen.wrong:
                raise SystemExit(f"error: {kernel.name}, unmutated: {seen.errors} {seen.warnings} {seen.wrong}")
            found[kernel.name] = mutants(kernel.ptx(), [each.shape for each in problem.maps()], seen.executed)
    return draw(found, target)


def mutated(site: Site) -> tuple[str, Problem]:
    """The text and the launch of a mutant."""
    kernel, mutant = KERNELS[site.kernel], site.mutant
    problem = kernel.problem()
    if mutant.shape is not None:
        return kernel.ptx(), problem.with_map(mutant.map, mutant.shape)
    return applied(kernel.ptx(), mutant), problem


def on_emulator(text: str, problem: Problem) -> dict[str, Answer]:
    """The emulator's column."""
    start = time.process_time()
    try:
        seen = emulate(text, problem)
    except Exception as error:  # noqa: BLE001 - a fault of the emulator is an answer about it
        fault = f"fault of the emulator: {type(error).__name__}: {error}"
        return {"emulator": Answer("unknown", (fault[:200],), round(time.process_time() - start, 2))}
    return {"emulator": answer(seen)}


def answer(seen: Seen) -> Answer:
    """What the emulator saw as one answer."""
    wrong = tuple(f"wrong numbers ({schedule})" for schedule in seen.wrong)
    told = (*seen.errors, *wrong, *seen.warnings)
    level = "error" if seen.errors or seen.wrong else "warning" if seen.warnings else "no"
    return Answer(level, tuple(each[:160] for each in told[:4]), seen.seconds)


def run(target: Target, path: Path, ask: Ask, words: list[str], jobs: int) -> Results:
    """Ask about all mutants (or those with one of `words` in their name), and about the kernels as they are."""
    results = Results(path)
    sites = sites_of(target)
    results.begin(sites)
    for kernel in KERNELS.values():
        if kernel.target is target:
            for column, said in ask(kernel.ptx(), kernel.problem()).items():
                results.add(kernel.name, column, said)
                print(f"{kernel.name:60} unmutated  {column}: {said.flagged} {'; '.join(said.told)}", flush=True)
    asked = [site for site in sites if any(word in site.name for word in words)]
    with ThreadPoolExecutor(jobs) as pool:
        for site, answers in zip(asked, pool.map(lambda each: ask(*mutated(each)), asked), strict=True):
            for column, said in answers.items():
                results.add(site.name, column, said)
                row = results.data["mutants"][site.name]
                print(line(site.name, "bug" if row["real"] else "equivalent", column, said), flush=True)
            results.save()
    results.save()
    return results


def line(name: str, kind: str, column: str, said: Answer) -> str:
    """One mutant's line."""
    return f"{name[:78]:80}{kind:12}{column}: {said.flagged:8}{said.seconds:6.2f} s  {'; '.join(said.told)[:150]}"


def summary(results: Results) -> None:
    """The score, and every miss."""
    rows = results.data["mutants"]
    columns = sorted({column for row in rows.values() for column in row["answers"]})
    real = {name: row for name, row in rows.items() if row["real"]}
    equivalent = [row for row in rows.values() if not row["real"]]
    for column in columns:
        by_error = share(real.values(), column, ("error",))
        print(f"{column}: of the bugs {share(real.values(), column)} flagged, {by_error} by an error")
        print(f"{column}: of the equivalent ones {share(equivalent, column, ('error',))} with an error")
        for name, row in real.items():
            if row["answers"].get(column, {}).get("flagged") in ("no", "unknown"):
                print(f"  missed: {name}: {row['why']}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--device", default="emulator", help="emulator, or cuda:N")
    parser.add_argument("--target", choices=("sm_90a", "sm_100a"), action="append", help="default: both")
    parser.add_argument("--sanitizer", action="store_true", help="on a GPU: run under compute-sanitizer too")
    parser.add_argument("--jobs", type=int, default=8, help="on a GPU: processes at once")
    parser.add_argument("--only", nargs="*", default=[""], help="only mutants whose name has one of these words")
    parser.add_argument("-o", "--output", type=Path, default=DATA, help="folder of the results, one file per target")
    parser.add_argument("--docs", type=Path, help="write the page of tables there")
    options = parser.parse_args()
    on_gpu = options.device != "emulator"
    targets = [Target(each) for each in options.target or (["sm_90a"] if on_gpu else ["sm_90a", "sm_100a"])]
    for target in targets:
        ask = Gpu(options.device, target, sanitizer=options.sanitizer).ask if on_gpu else on_emulator
        jobs = options.jobs if on_gpu else 1  # seconds of processor time are those of one mutant
        results = run(target, options.output / f"{target.value}.json", ask, options.only, jobs)
        summary(results)
    if options.docs:
        options.docs.write_text(page.render(options.output))


if __name__ == "__main__":
    main()
