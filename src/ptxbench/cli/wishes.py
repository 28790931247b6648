"""Reads the options of a run as typed into what the run is asked to be; it makes no plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from ptxbench.agent.context import Policy
from ptxbench.agent.plans import Wish
from ptxbench.errors import CommandError
from ptxbench.evaluate.pipeline import EvaluationRequest, choose
from ptxbench.schema.turn import Price
from ptxbench.schema.values import Target

_SAME = ("model", "trajectories", "turns", "target_speedup", "workload", "context", "temperature", "preset")
_LIMITS = ("reasoning_effort", "token_limit", "context_limit", "cost_limit", "time_limit")


def device_for(target: Target, device: str, *, planned: bool = False) -> str:
    """The device that judges, as it is found here; a GPU that is `planned` for may be another machine's.

    Raises:
        CommandError: No device was asked for.
        DeviceError: It is absent, or does not fit the target.
    """
    if device == "none":
        raise CommandError("A run needs a device.", "Give --device auto, cuda:N or emulator.")
    if planned and device.startswith("cuda:"):
        return device
    return choose(EvaluationRequest(target=target, device=device)).name


def wish_of(options: Mapping[str, Any]) -> Wish:
    """What is asked for, from options as typed; one that is missing was not given.

    Raises:
        CommandError: An option has a value that means nothing.
    """
    target, context = options["target"], options["context"]
    if target not in set(Target):
        raise CommandError(f"{target!r} is no target.", f"Use {' or '.join(Target)}.")
    if context not in (None, *get_args(Policy)):
        raise CommandError(f"{context!r} is no context policy.", f"Use {', '.join(get_args(Policy))}.")
    return Wish(
        tasks=_listed(options["tasks"]),
        target=Target(target),
        packs=_listed(options["pack"]),
        max_output_tokens=options.get("max_tokens"),
        price=_price(options["price"]) if options.get("price") else None,
        baseline_ms=dict(map(_baseline, options["baseline_ms"])) if options.get("baseline_ms") else None,
        **{name: options[name] for name in (*_SAME, *_LIMITS) if name in options},
    )


def _listed(text: str | None) -> tuple[str, ...] | None:
    return tuple(part.strip() for part in text.split(",") if part.strip()) if text else None


def _baseline(text: str) -> tuple[str, float]:
    name, _, number = text.rpartition("=")
    try:
        return name, float(number)
    except ValueError:
        raise CommandError(f"--baseline-ms is {text!r}.", "Give TASK=MILLISECONDS.") from None


def _price(text: str) -> Price:
    try:
        paid, got = (float(part) for part in text.split("/"))
    except ValueError:
        raise CommandError(f"--price is {text!r}.", "Give IN/OUT in US$ for a million tokens, as in 3/15.") from None
    return Price(input=paid, output=got)
