"""The necessity witness (E9d): outputs that stay right although the target's results were spoilt did not need them.

It runs the checked call again and compares outputs; what is spoilt, and how, is the emulator's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ptxbench.emulator.launch import Policy
from ptxbench.emulator.witness import Spoilt, spoiler
from ptxbench.evaluate.emulated_run import Arrays, Call
from ptxbench.schema.stages import ProfileStage
from ptxbench.schema.values import Layer

CLUSTERS = 4
"""Clusters that run with spoilt results, where they do not need the others."""

_WORDS: dict[str, tuple[Spoilt, str]] = {
    "GMMA": ("mma", "the results of wgmma"),
    "TMA": ("tma", "what TMA moves"),
}


@dataclass(frozen=True)
class Checked:
    """A call that passed its check, for the witness to repeat.

    Attributes:
        policy: How it ran.
        call: Calls the candidate on the same inputs.
        right: Whether outputs pass as those of the check did; elements that were not written count as right.
    """

    policy: Policy
    call: Callable[[Policy], Call]
    right: Callable[[Arrays], bool]


def necessity(profile: ProfileStage, checked: Checked) -> Layer:
    """Whether the outputs need what the target's instructions compute and move; `profile` says which of them ran.

    Products decide: a kernel may well load a little by TMA that it does not need, and still compute on the target's
    units; the reason says so.
    """
    ran = {item.family for kernel in profile.kernels for item in kernel.families if item.thread_instructions_true}
    families = [family for family in _WORDS if family in ran]
    if not families:
        return Layer.unavailable("none of the target's instructions ran that the witness can spoil")
    base = replace(checked.policy, schedules=checked.policy.schedules[:1], checks=False)
    policy = _small(len(profile.kernels), base, checked)
    needed = {family: _needed(_WORDS[family][0], policy, checked) for family in families}
    decorative = [_WORDS[family][1] for family in families if not needed[family]]
    reason = f"decorative: the outputs stay right when {' and '.join(decorative)} are spoilt" if decorative else None
    return Layer.yes_or_no(needed[families[0]], reason)


def _small(launches: int, policy: Policy, checked: Checked) -> Policy:
    """The first clusters alone, where they give right results without the others; else the whole grid."""
    few = replace(policy, first=CLUSTERS)
    if launches != 1:
        return policy
    made = checked.call(few)
    return few if made.fault is None and checked.right(made.outputs) else policy


def _needed(what: Spoilt, policy: Policy, checked: Checked) -> bool:
    made = checked.call(replace(policy, watch=spoiler(what)))
    return made.fault is not None or not checked.right(made.outputs)
