"""The necessity witness (E9d): outputs that stay right although the target's results were spoilt did not need them.

It runs the checked call again and compares outputs; what is spoilt, and how, is the emulator's. Each family that ran is
spoilt apart from the others, and answered for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ptxbench.emulator.apart.messages import Watch
from ptxbench.emulator.launch import Policy
from ptxbench.emulator.witness import Spoilt
from ptxbench.evaluate.emulated_run import UNDECIDED, Arrays, Call
from ptxbench.schema.stages import FamilyNecessity, ProfileStage
from ptxbench.schema.values import Layer

CLUSTERS = 4
"""Clusters that run with spoilt results, where they do not need the others."""


class _Way(NamedTuple):
    """What is spoilt of a family, and how people call the family and that."""

    spoilt: Spoilt
    name: str
    what: str


_WAYS = {
    "GMMA": _Way("mma", "wgmma", "its results are spoilt"),
    "TCGEN_MMA": _Way("mma", "tcgen05.mma", "its results are spoilt"),
    "TMA": _Way("tma", "TMA", "all that it moves is spoilt"),
}


@dataclass(frozen=True)
class Checked:
    """A call that passed its check, for the witness to repeat.

    Attributes:
        policy: How it ran.
        call: Calls the candidate on the same inputs, with somebody looking on.
        right: Whether outputs pass as those of the check did; elements that were not written count as right.
    """

    policy: Policy
    call: Callable[[Policy, Watch], Call]
    right: Callable[[Arrays], bool]


def witnessed(profile: ProfileStage, checked: Checked) -> ProfileStage:
    """`profile` with the answer of each family that ran: whether the outputs need what it computes or moves."""
    ran = {item.family for kernel in profile.kernels for item in kernel.families if item.thread_instructions_true}
    families = [family for family in _WAYS if family in ran]
    if not families:
        none = Layer.unavailable("none of the target's instructions ran that the witness can spoil")
        return profile.model_copy(update={"necessity": none})
    base = replace(checked.policy, schedules=checked.policy.schedules[:1], checks=False)
    policy = _small(len(profile.kernels), base, checked)
    needs = tuple(FamilyNecessity(family=family, necessity=_need(family, policy, checked)) for family in families)
    return profile.model_copy(update={"needs": needs, "necessity": necessity(needs)})


def necessity(needs: Sequence[FamilyNecessity]) -> Layer:
    """One answer for all families: `no` as soon as one is decoration, and the reason says which are needed."""
    decorative = [each for each in needs if each.necessity.state == "no"]
    unknown = [each for each in needs if each.necessity.state == "unavailable"]
    if decorative:
        parts = [each.necessity.reason or "" for each in decorative]
        parts += [f"{_WAYS[each.family].name} is needed" for each in needs if each.necessity.state == "yes"]
        return Layer.yes_or_no(False, "; ".join(parts))
    return unknown[0].necessity if unknown else Layer.yes_or_no(True, None)


def _small(launches: int, policy: Policy, checked: Checked) -> Policy:
    """The first clusters alone, where they give right results without the others; else the whole grid."""
    few = replace(policy, first=CLUSTERS)
    if launches != 1:
        return policy
    made = checked.call(few, "")
    return few if made.fault is None and checked.right(made.outputs) else policy


def _need(family: str, policy: Policy, checked: Checked) -> Layer:
    way = _WAYS[family]
    made = checked.call(policy, way.spoilt)
    if made.fault is not None and made.fault.code in UNDECIDED:
        return Layer.unavailable(made.fault.message)
    needed = made.fault is not None or not checked.right(made.outputs)
    reason = f"{way.name} is decorative: the outputs stay right when {way.what}"
    return Layer.yes_or_no(needed, None if needed else reason)
