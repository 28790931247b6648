"""What to do next after a verdict, most useful first; it derives from the verdict alone and changes nothing."""

from __future__ import annotations

from ptxbench.schema.stages import Outcome
from ptxbench.schema.verdict import StageName, State, Verdict

FULL_WORK_SHARE = 0.5
"""From this share on the target's instructions count as having done the work (E9)."""

DEFAULT_HINTS = {
    StageName.POLICY: "Take out what the rule names; docs/evaluation.md lists what a kernel may use.",
    StageName.BUILD: "Correct the first error and build again with `--until build`, which needs no GPU.",
    StageName.CHECK: "Look at the named elements first; `--workload small` repeats this on a small size.",
    StageName.SANITIZE: "Correct the first report; later ones often follow from it.",
    StageName.TIME: "Repeat on an idle GPU; `ptxbench doctor` tests the clock.",
}


def next_steps(verdict: Verdict) -> tuple[str, ...]:
    """One to three instructions."""
    status = verdict.status
    if status.state is State.PASSED:
        steps = _after_a_pass(verdict)
    elif _no_device(verdict):
        generation = verdict.target.generation
        steps = [f"Give the same command on a machine with a {generation} GPU to check, profile and time it."]
    else:
        usual = DEFAULT_HINTS.get(status.stage, "") if status.stage else ""
        steps = [(status.reason.hint if status.reason else "") or usual]
    if _something_unavailable(verdict) and not _no_device(verdict):
        steps.append("`ptxbench doctor` names the remedy for what is unavailable here.")
    return tuple(step for step in steps if step)


def _after_a_pass(verdict: Verdict) -> list[str]:
    layers = verdict.layers
    families = ", ".join(verdict.families)
    steps = []
    if layers.target.static.state == "no":
        steps.append(f"Use the instructions of {verdict.target.value} itself ({families}); this kernel has none.")
    elif layers.target.executed.state == "no":
        steps.append(f"The instructions of {families} are in the code but never run: look at the branch around them.")
    elif (layers.target.work_share.value or 1.0) < FULL_WORK_SHARE:
        steps.append("Let the target's tensor-core instructions do the work, not a part of it.")
    if verdict.stages.check.generalises.state == "no":
        steps.append("It is right for this size only: look at ragged edges and fixed sizes.")
    speed = layers.speed.value
    if not steps and speed is not None and speed < 1.0:
        steps.append("It is slower than the library: overlap loads with arithmetic, then look at `stages.profile`.")
    if not steps and layers.target.necessity.state == "no":
        steps.append("Let the output come from the target's instructions; now it stays right without them.")
    if verdict.environment.device == "emulator":
        steps.append(f"Measure its speed on a machine with a {verdict.target.generation} GPU.")
    return steps or ["Keep this verdict with `-o DIR`."]


def _no_device(verdict: Verdict) -> bool:
    return verdict.status.state is State.INCONCLUSIVE and verdict.environment.device == "none"


def _something_unavailable(verdict: Verdict) -> bool:
    """Whether an instrument is missing that could be had: the emulator's clock is not one of them."""
    own = {StageName.TIME} if verdict.environment.device == "emulator" else set()
    return any(verdict.stages.get(name).outcome is Outcome.UNAVAILABLE for name in StageName if name not in own)
