"""Which messages a model gets at a turn, by the run's context policy; it asks no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from ptxbench.agent.feedback import tokens
from ptxbench.schema.turn import Message, Trajectory, Turn
from ptxbench.schema.values import content_hash

Policy = Literal["full", "latest_pair", "single"]

_NO_ANSWER = "(no answer)"
"""Providers refuse an empty message."""


def messages_for(trajectory: Trajectory, policy: Policy) -> tuple[Message, ...]:
    """The messages of a trajectory's next request.

    `full`: the prompt, then every answer with its feedback. `latest_pair`: the prompt, then the latest of them.
    `single`: the prompt's system message, and all the rest in one message of the user.
    """
    turns = trajectory.turns[-1:] if policy == "latest_pair" else trajectory.turns
    if policy == "single" and turns:
        *system, task = trajectory.prompt
        return (*system, Message(role="user", content="\n\n".join([task.content, *map(_told, turns)])))
    return (*trajectory.prompt, *(message for turn in turns for message in _pair(turn)))


def prompt_hash(messages: Sequence[Message]) -> str:
    """Content hash (hex SHA-256) of a request's messages."""
    fields = (field for message in messages for field in (message.role, message.content))
    return content_hash(["ptxbench.prompt.v1", *fields])


def estimated_tokens(messages: Sequence[Message]) -> int:
    """Tokens of a request, estimated on the safe side."""
    return sum(tokens(message.content) for message in messages)


def _pair(turn: Turn) -> tuple[Message, Message]:
    said = turn.answer.text if turn.answer.text.strip() else _NO_ANSWER
    return Message(role="assistant", content=said), Message(role="user", content=turn.feedback)


def _told(turn: Turn) -> str:
    said, feedback = _pair(turn)
    number = turn.index + 1
    return f"## Your answer {number}\n\n{said.content}\n\n## What was found about answer {number}\n\n{feedback.content}"
