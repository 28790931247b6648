"""What a run leaves: turns, trajectories and the plan they were made by; how they are made is `agent`'s work."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeVar

from pydantic import Field, computed_field, model_validator

from ptxbench.schema.candidate import Candidate
from ptxbench.schema.values import SCHEMA_VERSION, Derived, Frozen, Target, ToolVersion, content_hash
from ptxbench.schema.verdict import State, Verdict


class Message(Frozen):
    """One message of the conversation, as text."""

    role: Literal["system", "user", "assistant"]
    content: str


class Usage(Frozen):
    """Tokens that one answer cost; a count the provider did not give is None."""

    input_tokens: int = 0
    """Those at the full price: what was read from or written to a provider's cache is counted apart."""
    output_tokens: int = 0
    """Reasoning tokens included."""
    reasoning_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    cost: float | None = None
    """In US dollars, where the provider or a price list says so."""

    @property
    def tokens(self) -> int:
        """All tokens, in and out."""
        cached = (self.cache_read_tokens or 0) + (self.cache_write_tokens or 0)
        return self.input_tokens + self.output_tokens + cached

    def plus(self, other: Usage) -> Usage:
        """Both together; a count that neither gave stays None."""
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=_sum(self.reasoning_tokens, other.reasoning_tokens),
            cache_read_tokens=_sum(self.cache_read_tokens, other.cache_read_tokens),
            cache_write_tokens=_sum(self.cache_write_tokens, other.cache_write_tokens),
            cost=_sum(self.cost, other.cost),
        )


Number = TypeVar("Number", int, float)


def _sum(one: Number | None, other: Number | None) -> Number | None:
    return other if one is None else one if other is None else one + other


class Price(Frozen):
    """US dollars for a million tokens."""

    input: float
    output: float

    def of(self, usage: Usage) -> float:
        """What an answer cost, its provider's cache taken at the full price."""
        return ((usage.tokens - usage.output_tokens) * self.input + usage.output_tokens * self.output) / 1e6


class Extracted(StrEnum):
    """What was found in an answer."""

    KERNEL = "kernel"
    MISSING = "missing"
    """No complete code block with a kernel in it."""
    CUT = "cut"
    """The answer ended inside its last code block."""


class Answer(Frozen):
    """What the model said in one turn, with what it cost."""

    text: str
    reasoning: str = ""
    """What the provider shows of the model's thinking."""
    stop: Literal["stop", "length", "filtered", "other"] = "stop"
    """Why the provider ended it; after continuations, why the last part ended."""
    parts: int = 1
    """Requests it took: more than one where an answer cut at its token limit was continued."""
    usage: Usage = Usage()
    model: str = ""
    """The model's name as the provider gave it back."""
    seconds: float = 0.0
    """Wall-clock time of the requests."""


class TurnState(StrEnum):
    """How a turn ended: a verdict's state, or no kernel to judge."""

    PASSED = "passed"
    FAILED = "failed"
    CHEATED = "cheated"
    INCONCLUSIVE = "inconclusive"
    NO_KERNEL = "no_kernel"


class Turn(Derived):
    """One answer of a model with its verdict."""

    index: int
    """Counted from 0."""
    prompt_hash: str
    """Content hash of all messages that the answer replies to."""
    answer: Answer
    extracted: Extracted
    extraction_note: str = ""
    """What was missing, in the words that the model reads."""
    candidate: Candidate | None = None
    verdict: Verdict | None = None
    feedback: str = ""
    """What the model was told about this turn; empty when it was the last."""
    evaluation_seconds: float = 0.0
    """Wall-clock time of the evaluation, waiting for a device included."""
    created: float
    """Unix time in seconds at which the answer was complete."""

    @model_validator(mode="after")
    def _consistent(self) -> Turn:
        if (self.candidate is None) != (self.extracted is not Extracted.KERNEL):
            raise ValueError("a turn has a candidate exactly when a kernel was extracted")
        if (self.verdict is None) != (self.candidate is None):
            raise ValueError("a turn has a verdict exactly when it has a candidate")
        if self.verdict is not None and self.candidate is not None and self.verdict.candidate != self.candidate.id:
            raise ValueError("the verdict is another candidate's")
        return self

    @computed_field  # type: ignore[prop-decorator]
    @property
    def state(self) -> TurnState:
        """Follows from the verdict."""
        return TurnState.NO_KERNEL if self.verdict is None else TurnState(self.verdict.status.state.value)

    @property
    def correct(self) -> bool:
        """The contract holds and nothing was refused."""
        return self.verdict is not None and self.verdict.status.state is State.PASSED

    @property
    def target_correct(self) -> bool:
        """Correct, an instruction of the target's own families executed, and nothing showed it to be decoration."""
        if not self.correct or self.verdict is None:
            return False
        target = self.verdict.layers.target
        return target.executed.state == "yes" and target.necessity.state != "no"

    @property
    def speedup(self) -> float | None:
        """Baseline time divided by the candidate's, of a correct turn; None where no time was measured."""
        return self.verdict.layers.speed.value if self.correct and self.verdict is not None else None


class StopReason(StrEnum):
    """Why a trajectory ended."""

    TURN_LIMIT = "turn_limit"
    TARGET_REACHED = "target_reached"
    TOKEN_LIMIT = "token_limit"  # noqa: S105  (no secret: tokens of text)
    COST_LIMIT = "cost_limit"
    TIME_LIMIT = "time_limit"
    CONTEXT_FULL = "context_full"
    """The conversation no longer fits the model's context."""
    PROVIDER_ERROR = "provider_error"
    HARNESS_ERROR = "harness_error"
    INTERRUPTED = "interrupted"


UNFINISHED = frozenset({StopReason.PROVIDER_ERROR, StopReason.HARNESS_ERROR, StopReason.INTERRUPTED})
"""Ends that a resumed run goes on from; the others are final."""


class SampleKey(Frozen):
    """What one trajectory is a sample of."""

    problem: str
    workload: str
    """A workload's uuid."""
    target: Target
    pack: str
    """Tag or level of the knowledge pack, or `none`."""
    number: int
    """Which of the repeated trajectories, counted from 0."""

    @property
    def name(self) -> str:
        """Unique within a run and fit for a file's name."""
        return f"{self.problem}-{self.workload[:8]}-{self.target.value}-{self.pack}-{self.number:03d}"


class Trajectory(Frozen):
    """One conversation: what was asked, up to so many turns, and why it ended."""

    schema_version: str = SCHEMA_VERSION
    key: SampleKey
    model: str
    device: str
    """`cuda:N` or `emulator`."""
    problem_hash: str
    pack_hash: str = ""
    prompt: tuple[Message, ...]
    """The messages before the first answer."""
    turns: tuple[Turn, ...] = ()
    stop: StopReason | None = None
    """None while it runs."""
    stop_note: str = ""
    created: float
    """Unix time in seconds."""


class RunPlan(Frozen):
    """Everything that decides what a run asks and how it judges; two runs of equal plans are comparable."""

    model: str
    tasks: tuple[str, ...] = ()
    """The problems by name or by folder, as they were asked for."""
    keys: tuple[SampleKey, ...]
    turns: int = 8
    target_speedup: float = 1.2
    """A correct turn at least this fast ends its trajectory; 0: never. On the emulator, which measures no time, a
    correct turn that has the target's work share ends it."""
    device: str = "auto"
    evaluator: str = ""
    """Address of an evaluation service; empty: this machine."""
    baseline_ms: dict[str, float] = Field(default_factory=dict)
    """Times of the library in milliseconds, by problem, that the model is told."""
    context: Literal["full", "latest_pair", "single"] = "full"
    max_output_tokens: int | None = None
    """Tokens of one request."""
    continuations: int = 2
    """Further requests for an answer that was cut at its token limit."""
    temperature: float | None = None
    reasoning_effort: str | None = None
    token_limit: int | None = None
    """Tokens of one trajectory, in and out."""
    context_limit: int | None = None
    """Tokens of one prompt, estimated before it is sent; a longer one ends the trajectory."""
    price: Price | None = None
    """What a model costs whose provider does not say so."""
    cost_limit: float | None = None
    """US dollars of the whole run."""
    time_limit: float | None = None
    """Seconds of one trajectory."""
    recorded: bool = False
    """The answers were recorded before (`replay/FILE`); the verdicts are computed now."""
    preset: str = ""


class Run(Frozen):
    """A run's first document: its plan and what made it."""

    schema_version: str = SCHEMA_VERSION
    id: str
    """Content hash of the plan and the time at which it began."""
    plan: RunPlan
    created: float
    """Unix time in seconds."""
    tools: tuple[ToolVersion, ...] = ()

    @classmethod
    def begun(cls, plan: RunPlan, created: float, tools: tuple[ToolVersion, ...] = ()) -> Run:
        """A run that begins at this time."""
        new = cls(id="", plan=plan, created=created, tools=tools)
        return new.model_copy(update={"id": new.identity()})

    def identity(self) -> str:
        """The id that follows from plan and time."""
        return content_hash(["ptxbench.run.v1", self.plan.model_dump_json(), repr(self.created)])
