"""The verdict: every stage's typed result for one candidate on one device, and what follows from them.

`status` and `layers` are derived here and nowhere else. No stage is run from here.
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import computed_field

from ptxbench.schema.stages import (
    BuildStage,
    CheckStage,
    InspectStage,
    Outcome,
    PolicyStage,
    ProfileStage,
    Reason,
    SanitizeStage,
    Stage,
    TimeStage,
)
from ptxbench.schema.values import SCHEMA_VERSION, Derived, Frozen, Layer, Target, ToolVersion, Unavailable


class StageName(StrEnum):
    """The stages, cheap first; also the order in which they are reported."""

    POLICY = "policy"
    BUILD = "build"
    INSPECT = "inspect"
    CHECK = "check"
    SANITIZE = "sanitize"
    PROFILE = "profile"
    TIME = "time"


class State(StrEnum):
    """What a verdict says about the candidate as a whole."""

    PASSED = "passed"
    FAILED = "failed"
    CHEATED = "cheated"
    INCONCLUSIVE = "inconclusive"


EXIT_CODES = {State.PASSED: 0, State.FAILED: 1, State.CHEATED: 1, State.INCONCLUSIVE: 3}
"""Exit code of a command that judged one candidate; 2 is a user's mistake or the infrastructure."""


class Status(Frozen):
    """The state, with the stage and the reason when it is not a pass."""

    state: State
    stage: StageName | None = None
    reason: Reason | None = None

    @property
    def exit_code(self) -> int:
        """Exit code of a command that ends with this status."""
        return EXIT_CODES[self.state]


class Stages(Frozen):
    """Every stage's result; one that was not run says so."""

    policy: PolicyStage = PolicyStage(outcome=Outcome.NOT_RUN)
    build: BuildStage = BuildStage(outcome=Outcome.NOT_RUN)
    inspect: InspectStage = InspectStage(outcome=Outcome.NOT_RUN)
    check: CheckStage = CheckStage(outcome=Outcome.NOT_RUN)
    sanitize: SanitizeStage = SanitizeStage(outcome=Outcome.NOT_RUN)
    profile: ProfileStage = ProfileStage(outcome=Outcome.NOT_RUN)
    time: TimeStage = TimeStage(outcome=Outcome.NOT_RUN)

    def get(self, name: StageName) -> Stage:
        """The result of one stage."""
        stage: Stage = getattr(self, name.value)
        return stage


class TargetLayer(Frozen):
    """Did the target's own instructions appear, execute, do the work, and matter?"""

    static: Layer
    executed: Layer
    work_share: Layer
    necessity: Layer


class Layers(Frozen):
    """The three answers: correct, target, fast."""

    correct_published: Layer
    correct_contract: Layer
    target: TargetLayer
    speed: Layer


class Environment(Frozen):
    """Where and with what the verdict was made."""

    device: str
    """`cuda:N`, `emulator` or `none`."""
    device_name: str = ""
    gpu_uuid: str = ""
    driver: str = ""
    tools: tuple[ToolVersion, ...] = ()
    protections: tuple[str, ...] = ()
    """Protections that were active around the candidate's process."""
    missing_protections: tuple[Unavailable, ...] = ()
    host_code: str = ""
    """`replayed`: what the host code asked for was recorded without a device, and only that ran where the clock is.
    `live: REASON`: the host code itself ran there, and why. Empty where nothing ran on a device."""
    ptxbench: str = ""


class Verdict(Derived):
    """One JSON document with everything that was found out about one candidate (E24)."""

    schema_version: str = SCHEMA_VERSION
    candidate: str
    """Content hash of the candidate."""
    candidate_name: str = ""
    problem: str
    problem_hash: str
    workload: str
    axes: dict[str, int]
    target: Target
    environment: Environment
    stages: Stages
    families: tuple[str, ...]
    """Opcode families of the target, of which one must appear and execute."""
    created: float
    """Unix time in seconds."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def status(self) -> Status:
        """Follows from policy, build, check and sanitize alone (E25); a missing target or a slow kernel never fails."""
        for name in (StageName.POLICY, StageName.BUILD, StageName.CHECK, StageName.SANITIZE, StageName.TIME):
            stage = self.stages.get(name)
            if stage.outcome is Outcome.CHEATED:
                return Status(state=State.CHEATED, stage=name, reason=stage.reason)
        for name in (StageName.POLICY, StageName.BUILD, StageName.CHECK, StageName.SANITIZE):
            stage = self.stages.get(name)
            if stage.outcome is Outcome.FAILED:
                return Status(state=State.FAILED, stage=name, reason=stage.reason)
        for name in (StageName.POLICY, StageName.BUILD, StageName.CHECK, StageName.SANITIZE):
            stage = self.stages.get(name)
            if stage.outcome is not Outcome.PASSED:
                return Status(state=State.INCONCLUSIVE, stage=name, reason=stage.reason)
        if self.stages.time.outcome is Outcome.INCONCLUSIVE:
            return Status(state=State.INCONCLUSIVE, stage=StageName.TIME, reason=self.stages.time.reason)
        return Status(state=State.PASSED)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def layers(self) -> Layers:
        """The three layers, each yes, no, a value, or unavailable with its reason."""
        stages = self.stages
        work = stages.profile.work
        return Layers(
            correct_published=stages.check.published,
            correct_contract=stages.check.contract,
            target=TargetLayer(
                static=self._static(),
                executed=stages.profile.executed,
                work_share=Layer.of(work.target_mma) if work else Layer.unavailable(_why(stages.profile)),
                necessity=stages.profile.necessity,
            ),
            speed=self._speed(),
        )

    def _static(self) -> Layer:
        inspect = self.stages.inspect
        if inspect.outcome is not Outcome.PASSED:
            return Layer.unavailable(_why(inspect))
        return Layer.yes_or_no(any(inspect.families.get(family, 0) > 0 for family in self.families))

    def _speed(self) -> Layer:
        if self.status.state in (State.FAILED, State.CHEATED):
            return Layer.unavailable(f"the candidate {self.status.state.value} at {self.status.stage}")
        time = self.stages.time
        if time.outcome is not Outcome.PASSED or not time.baselines:
            return Layer.unavailable(_why(time))
        first = time.baselines[0]
        return Layer.of(first.speedup, first.interval)


def _why(stage: Stage) -> str:
    return stage.reason.message if stage.reason else f"the stage was {stage.outcome.value.replace('_', ' ')}"
