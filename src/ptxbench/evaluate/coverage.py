"""How much an emulated verdict rests on, in words: draws, schedules, milder findings; it decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ptxbench.schema.stages import CheckStage, SanitizerRun, SanitizeStage


def draws(check: CheckStage) -> str:
    """`3 draws (normal, normal, spiky), 2 other sizes`; empty when nothing was compared."""
    if not check.draws:
        return ""
    own = check.draws[0].workload
    recipes = [each.recipe for each in check.draws if each.workload == own]
    others = len({each.workload for each in check.draws} - {own})
    text = f"{len(recipes)} {'draw' if len(recipes) == 1 else 'draws'} ({', '.join(recipes)})"
    return text + (f", {others} other {'size' if others == 1 else 'sizes'}" if others else "")


def schedules(sanitize: SanitizeStage) -> str:
    """`late on all 32 clusters; eager, seed 1, seed 2 on 4 of them; 1 warning`; empty where no emulator ran."""
    return "; ".join(part for run in sanitize.runs for part in _parts(run))


def _parts(run: SanitizerRun) -> Iterator[str]:
    ran: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for each in run.schedules:
        ran[each.schedule] += each.clusters
        total[each.schedule] += each.of
    alike: dict[tuple[int, int], list[str]] = {}
    for name, of in total.items():
        alike.setdefault((ran[name], of), []).append(name)
    for (clusters, of), names in alike.items():
        word = "cluster" if of == 1 else "clusters"
        yield f"{', '.join(names)} on {f'all {of} {word}' if clusters == of else f'{clusters} of {of} {word}'}"
    milder = Counter(each.severity for each in run.findings if each.severity != "error")
    for severity in ("warning", "lint"):
        if milder[severity]:
            yield f"{milder[severity]} {severity}{'s' if milder[severity] > 1 else ''}"
