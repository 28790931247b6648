"""The necessity witness (E9d): outputs that stay right although the target's results were spoilt did not need them.

It runs the checked call again and compares outputs; what is spoilt, and how, is the emulator's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ptxbench.emulator.launch import Policy
from ptxbench.emulator.witness import Spoilt, spoiler
from ptxbench.evaluate.emulated_run import Arrays, Call
from ptxbench.schema.stages import ProfileStage
from ptxbench.schema.values import Layer

_WORDS: dict[str, tuple[Spoilt, str]] = {
    "GMMA": ("mma", "the results of wgmma"),
    "TMA": ("tma", "what TMA moves"),
}


def necessity(
    profile: ProfileStage,
    policy: Policy,
    call: Callable[[Policy], Call],
    right: Callable[[Arrays], bool],
) -> Layer:
    """Whether the outputs need what the target's instructions compute and move.

    Args:
        profile: Which families ran.
        policy: How the checked call ran.
        call: Calls the candidate on the checked draw.
        right: Whether outputs pass as those of the check did.
    """
    ran = {item.family for kernel in profile.kernels for item in kernel.families if item.thread_instructions_true}
    families = [family for family in _WORDS if family in ran]
    if not families:
        return Layer.unavailable("none of the target's instructions ran that the witness can spoil")
    needed = {family: _needed(_WORDS[family][0], policy, call, right) for family in families}
    decorative = [_WORDS[family][1] for family in families if not needed[family]]
    if not decorative:
        return Layer.yes_or_no(True)
    first = families[0] if not needed[families[0]] else None
    reason = f"decorative: the outputs stay right when {' and '.join(decorative)} are spoilt"
    # Products decide; a kernel may well load by TMA what it needs for little, and still compute on the target's units.
    return Layer.yes_or_no(first is None, reason)


def _needed(what: Spoilt, policy: Policy, call: Callable[[Policy], Call], right: Callable[[Arrays], bool]) -> bool:
    spoilt = replace(policy, schedules=policy.schedules[:1], checks=False, watch=spoiler(what))
    made = call(spoilt)
    return made.fault is not None or not right(made.outputs)
