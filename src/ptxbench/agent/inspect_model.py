"""Any model that Inspect AI knows, as `Generate`; and our own models as providers of Inspect. It runs no task."""

from __future__ import annotations

import time
from typing import Any, Literal

from inspect_ai.model import (
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageSystem,
    ChatMessageUser,
    ContentReasoning,
    GenerateConfig,
    Model,
    ModelAPI,
    ModelOutput,
    ModelUsage,
    get_model,
    modelapi,
)
from inspect_ai.model import StopReason as InspectStop
from inspect_ai.tool import ToolChoice, ToolInfo
from inspect_ai.util import LimitExceededError, store

from ptxbench.agent.ask import ContextFullError, Generate, Request
from ptxbench.agent.inspect_secrets import guard
from ptxbench.agent.own_models import PROVIDERS, open_own_model
from ptxbench.errors import ProviderError
from ptxbench.schema.turn import Answer, Message, RunPlan, SampleKey, Usage
from ptxbench.settings import redacted

REQUEST_KEY = "ptxbench:request"
"""Where our own models find which turn of which trajectory they are asked for: in the sample's store."""

_STOPS: dict[InspectStop, Literal["stop", "length", "filtered", "other"]] = {
    "stop": "stop",
    "max_tokens": "length",
    "content_filter": "filtered",
}
_SAID_BACK: dict[str, InspectStop] = {"stop": "stop", "length": "max_tokens", "filtered": "content_filter"}


def open_model(name: str, plan: RunPlan, base_url: str | None, retries: int) -> Model:
    """A model of Inspect by its name, `PROVIDER/MODEL`; nothing is sent yet.

    Raises:
        ProviderError: The provider is unknown, its package is missing, or there is no key.
    """
    try:
        return get_model(name, base_url=base_url, config=config_of(plan, retries))
    except Exception as fault:  # each provider has its own errors for a missing package or key
        what = f"The model {name!r} cannot be used: {_first_lines(fault)}"
        remedy = "Name it as PROVIDER/MODEL, as in openai/gpt-5, and set its provider's key."
        raise ProviderError(what, remedy) from fault


def config_of(plan: RunPlan, retries: int | None = None) -> GenerateConfig:
    """What a plan asks of every request."""
    settings: dict[str, Any] = {
        "max_retries": retries,
        "max_tokens": plan.max_output_tokens,
        "temperature": plan.temperature,
        "reasoning_effort": plan.reasoning_effort,
    }
    return GenerateConfig(**{name: value for name, value in settings.items() if value is not None})


class InspectModel:
    """The model of the running task, or a given one, as `Generate`."""

    def __init__(self, plan: RunPlan, model: Model | None = None) -> None:
        self._model = model
        self._config = config_of(plan)

    async def __call__(self, request: Request) -> Answer:
        """Its answer, after the retries that the provider's configuration allows.

        Raises:
            ContextFullError: The conversation is longer than the model's context.
            ProviderError: It does not answer.
        """
        model = guard(self._model or get_model())
        store().set(REQUEST_KEY, {"sample": request.key.model_dump(mode="json"), "turn": request.turn})
        started = time.monotonic()
        try:
            output = await model.generate([_chat(each) for each in request.messages], config=self._config)
        except (LimitExceededError, ProviderError):
            raise
        except Exception as fault:  # noqa: BLE001  (each provider has its own)
            what = f"{model} did not answer: {_first_lines(fault)}"
            raise ProviderError(what, "Remove the cause, and resume the run: what was paid is kept.") from None
        if output.stop_reason == "model_length":
            raise ContextFullError(f"{model}: {redacted(output.completion) or 'the context is full'}")
        return answer_of(output, time.monotonic() - started)


def answer_of(output: ModelOutput, seconds: float) -> Answer:
    """What Inspect gives, as our value."""
    content = output.message.content if output.choices else ""
    blocks = [] if isinstance(content, str) else [each for each in content if isinstance(each, ContentReasoning)]
    reasoning = (each.summary or "" if each.redacted else each.reasoning for each in blocks)
    return Answer(
        text=_clean(output.completion),
        reasoning=_clean("\n\n".join(text for text in reasoning if text)),
        stop=_STOPS.get(output.stop_reason, "other"),
        usage=_usage(output.usage),
        model=output.model,
        seconds=seconds,
    )


def _usage(usage: ModelUsage | None) -> Usage:
    if usage is None:
        return Usage()
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        reasoning_tokens=usage.reasoning_tokens,
        cache_read_tokens=usage.input_tokens_cache_read,
        cache_write_tokens=usage.input_tokens_cache_write,
        cost=usage.total_cost,
    )


def _chat(message: Message) -> ChatMessage:
    match message.role:
        case "system":
            return ChatMessageSystem(content=message.content)
        case "user":
            return ChatMessageUser(content=message.content)
        case "assistant":
            return ChatMessageAssistant(content=message.content)


def chat(messages: tuple[Message, ...]) -> list[ChatMessage]:
    """Our messages as Inspect's."""
    return [_chat(each) for each in messages]


def _clean(text: str) -> str:
    """Without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode()


def _first_lines(fault: BaseException) -> str:
    cause = fault
    while cause.__cause__ is not None and type(cause).__name__ == "RetryError":
        cause = cause.__cause__
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return redacted(f"{type(cause).__name__}: {' '.join(lines[:3])[:500]}".rstrip(": "))


class _OwnModel(ModelAPI):
    """One of our own models behind Inspect's interface."""

    provider = ""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig = GenerateConfig(),  # noqa: B008  (Inspect calls it so; it is never changed)
        **model_args: object,
    ) -> None:
        super().__init__(model_name, base_url, api_key, [], config)
        self._open: Generate | None = None

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        if self._open is None:
            self._open = open_own_model(f"{self.provider}/{self.model_name}", config.max_tokens, config.temperature)
        asked = store().get(REQUEST_KEY)
        messages = tuple(Message(role=each.role, content=each.text) for each in input if each.role != "tool")
        key = SampleKey.model_validate(asked["sample"])
        answer = await self._open(Request(key, asked["turn"], 0, messages))
        output = ModelOutput.from_content(answer.model or self.model_name, answer.text)
        output.choices[0].stop_reason = _SAID_BACK.get(answer.stop, "unknown")
        usage = answer.usage
        output.usage = ModelUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.tokens,
            input_tokens_cache_read=usage.cache_read_tokens,
            input_tokens_cache_write=usage.cache_write_tokens,
            reasoning_tokens=usage.reasoning_tokens,
        )
        return output


def register_own_models() -> None:
    """Make our own models known to Inspect by the names that `ptxbench run` has for them."""
    for provider in PROVIDERS:
        modelapi(provider)(type(f"Own_{provider}", (_OwnModel,), {"provider": provider, "__module__": __name__}))
