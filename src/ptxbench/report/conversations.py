"""Trajectories in the formats of other agents' tools: mini-swe-agent's, and ATIF as Harbor defines it."""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from ptxbench.schema.turn import StopReason, Trajectory, Turn

MINI_SWE_AGENT = "mini-swe-agent-1.1"
ATIF = "ATIF-v1.7"

Document = dict[str, Any]


def mini_swe_agent(trajectory: Trajectory) -> Document:
    """The format `mini-swe-agent-1.1`: prompt, then answers and what followed in turn, and a last message `exit`.

    What has no place there is in each message's `extra`.
    """
    messages: list[Document] = [message.model_dump() for message in trajectory.prompt]
    for turn in trajectory.turns:
        messages += [_mini_answer(turn), _mini_observation(turn)]
    status = "Submitted" if trajectory.stop is StopReason.TARGET_REACHED else "LimitsExceeded"
    if trajectory.stop is not None:
        messages.append(
            {"role": "exit", "content": trajectory.stop_note, "extra": {"exit_status": status, "submission": ""}}
        )
    costs = [turn.answer.usage.cost or 0.0 for turn in trajectory.turns]
    requests = sum(turn.answer.parts for turn in trajectory.turns)
    return {
        "info": {
            "model_stats": {"instance_cost": sum(costs), "api_calls": requests},
            "config": {"agent_type": "ptxbench", "model": {"model_name": trajectory.model}},
            "mini_version": f"ptxbench {version('ptxbench')}",
            "exit_status": status if trajectory.stop is not None else "",
            "submission": "",
        },
        "messages": messages,
        "trajectory_format": MINI_SWE_AGENT,
    }


def _mini_answer(turn: Turn) -> Document:
    extra = {"actions": [], "cost": turn.answer.usage.cost or 0.0, "timestamp": turn.created}
    document: Document = {"role": "assistant", "content": turn.answer.text, "extra": extra}
    if turn.answer.reasoning:
        document["reasoning_content"] = turn.answer.reasoning
    return document


def _mini_observation(turn: Turn) -> Document:
    extra = {
        "raw_output": turn.feedback,
        "returncode": 0 if turn.correct else 1,
        "event": turn.state.value,
        "all_passed": turn.correct,
        "min_speedup": turn.speedup,
        "timestamp": turn.created + turn.evaluation_seconds,
    }
    return {"role": "user", "content": turn.feedback, "extra": extra}


def atif(trajectory: Trajectory, run: str) -> Document:
    """Agent Trajectory Interchange Format 1.7 (Harbor RFC 0001): a step for each message; a verdict is an observation.

    Args:
        trajectory: The conversation.
        run: Id of its run, which becomes the session.
    """
    steps: list[Document] = [
        {"source": "system" if message.role == "system" else "user", "message": message.content}
        for message in trajectory.prompt
    ]
    steps += [_atif_step(turn) for turn in trajectory.turns]
    usages = [turn.answer.usage for turn in trajectory.turns]
    known = [usage.cost for usage in usages if usage.cost is not None]
    final = {
        "total_prompt_tokens": sum(usage.input_tokens for usage in usages),
        "total_completion_tokens": sum(usage.output_tokens for usage in usages),
        "total_cached_tokens": sum(usage.cache_read_tokens or 0 for usage in usages),
        "total_steps": len(steps),
    }
    return {
        "schema_version": ATIF,
        "session_id": run,
        "trajectory_id": trajectory.key.name,
        "agent": {"name": "MiniPTXAgent", "version": version("ptxbench"), "model_name": trajectory.model},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, 1)],
        "final_metrics": {**final, "total_cost_usd": sum(known)} if known else final,
        "extra": {
            "key": trajectory.key.model_dump(mode="json"),
            "stop": trajectory.stop.value if trajectory.stop else None,
        },
    }


def _atif_step(turn: Turn) -> Document:
    usage = turn.answer.usage
    metrics: Document = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    if usage.cache_read_tokens is not None:
        metrics["cached_tokens"] = usage.cache_read_tokens
    if usage.cost is not None:
        metrics["cost_usd"] = usage.cost
    if usage.reasoning_tokens is not None:
        metrics["extra"] = {"reasoning_tokens": usage.reasoning_tokens}
    verdict = {"state": turn.state.value, "candidate": turn.candidate.id if turn.candidate else None}
    step: Document = {
        "timestamp": datetime.fromtimestamp(turn.created, UTC).isoformat(),
        "source": "agent",
        "message": turn.answer.text,
        "metrics": metrics,
        "llm_call_count": turn.answer.parts,
        "observation": {"results": [{"content": turn.feedback}]},
        "extra": {**verdict, "speedup": turn.speedup, "target_correct": turn.target_correct},
    }
    if turn.answer.reasoning:
        step["reasoning_content"] = turn.answer.reasoning
    return step
