"""Models that need no provider: recorded conversations, and a small one on this machine."""

from __future__ import annotations

from ptxbench.agent import local_model
from ptxbench.agent.ask import Generate
from ptxbench.agent.local_model import open_local_model
from ptxbench.agent.replay import is_replay, open_replay
from ptxbench.errors import ProviderError

PROVIDERS = ("replay", "smollm2")
"""The first part of their names."""


def is_own(model: str) -> bool:
    """Whether a model's name is one of ours, so that no provider is asked."""
    return model.partition("/")[0] in PROVIDERS


def open_own_model(model: str, max_tokens: int | None = None, temperature: float | None = None) -> Generate:
    """One of our own models by its name.

    Raises:
        ProviderError: There is none of that name, or what it needs is not there.
    """
    if is_replay(model):
        return open_replay(model)
    if model != local_model.NAME:
        raise ProviderError(f"There is no model {model!r}.", f"The model on this machine is {local_model.NAME}.")
    return open_local_model(max_tokens, temperature)
