"""What a verdict says of the emulator's reach."""

from __future__ import annotations

from ptxbench.evaluate.coverage import draws, schedules
from ptxbench.schema.stages import (
    CheckStage,
    DrawCheck,
    Outcome,
    SanitizerFinding,
    SanitizerRun,
    SanitizeStage,
    ScheduleCoverage,
)


def covered(schedule: str, clusters: int, of: int, kernel: str = "k") -> ScheduleCoverage:
    return ScheduleCoverage(kernel=kernel, schedule=schedule, clusters=clusters, of=of)


def sanitize(*covers: ScheduleCoverage, severities: tuple[str, ...] = ()) -> SanitizeStage:
    findings = tuple(
        SanitizerFinding.model_validate({"kind": "x", "message": "y", "severity": each}) for each in severities
    )
    run = SanitizerRun(tool="emulator", outcome=Outcome.PASSED, schedules=covers, findings=findings)
    return SanitizeStage(outcome=Outcome.PASSED, runs=(run,))


def test_schedules_of_equal_reach_stand_together() -> None:
    quick = sanitize(covered("late", 32, 32), covered("eager", 4, 32), covered("seed 1", 4, 32))
    assert schedules(quick) == "late on all 32 clusters; eager, seed 1 on 4 of 32 clusters"


def test_the_clusters_of_all_kernels_count() -> None:
    both = sanitize(covered("late", 8, 8), covered("late", 2, 2, "other"), covered("eager", 4, 8))
    assert schedules(both) == "late on all 10 clusters; eager on 4 of 8 clusters"


def test_findings_that_fail_nothing_are_counted() -> None:
    made = sanitize(covered("late", 1, 1), severities=("warning", "lint", "lint", "error"))
    assert schedules(made) == "late on all 1 cluster; 1 warning; 2 lints"


def test_draws_and_other_sizes_are_counted() -> None:
    def draw(workload: str, recipe: str = "normal") -> DrawCheck:
        return DrawCheck.model_validate({"workload": workload, "recipe": recipe, "outputs": ()})

    stage = CheckStage(outcome=Outcome.PASSED, draws=(draw("a"), draw("a", "spiky"), draw("b")))
    assert draws(stage) == "2 draws (normal, spiky), 1 other size"
    assert draws(stage.model_copy(update={"draws": (draw("a"),)})) == "1 draw (normal)"
    assert draws(CheckStage(outcome=Outcome.FAILED)) == ""


def test_where_no_emulator_ran_nothing_is_said() -> None:
    assert schedules(SanitizeStage(outcome=Outcome.NOT_RUN)) == ""
